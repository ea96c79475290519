"""What happens to each row on its way into a training set: kept or rejected, written, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

from klearlib.curation.duplicates import duplicate_digest
from klearlib.curation.funnel import funnel
from klearlib.curation.overlap import Removal
from klearlib.data.lines import LineWriter
from klearlib.data.reader import Reject, SourceReader
from klearlib.data.tables import Sample, SampleWriter
from klearlib.records import SourceRow

STAGES = ("adapter", "duplicates", "overlap", "gold", "tests")
PROBLEMS, RESPONSES, REJECTS, REMOVALS = FILES = (
    "problems.jsonl",
    "responses.parquet",
    "rejects.jsonl",
    "removals.jsonl",
)
_FATES = ("num_kept", "num_merged", "num_repeated", "num_rejected")  # of responses
_REMOVED = ("num_removed", "num_boilerplate")


def writer_of(path: Path) -> LineWriter:
    """What writes one of `FILES`."""
    return (SampleWriter if path.suffix == ".parquet" else LineWriter)(path)


def text_hash(text: str) -> int:
    """64 bits: among ten million texts two meet by chance in one of 370,000 runs."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


class Pass:
    """What one pass over the sources has seen, written and counted.

    files: an open writer for each of `FILES`. Attributes: `clean` (hashes of the prompts that are
    kept), `licences` (of each source's kept rows).
    """

    def __init__(
        self,
        files: dict[str, LineWriter],
        *,
        need_gold: bool,
        min_tests: int,
        merge_responses: str,
    ):
        self.clean: set[int] = set()
        self._files = files
        self._need_gold, self._min_tests, self._merges = need_gold, min_tests, merge_responses
        self._kept: dict[bytes, tuple[str, str]] = {}  # duplicate digest -> id and source
        self._seen: set[int] = set()  # hashes of the responses
        self._fates: Counter[tuple[str, str, str]] = Counter()  # rows by source, stage, reason
        self._responses: Counter[tuple[str, str]] = Counter()  # by source and fate
        self._removed: Counter[tuple[str, str]] = Counter()  # by benchmark and what is counted
        self._licences: dict[str, Counter] = {}

    def take(self, number: int, row: SourceRow | Reject, removal: Removal | None) -> None:
        """Keep or reject the row of this number in its source."""
        if isinstance(row, Reject):
            self._reject("adapter", row)
            return
        problem, source = row.problem, row.problem.source
        self._responses[source, "num_given"] += len(row.responses)
        key = duplicate_digest(problem.prompt)
        fault = self._fault(row, key, removal)
        if fault is None:
            self._fates[source, "", ""] += 1
            self.clean.add(text_hash(problem.prompt))
            self._kept[key] = (problem.id, source)
            self._licences.setdefault(source, Counter())[row.licence] += 1
            self._files[PROBLEMS].add(asdict(problem))
            self._add_responses(row, problem.id, "num_kept")
            return
        stage, reason, detail = fault
        if removal is not None:
            self._removed[removal.benchmark, "num_removed"] += 1
            self._removed[removal.benchmark, "num_boilerplate"] += removal.is_boilerplate
            place = {"source": source, "row": number, "id": problem.id} | asdict(removal)
            self._files[REMOVALS].add(place | {"item": place.pop("item_id")})
        first_id, first_source = self._kept.get(key, ("", ""))
        merges = self._merges == "all" or (self._merges == "source" and first_source == source)
        if stage == "duplicates" and merges:
            self._add_responses(row, first_id, "num_merged")
        else:
            self._responses[source, "num_rejected"] += len(row.responses)
        self._reject(stage, Reject(source, number, problem.id, reason, detail))

    def _fault(
        self, row: SourceRow, key: bytes, removal: Removal | None
    ) -> tuple[str, str, str] | None:
        """The stage that takes a row away, its reason and one line of detail."""
        problem, num_tests = row.problem, len(row.problem.tests)
        if removal is not None:
            detail = f"{removal.benchmark} {removal.item_id}: {removal.ngram}"
            return "overlap", "overlap", detail
        if key in self._kept:
            return "duplicates", "duplicate", f"of {self._kept[key][0]}"
        if self._need_gold and not num_tests and problem.answer is None:
            return "gold", "no_gold", "neither an answer nor tests"
        if 0 < num_tests < self._min_tests:
            return "tests", "few_tests", f"{num_tests} tests"
        return None

    def _reject(self, stage: str, reject: Reject) -> None:
        self._fates[reject.source, stage, reject.reason] += 1
        self._files[REJECTS].add(asdict(reject))

    def _add_responses(self, row: SourceRow, problem_id: str, fate: str) -> None:
        source = row.problem.source
        for response in row.responses:
            name = text_hash(f"{problem_id}\0{response.text}")
            self._responses[source, "num_repeated" if name in self._seen else fate] += 1
            if name in self._seen:
                continue
            self._seen.add(name)
            sample = Sample(
                problem_id=problem_id,
                prompt=row.problem.prompt,
                response=response.text,
                source=source,
                teacher=response.teacher,
                is_correct=response.is_correct,
                labelled_by=response.labelled_by,
            )
            self._files[RESPONSES].add(sample)

    def card(self, readers: list[SourceReader]) -> dict:
        """The counts; what the readers, this pass and the files counted must agree."""
        card = funnel(self._fates, STAGES, [reader.name for reader in readers])
        responses = {}
        for reader in readers:
            assert card["sources"][reader.name]["num_read"] == reader.num_read
            fates = {fate: self._responses[reader.name, fate] for fate in _FATES}
            num_given = self._responses[reader.name, "num_given"]
            assert num_given == sum(fates.values())
            fates |= {"num_given": num_given, "dropped": dict(reader.num_dropped)}
            responses[reader.name] = fates
        num_written = sum(row["num_kept"] + row["num_merged"] for row in responses.values())
        removed = {
            benchmark: {word: self._removed[benchmark, word] for word in _REMOVED}
            for benchmark, _ in self._removed
        }
        totals = {word: sum(counts[word] for counts in removed.values()) for word in _REMOVED}
        num_rows = {name: file.num_rows for name, file in self._files.items()}
        assert num_rows == {
            PROBLEMS: card["num_kept"],
            RESPONSES: num_written,
            REJECTS: card["num_rejected"],
            REMOVALS: totals["num_removed"],
        }
        return card | {
            "responses": responses,
            "overlap": totals | {"benchmarks": removed},
            "licences": {name: dict(counts) for name, counts in self._licences.items()},
        }
