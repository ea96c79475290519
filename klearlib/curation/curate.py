"""From raw data sets to problems and responses that may be trained on, in one streamed pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.funnel import funnel
from klearlib.curation.normalise import duplicate_digest
from klearlib.curation.overlap import KNOWN_TEMPLATES, OverlapIndex
from klearlib.data.benchmarks import SIZES, read_benchmark
from klearlib.data.lines import LineWriter
from klearlib.data.problems import iter_problems
from klearlib.data.reader import Reject, SourceReader
from klearlib.data.sources import read_source
from klearlib.data.tables import Sample, SampleWriter
from klearlib.errors import KlearError, Stopped
from klearlib.records import SourceRow
from klearlib.run.files import write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

STAGES = ("adapter", "duplicates", "overlap", "gold", "tests")
PROBLEMS, RESPONSES, REJECTS, REMOVALS = FILES = (
    "problems.jsonl",
    "responses.parquet",
    "rejects.jsonl",
    "removals.jsonl",
)
_LOOK_EVERY = 1000  # rows between two looks at a stop that was asked for


def curate(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    sources: list[dict],
    benchmarks: list[dict],
    ngram_words: int,
    templates: list[str],
    stop_more_than: int | None,
    need_gold: bool,
    min_tests: int,
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
    order of sources or rows. Duplicates in its own source give it their responses, but for those
    that it has already, character by character.

    Writes `FILES` (the problems; their responses with the labels of the sources; a `Reject` for
    each other row; a row for each removal by overlap) and card.json: counts for each source and
    stage, which add up; removals by benchmark and those due to boilerplate; licences. Rows are
    streamed: in memory are some hundred bytes for each problem that is kept, and hashes of
    responses. A run that was stopped or killed starts anew.

    Args:
        sources: in order of preference, each ``{"name": ..., "input": ..., "location": ...}``,
            where the location is inside of the upstream stage of that name, and, where wanted, the
            other arguments of `read_source` but a window.
        benchmarks: each ``{"name": ..., "input": ..., "location": ...}``: one of `benchmarks.SIZES`
            or, under any other name, a file of problems.
        ngram_words, stop_more_than: n and stop list of `OverlapIndex`.
        templates: texts that are cut out of items and prompts, besides `overlap.KNOWN_TEMPLATES`.

    Raises:
        Stopped: a stop was asked for.
        KlearError: a source or benchmark that cannot be read, no problem left.
    """
    index = OverlapIndex(
        {item["name"]: _benchmark_texts(item, inputs) for item in benchmarks},
        n=ngram_words,
        templates=[*templates, *KNOWN_TEMPLATES],
        stop_more_than=stop_more_than,
    )
    readers = {reader.name: reader for reader in (_reader(item, inputs) for item in sources)}
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(
                (SampleWriter if name == RESPONSES else LineWriter)(folder.path / name)
            )
            for name in FILES
        }
        kept = _Pass(files, index, need_gold, min_tests)
        for done, reader in enumerate(readers.values()):
            for number, row in enumerate(reader.account()):
                kept.take(number, row)
                if number % _LOOK_EVERY == 0:
                    folder.progress(done, len(readers), f"{reader.name}: {number} rows")
                    if folder.stop_requested:
                        raise Stopped(f"stopped in {reader.name}; run again to start anew")
        if not files[PROBLEMS].num_rows:
            raise KlearError("no problem is left: check the sources, or lower min_tests")
    folder.progress(len(readers), len(readers))
    card = kept.card(readers)
    card["overlap"] |= {"num_items": index.num_items, "num_ngrams": index.num_ngrams}
    card["overlap"]["num_stopped"] = index.num_stopped
    write_json(folder.path / "card.json", card)


class _Pass:
    """What one pass over the sources has seen, written and counted."""

    def __init__(
        self,
        files: dict[str, LineWriter],
        index: OverlapIndex,
        need_gold: bool,
        min_tests: int,
    ):
        self._files, self._index = files, index
        self._need_gold, self._min_tests = need_gold, min_tests
        self._kept: dict[bytes, tuple[str, str]] = {}  # duplicate digest -> id and source
        self._seen: set[bytes] = set()  # hashes of the responses
        self._fates: Counter[tuple[str, str, str]] = Counter()  # rows by source, stage, reason
        self._responses: dict[str, Counter] = {}  # of each source by fate
        self._removed: dict[str, Counter] = {}  # of each benchmark
        self._licences: dict[str, Counter] = {}  # of each source's kept rows

    def take(self, number: int, row: SourceRow | Reject) -> None:
        """Keep or reject the row of this number in its source."""
        if isinstance(row, Reject):
            self._reject("adapter", row)
            return
        problem, source = row.problem, row.problem.source
        key, removal = duplicate_digest(problem.prompt), self._index.removal(problem.prompt)
        num_tests, first_id, fate = len(problem.tests), "", "num_rejected"
        if removal is not None:
            counts = self._removed.setdefault(removal.benchmark, Counter())
            counts.update(num_removed=1, num_boilerplate=int(removal.is_boilerplate))
            place = {"source": source, "row": number, "id": problem.id} | asdict(removal)
            self._files[REMOVALS].add(place | {"item": place.pop("item_id")})
            stage = reason = "overlap"
            detail = f"{removal.benchmark} {removal.item_id}: {removal.ngram}"
        elif key in self._kept:
            first_id, first_source = self._kept[key]
            fate = "num_merged" if first_source == source else fate
            stage, reason, detail = "duplicates", "duplicate", f"of {first_id}"
        elif self._need_gold and not num_tests and problem.answer is None:
            stage, reason, detail = "gold", "no_gold", "neither an answer nor tests"
        elif 0 < num_tests < self._min_tests:
            stage, reason, detail = "tests", "few_tests", f"{num_tests} tests"
        else:
            self._fates[source, "", ""] += 1
            self._kept[key] = (problem.id, source)
            self._licences.setdefault(source, Counter())[row.licence] += 1
            self._files[PROBLEMS].add(asdict(problem))
            self._add_responses(row, problem.id, "num_kept")
            return
        self._add_responses(row, first_id, fate)
        self._reject(stage, Reject(source, number, problem.id, reason, detail))

    def _reject(self, stage: str, reject: Reject) -> None:
        self._fates[reject.source, stage, reject.reason] += 1
        self._files[REJECTS].add(asdict(reject))

    def _add_responses(self, row: SourceRow, problem_id: str, fate: str) -> None:
        source = row.problem.source
        counts = self._responses.setdefault(source, Counter())
        for response in row.responses:
            # 64 bits: among ten million texts two meet by chance in one of 370,000 runs.
            name = blake2b(f"{problem_id}\0{response.text}".encode(), digest_size=8).digest()
            is_new = fate == "num_rejected" or name not in self._seen
            counts[fate if is_new else "num_repeated"] += 1
            if fate == "num_rejected" or not is_new:
                continue
            self._seen.add(name)
            sample = Sample(
                problem_id=problem_id,
                prompt=row.problem.prompt,
                response=response.text,
                source=source,
                teacher=response.teacher,
                is_correct=response.is_correct,
            )
            self._files[RESPONSES].add(sample)

    def card(self, readers: Mapping[str, SourceReader]) -> dict:
        """The counts of the card."""
        card = funnel(self._fates, STAGES, readers)
        responses = {}
        for name, reader in readers.items():
            counts = self._responses.get(name, Counter())
            fates = ("num_kept", "num_merged", "num_repeated", "num_rejected")
            responses[name] = {fate: counts[fate] for fate in fates}
            responses[name] |= {"num_given": counts.total(), "dropped": dict(reader.num_dropped)}
        removed = {name: dict(counts) for name, counts in self._removed.items()}
        totals = {
            word: sum(counts[word] for counts in removed.values())
            for word in ("num_removed", "num_boilerplate")
        }
        return card | {
            "responses": responses,
            "overlap": totals | {"benchmarks": removed},
            "licences": {name: dict(counts) for name, counts in self._licences.items()},
        }


def _reader(item: dict, inputs: Mapping[str, Path]) -> SourceReader:
    options = {key: item[key] for key in item.keys() - {"name", "location", "input"}}
    return read_source(item["name"], inputs[item["input"]] / item["location"], **options)


def _benchmark_texts(item: dict, inputs: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    place = inputs[item["input"]] / item["location"]
    if item["name"] in SIZES:
        problems = read_benchmark(item["name"], place).problems
    else:
        problems = iter_problems(place)
    return ((problem.id, problem.prompt) for problem in problems)
