"""What happens to each row on its way into a training set: kept or rejected, written, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from klearlib.curation.duplicates import duplicate_digest
from klearlib.curation.funnel import Funnel
from klearlib.curation.overlap import Removal
from klearlib.data.lines import LineWriter, json_line
from klearlib.data.reader import Reject, SourceReader
from klearlib.data.tables import Sample, SampleWriter, read_samples
from klearlib.records import LabelledResponse, SourceRow

STAGES = ("adapter", "duplicates", "overlap", "gold", "tests")
PROBLEMS, RESPONSES, REJECTS, REMOVALS = FILES = (
    "problems.jsonl",
    "responses.parquet",
    "rejects.jsonl",
    "removals.jsonl",
)
PARTS = "parts"
"""Folder of what is written so far, a folder in it for each source."""


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


class Pass:
    """What one pass over the sources has seen, written and counted."""

    def __init__(self, need_gold: bool, min_tests: int, merge_responses: str):
        self.funnel = Funnel(STAGES)
        self.clean: set[int] = set()  # hashes of the prompts that are kept
        self.sources: dict[str, dict] = {}  # those that are read
        self.num_written: Counter[str] = Counter()  # rows by file
        self._need_gold, self._min_tests, self._merges = need_gold, min_tests, merge_responses
        self._kept: dict[bytes, tuple[str, str]] = {}  # key -> id and source
        self._seen: set[int] = set()  # hashes of the responses
        self._removed: dict[str, Counter] = {}  # by benchmark
        self._licences: dict[str, Counter] = {}
        self._counts: dict[str, Counter] = {}  # responses by source

    @contextmanager
    def writing(self, folder: Path) -> Iterator[None]:
        """Rows are taken into `FILES` of a folder, which are there when the block ends."""
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self._files = {name: stack.enter_context(_writer(folder / name)) for name in FILES}
            yield
        self.num_written.update({name: file.num_rows for name, file in self._files.items()})
        del self._files

    def finish(self, reader: SourceReader, sha256: str | None) -> None:
        """All rows of a source are taken; sha256: see `sha256_location`."""
        self.funnel.rejected.setdefault(reader.name, Counter())
        dropped = dict(sorted(reader.num_dropped.items()))
        self.sources[reader.name] = {
            "num_read": reader.num_read, "dropped": dropped, "sha256": sha256,
        }  # fmt: skip

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
            self._files[PROBLEMS].add_line(row.line)
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
        self._files[REJECTS].add(asdict(reject))

    def _remove(self, row: Row, removal: Removal) -> None:
        counts = self._removed.setdefault(removal.benchmark, Counter())
        counts.update(num_removed=1, num_boilerplate=int(removal.is_boilerplate))
        place = {"source": row.source, "row": row.number, "id": row.id}
        found = asdict(removal)
        found["item"] = found.pop("item_id")
        self._files[REMOVALS].add(place | found)

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
            self._files[RESPONSES].add(sample)

    def card(self) -> dict:
        """The counts; what readers, this pass and the files counted must agree."""
        card = self.funnel.card(
            num_read=sum(read["num_read"] for read in self.sources.values()),
            num_kept=self.num_written[PROBLEMS],
            num_rejected=self.num_written[REJECTS],
        )
        responses = {}
        for name, read in self.sources.items():
            counts = self._counts.get(name, Counter())
            fates = ("num_kept", "num_merged", "num_repeated", "num_rejected")
            fates = {fate: counts[fate] for fate in fates}
            assert counts["num_given"] == sum(fates.values())
            assert card["sources"][name]["num_read"] == read["num_read"]
            given = {"num_given": counts["num_given"]}
            responses[name] = given | fates | {"dropped": read["dropped"]}
        written = sum(row["num_kept"] + row["num_merged"] for row in responses.values())
        assert written == self.num_written[RESPONSES]
        removed = sum((counts for counts in self._removed.values()), Counter())
        assert removed["num_removed"] == self.num_written[REMOVALS]
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


def _writer(path: Path) -> LineWriter:
    return (SampleWriter if path.suffix == ".parquet" else LineWriter)(path)


def join(parts: Iterable[Path], folder: Path) -> None:
    """Each of `FILES` from its parts, in order; the bytes do not tell where one ended."""
    for name in FILES:
        with _writer(folder / name) as whole:
            for part in parts:
                if isinstance(whole, SampleWriter):
                    for sample in read_samples(part / name):
                        whole.add(sample)
                else:
                    with open(part / name, encoding="utf-8", newline="\n") as lines:
                        for line in lines:
                            whole.add_line(line)


def _hash(text: str) -> int:
    # 64 bits: among ten million texts two meet by chance in one of 370,000 runs.
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
