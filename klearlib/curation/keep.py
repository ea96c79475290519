"""What happens to each row on its way into a training set: kept or rejected, written, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

from klearlib.curation.duplicates import duplicate_digest
from klearlib.curation.funnel import Funnel
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
        self._funnel = Funnel(STAGES)
        self._kept: dict[bytes, tuple[str, str]] = {}  # duplicate digest -> id and source
        self._seen: set[int] = set()  # hashes of the responses
        self._removed: dict[str, Counter] = {}  # by benchmark
        self._licences: dict[str, Counter] = {}
        self._counts: dict[str, Counter] = {}  # responses by source

    def take(self, number: int, row: SourceRow | Reject, removal: Removal | None) -> None:
        """Keep or reject the row of this number in its source."""
        if isinstance(row, Reject):
            self._reject("adapter", row)
            return
        problem, source = row.problem, row.problem.source
        counts = self._counts.setdefault(source, Counter())
        counts["num_given"] += len(row.responses)
        key = duplicate_digest(problem.prompt)
        fault = self._fault(row, key, removal)
        if fault is None:
            self._funnel.keep(source)
            self.clean.add(text_hash(problem.prompt))
            self._kept[key] = (problem.id, source)
            self._licences.setdefault(source, Counter())[row.licence] += 1
            self._files[PROBLEMS].add(asdict(problem))
            self._add_responses(row, problem.id, "num_kept")
            return
        stage, reason, detail = fault
        if removal is not None:
            found = self._removed.setdefault(removal.benchmark, Counter())
            found.update(num_removed=1, num_boilerplate=int(removal.is_boilerplate))
            place = {"source": source, "row": number, "id": problem.id} | asdict(removal)
            self._files[REMOVALS].add(place | {"item": place.pop("item_id")})
        first_id, first_source = self._kept.get(key, ("", ""))
        merges = self._merges == "all" or (self._merges == "source" and first_source == source)
        if stage == "duplicates" and merges:
            self._add_responses(row, first_id, "num_merged")
        else:
            counts["num_rejected"] += len(row.responses)
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
        self._funnel.reject(reject.source, stage, reject.reason)
        self._files[REJECTS].add(asdict(reject))

    def _add_responses(self, row: SourceRow, problem_id: str, fate: str) -> None:
        counts = self._counts[row.problem.source]
        for response in row.responses:
            name = text_hash(f"{problem_id}\0{response.text}")
            counts["num_repeated" if name in self._seen else fate] += 1
            if name in self._seen:
                continue
            self._seen.add(name)
            sample = Sample(
                problem_id=problem_id,
                prompt=row.problem.prompt,
                response=response.text,
                source=row.problem.source,
                teacher=response.teacher,
                is_correct=response.is_correct,
                labelled_by=response.labelled_by,
            )
            self._files[RESPONSES].add(sample)

    def card(self, readers: list[SourceReader]) -> dict:
        """The counts; what the readers, this pass and the files counted must agree."""
        for reader in readers:
            self._funnel.rejected.setdefault(reader.name, Counter())
        card = self._funnel.card(
            num_read=sum(reader.num_read for reader in readers),
            num_kept=self._files[PROBLEMS].num_rows,
            num_rejected=self._files[REJECTS].num_rows,
        )
        responses = {}
        for reader in readers:
            counts = self._counts.get(reader.name, Counter())
            fates = {fate: counts[fate] for fate in _FATES}
            assert counts["num_given"] == sum(fates.values())
            assert card["sources"][reader.name]["num_read"] == reader.num_read
            dropped = dict(sorted(reader.num_dropped.items()))
            given = {"num_given": counts["num_given"]}
            responses[reader.name] = given | fates | {"dropped": dropped}
        written = sum(row["num_kept"] + row["num_merged"] for row in responses.values())
        assert written == self._files[RESPONSES].num_rows
        removed = sum((counts for counts in self._removed.values()), Counter())
        assert removed["num_removed"] == self._files[REMOVALS].num_rows
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
