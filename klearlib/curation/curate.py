"""From raw data sets to problems and responses that may be trained on, in one streamed pass."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.duplicates import duplicate_digest
from klearlib.curation.funnel import Funnel
from klearlib.curation.overlap import OverlapIndex, Removal
from klearlib.curation.overlap_words import known_templates
from klearlib.data.benchmarks import SIZES, read_benchmark
from klearlib.data.lines import LineWriter, json_line
from klearlib.data.problems import iter_problems
from klearlib.data.reader import Reject, SourceReader
from klearlib.data.sources import read_source
from klearlib.data.tables import Sample, SampleWriter
from klearlib.errors import KlearError, MissingAsset, Stopped
from klearlib.records import LabelledResponse, SourceRow
from klearlib.run.files import sha256_file, write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

STAGES = ("adapter", "duplicates", "overlap", "gold", "tests")
FILES = ("problems.jsonl", "responses.parquet", "rejects.jsonl", "removals.jsonl")
MERGES = ("none", "source", "all")

_LOOK_EVERY = 1000  # rows between two looks at a stop that was asked for
_READER_OPTIONS = {"split", "config", "revision", "streaming", "limit", "alias", "questions"}


def curate(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    sources: list[dict],
    benchmarks: list[dict],
    ngram_words: int,
    ngram_mode: str,
    templates: list[str],
    stop_more_than: int | None,
    need_gold: bool,
    min_tests: int,
    merge_responses: str,
    workers: int,
) -> None:
    """Stage ``curate``: adapters, exact deduplication, overlap with benchmarks, number of tests.

    A row of a source is rejected by the first of these that has a reason:

    1. adapter: it gives no problem, see `sources.read_source`;
    2. duplicates (``duplicate``): a problem with the same `normalise.duplicate_key` is kept
       already, and its prompt shares nothing with a benchmark;
    3. overlap (``overlap``): its prompt does, see `overlap.OverlapIndex`;
    4. gold (``no_gold``, where `need_gold`): neither an answer nor tests;
    5. tests (``few_tests``): tests, and fewer than `min_tests`; the paper wants 16.

    So the first usable row of each kind is kept, and which kinds are kept does not depend on the
    order of sources or rows. The responses of a duplicate are further responses to the problem
    that is kept, as data sets need that have a row for each response.

    Writes `FILES` (the problems; their responses with the labels of the sources; a `Reject` for
    each other row; a row for each removal by overlap) and card.json: counts for each source and
    stage, which add up; removals by benchmark and those due to boilerplate; licences, parameters,
    hashes. Rows are streamed: in memory are some hundred bytes for each problem that is kept, and
    hashes of responses. A run that was stopped starts over; the files appear when all is read.

    Args:
        sources: in order of preference, each ``{"name": ..., "location": ...}`` and, where wanted,
            the other arguments of `read_source` but a window. With ``"input"``, locations are
            inside of the upstream stage of that name. What stands at a location elsewhere is no
            part of the stage's key: the card has its hash.
        benchmarks: each ``{"name": ..., "location": ...}``, ``"input"`` as above: one of
            `benchmarks.SIZES` or, under any other name, a file of problems.
        ngram_words, ngram_mode, stop_more_than: n, mode and stop list of `OverlapIndex`.
        templates: texts that are cut out of items and prompts, besides
            `overlap_words.known_templates` of the mode.
        merge_responses: whose duplicates give their responses: ``source``, rows of the source of
            the problem that is kept; ``all``; ``none``. A response that the problem has already,
            character by character, is not taken again.
        workers: processes for the overlap. The result is the same for any number.

    Raises:
        Stopped: a stop was asked for.
        KlearError: a bad parameter, a source or benchmark that cannot be read, no problem left.
    """
    parameters = {
        "sources": sources,
        "benchmarks": benchmarks,
        "ngram_words": ngram_words,
        "ngram_mode": ngram_mode,
        "templates": templates,
        "stop_more_than": stop_more_than,
        "need_gold": need_gold,
        "min_tests": min_tests,
        "merge_responses": merge_responses,
    }
    _check(sources, benchmarks, min_tests, merge_responses)
    folder.load_checkpoint()  # there is none; what a kill left half written goes
    index = OverlapIndex(
        {item["name"]: _benchmark_texts(item, inputs) for item in benchmarks},
        n=ngram_words,
        mode=ngram_mode,
        templates=[*templates, *known_templates(ngram_mode)],
        stop_more_than=stop_more_than,
    )
    readers = [_reader(item, inputs) for item in sources]
    _check_names([reader.name for reader in readers], "source: give an alias")
    with ExitStack() as stack:
        kinds = (LineWriter, SampleWriter, LineWriter, LineWriter)
        writers = [
            stack.enter_context(kind(folder.path / name))
            for kind, name in zip(kinds, FILES, strict=True)
        ]
        pass_ = Pass(*writers, need_gold, min_tests, merge_responses)
        for number, reader in enumerate(readers):
            pass_.funnel.add_source(reader.name)
            for count, (row, removal) in enumerate(_examined(reader, index, workers, pass_.clean)):
                pass_.take(row, removal)
                if count % _LOOK_EVERY == 0:
                    folder.progress(number, len(readers), f"{reader.name}: {count} rows")
                    if folder.stop_requested:
                        raise Stopped(f"stopped in {reader.name}; run again, it starts over")
        if not pass_.problems.num_rows:
            raise KlearError("no problem is left: see what the sources hold, and lower min_tests")
    folder.progress(len(readers), len(readers))
    card = pass_.card(readers)
    card["overlap"] |= {"num_items": index.num_items, "num_ngrams": index.num_ngrams}
    card["overlap"]["num_stopped"] = index.num_stopped
    card["parameters"] = parameters
    places = [_location(item, inputs) for item in sources]
    card["inputs"] = {
        "sources": {
            reader.name: sha256_location(place)
            for reader, place in zip(readers, places, strict=True)
        },
        "benchmarks": {b["name"]: sha256_location(_location(b, inputs)) for b in benchmarks},
    }
    card["outputs"] = {name: sha256_file(folder.path / name) for name in FILES}
    write_json(folder.path / "card.json", card)


@dataclass(frozen=True)
class Row:
    """A usable row with what is looked at. Its problem is text already: many rows wait for the
    search, and tests are several times as large as objects."""

    number: int
    id: str
    source: str
    licence: str
    prompt: str
    line: str
    responses: tuple[LabelledResponse, ...]
    num_tests: int
    is_judged: bool
    key: bytes
    text_hash: int

    @classmethod
    def of(cls, row: SourceRow, number: int) -> Row:
        problem = row.problem
        return cls(
            number=number,
            id=problem.id,
            source=problem.source,
            licence=row.licence,
            prompt=problem.prompt,
            line=json_line(asdict(problem)),
            responses=row.responses,
            num_tests=len(problem.tests),
            is_judged=bool(problem.tests) or problem.answer is not None,
            key=duplicate_digest(problem.prompt),
            text_hash=_hash(problem.prompt),
        )


def _examined(
    reader: SourceReader, index: OverlapIndex, workers: int, clean: set[int]
) -> Iterator[tuple[Row | Reject, Removal | None]]:
    """All rows of a source in order, usable ones with what they share with a benchmark."""
    waiting: deque[Row | Reject] = deque()

    def prompts() -> Iterator[str]:
        for number, row in enumerate(reader.account()):
            row = Row.of(row, number) if isinstance(row, SourceRow) else row
            waiting.append(row)
            # Each row has its place in the search, so that few wait; most duplicates are copies of
            # a prompt that was searched already, and have nothing to search.
            yield "" if isinstance(row, Reject) or row.text_hash in clean else row.prompt

    for removal in index.stream(prompts(), workers=workers):
        yield waiting.popleft(), removal
    assert not waiting


class Pass:
    """What one pass over the sources has seen, written and counted."""

    def __init__(
        self,
        problems: LineWriter,
        responses: SampleWriter,
        rejects: LineWriter,
        removals: LineWriter,
        need_gold: bool,
        min_tests: int,
        merge_responses: str,
    ):
        self.problems, self.responses = problems, responses
        self.rejects, self.removals = rejects, removals
        self.funnel = Funnel(STAGES)
        self.clean: set[int] = set()  # hashes of the prompts that are kept
        self._need_gold, self._min_tests, self._merges = need_gold, min_tests, merge_responses
        self._kept: dict[bytes, tuple[str, str]] = {}  # key -> id and source
        self._seen: set[int] = set()  # hashes of the responses
        self._removed: dict[str, Counter] = {}  # by benchmark
        self._licences: dict[str, Counter] = {}
        self._counts: dict[str, Counter] = {}  # responses by source

    def take(self, row: Row | Reject, removal: Removal | None) -> None:
        """Keep or reject one row."""
        if isinstance(row, Reject):
            self._reject("adapter", row)
            return
        counts = self._counts.setdefault(row.source, Counter())
        counts["num_given"] += len(row.responses)
        fault = self._fault(row, removal)
        if fault is None:
            self.funnel.keep(row.source)
            self.clean.add(row.text_hash)
            self._kept[row.key] = (row.id, row.source)
            self._licences.setdefault(row.source, Counter())[row.licence] += 1
            self.problems.add_line(row.line)
            self._add_responses(row, row.id, "num_kept")
            return
        stage, reason, detail = fault
        if stage == "overlap":
            self._remove(row, removal)
        first_id, first_source = self._kept.get(row.key, ("", ""))
        merges = self._merges == "all" or (self._merges == "source" and first_source == row.source)
        if stage == "duplicates" and merges:
            self._add_responses(row, first_id, "num_merged")
        else:
            counts["num_rejected"] += len(row.responses)
        self._reject(stage, Reject(row.source, row.number, row.id, reason, detail))

    def _fault(self, row: Row, removal: Removal | None) -> tuple[str, str, str] | None:
        """The stage that takes a row away, its reason and one line of detail."""
        if removal is not None:
            detail = f"{removal.benchmark} {removal.item_id}: {removal.ngram}"
            return "overlap", "overlap", detail
        if row.key in self._kept:
            return "duplicates", "duplicate", f"of {self._kept[row.key][0]}"
        if self._need_gold and not row.is_judged:
            return "gold", "no_gold", "neither an answer nor tests"
        if 0 < row.num_tests < self._min_tests:
            return "tests", "few_tests", f"{row.num_tests} tests"
        return None

    def _reject(self, stage: str, reject: Reject) -> None:
        self.funnel.reject(reject.source, stage, reject.reason)
        self.rejects.add(asdict(reject))

    def _remove(self, row: Row, removal: Removal) -> None:
        counts = self._removed.setdefault(removal.benchmark, Counter())
        counts.update(num_removed=1, num_boilerplate=int(removal.is_boilerplate))
        place = {"source": row.source, "row": row.number, "id": row.id}
        found = asdict(removal)
        found["item"] = found.pop("item_id")
        self.removals.add(place | found)

    def _add_responses(self, row: Row, problem_id: str, word: str) -> None:
        counts = self._counts[row.source]
        for response in row.responses:
            name = _hash(f"{problem_id}\0{response.text}")
            if name in self._seen:
                counts["num_repeated"] += 1
                continue
            self._seen.add(name)
            counts[word] += 1
            sample = Sample(
                problem_id=problem_id,
                prompt=row.prompt,
                response=response.text,
                source=row.source,
                teacher=response.teacher,
                is_correct=response.is_correct,
                labelled_by=response.labelled_by,
            )
            self.responses.add(sample)

    def card(self, readers: list[SourceReader]) -> dict:
        """The counts; what readers, this pass and the files counted must agree."""
        card = self.funnel.card(
            num_read=sum(reader.num_read for reader in readers),
            num_kept=self.problems.num_rows,
            num_rejected=self.rejects.num_rows,
        )
        responses = {}
        for reader in readers:
            counts = self._counts.get(reader.name, Counter())
            fates = {f"num_{fate}": 0 for fate in ("kept", "merged", "repeated", "rejected")}
            fates = {name: counts[name] for name in fates}
            assert counts["num_given"] == sum(fates.values())
            assert card["sources"][reader.name]["num_read"] == reader.num_read
            dropped = dict(sorted(reader.num_dropped.items()))
            responses[reader.name] = {"num_given": counts["num_given"], **fates, "dropped": dropped}
        written = sum(row["num_kept"] + row["num_merged"] for row in responses.values())
        assert written == self.responses.num_rows
        removed = sum((counts for counts in self._removed.values()), Counter())
        assert removed["num_removed"] == self.removals.num_rows
        words = ("num_removed", "num_boilerplate")
        by_benchmark = {
            name: {word: counts[word] for word in words}
            for name, counts in sorted(self._removed.items())
        }
        return card | {
            "responses": responses,
            "overlap": {word: removed[word] for word in words} | {"benchmarks": by_benchmark},
            "licences": {name: dict(sorted(c.items())) for name, c in self._licences.items()},
        }


def _hash(text: str) -> int:
    # 64 bits: among ten million texts two meet by chance in one of 370,000 runs.
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def sha256_location(place: Path | None) -> str | None:
    """The sha256 of a file, or of the names and digests of all files of a folder; None for the hub.

    Raises:
        MissingAsset: nothing there.
    """
    if place is None:
        return None
    if place.is_file():
        return sha256_file(place)
    if not place.is_dir():
        raise MissingAsset(f"no file or folder at {place}: mend the location")
    files = sorted(file for file in place.rglob("*") if file.is_file())
    lines = [f"{file.relative_to(place).as_posix()} {sha256_file(file)}\n" for file in files]
    return sha256("".join(lines).encode()).hexdigest()


def _reader(item: dict, inputs: Mapping[str, Path]) -> SourceReader:
    options = {name: item[name] for name in _READER_OPTIONS if name in item}
    if "questions" in options:
        options["questions"] = {
            key: _location(item | {"location": place}, inputs)
            for key, place in options["questions"].items()
        }
    return read_source(item["name"], _location(item, inputs), **options)


def _benchmark_texts(item: dict, inputs: Mapping[str, Path]) -> list[tuple[str, str]]:
    place = _location(item, inputs)
    if item["name"] in SIZES:
        problems = read_benchmark(item["name"], place).problems
    elif place is None:
        raise KlearError(
            f"benchmark {item['name']!r} needs a location: only {', '.join(SIZES)} have one"
        )
    else:
        problems = iter_problems(place)
    return [(problem.id, problem.prompt) for problem in problems]


def _location(item: dict, inputs: Mapping[str, Path]) -> Path | None:
    place = item.get("location")
    if "input" not in item:
        return None if place is None else Path(place).expanduser()
    if item["input"] not in inputs:
        raise KlearError(f"{item['name']}: no input {item['input']!r}; inputs: {', '.join(inputs)}")
    return inputs[item["input"]] / (place or "")


def _check_names(names: list[str], fix: str) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise KlearError(f"{twice[0]!r} comes twice as {fix}")


def _check(
    sources: list[dict], benchmarks: list[dict], min_tests: int, merge_responses: str
) -> None:
    if not sources:
        raise KlearError("sources must name at least one data set")
    place = {"name", "location", "input"}
    for kind, items, known in (
        ("source", sources, place | _READER_OPTIONS),
        ("benchmark", benchmarks, place),
    ):
        for item in items:
            if "name" not in item or (wrong := set(item) - known):
                fault = f"has unknown {', '.join(sorted(wrong))}" if "name" in item else "no name"
                raise KlearError(f"a {kind} {fault}; it takes {', '.join(sorted(known))}: {item}")
    _check_names([benchmark["name"] for benchmark in benchmarks], "benchmark: name it once")
    if min_tests < 0:
        raise KlearError(f"min_tests must be at least 0, got {min_tests}")
    if merge_responses not in MERGES:
        raise KlearError(
            f"merge_responses must be one of {', '.join(MERGES)}, got {merge_responses!r}"
        )
