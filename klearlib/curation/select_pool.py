"""The responses that an arm may choose from, and the filters that take some of them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from klearlib.curation.difficulty import difficulties
from klearlib.curation.filters import rejected_by_pass_rate
from klearlib.curation.funnel import Funnel
from klearlib.curation.labels import labelled
from klearlib.curation.pass_rates import PassRate
from klearlib.data.lines import LineWriter
from klearlib.data.tables import (
    SAMPLES,
    Sample,
    TableWriter,
    count_rows,
    read_samples,
    sample_row,
)
from klearlib.errors import KlearError
from klearlib.records import NOT_JUDGED, Verdict
from klearlib.verify.answers import REASONS

EXAMPLES, REJECTED = "examples.parquet", "rejects.jsonl"
STAGES = ("sources", "difficulty", "pass_rate", "correctness", "max_responses", "coverage")
TEXTS = ("prompt", "response", "both")

Taken = Iterator[tuple[int, str, str]]
"""Places in the table, with a reason and a detail."""


class Pool:
    """The responses of a table with what was found out about each, a byte for each response.

    rejected: 0 for those that are left, else 1 + the place of (stage, reason, detail) in `reasons`.
    verdicts: 0 for no verdict of this stage's, else 1 + the place of its word in `REASONS`.
    """

    def __init__(self, table: Path):
        self.table = table
        num_rows = count_rows(table)
        self.rejected, self.verdicts = bytearray(num_rows), bytearray(num_rows)
        self.reasons: list[tuple[str, str, str]] = []

    def __iter__(self) -> Iterator[tuple[int, Sample]]:
        """The responses that are left, labelled, with their places in the table."""
        return ((place, sample) for place, sample in self.all() if not self.rejected[place])

    def all(self) -> Iterator[tuple[int, Sample]]:
        """The same of all responses."""
        for place, sample in enumerate(read_samples(self.table)):
            if word := self.verdicts[place]:
                reason = REASONS[word - 1]
                sample = labelled(sample, Verdict(reason == "correct", reason))
            yield place, sample

    def reject(self, stage: str, taken: Taken) -> None:
        """Take out what a filter names, as it comes."""
        for place, reason, detail in taken:
            word = (stage, reason, detail)
            if word not in self.reasons:
                self.reasons.append(word)
                assert len(self.reasons) < 256, "reasons and details are a few words"
            assert not self.rejected[place]
            self.rejected[place] = 1 + self.reasons.index(word)

    def write(self, path: Path) -> dict:
        """Write examples and rejects; the counts of the card."""
        funnel, labels, teachers = Funnel(STAGES), Counter(), Counter()
        with (
            TableWriter(path / EXAMPLES, SAMPLES) as examples,
            LineWriter(path / REJECTED) as rejects,
        ):
            for place, sample in self.all():
                if not (code := self.rejected[place]):
                    funnel.keep(sample.source)
                    labels[label_word(sample)] += 1
                    teachers[sample.teacher] += 1
                    examples.add(sample_row(sample))
                    continue
                stage, reason, detail = self.reasons[code - 1]
                funnel.reject(sample.source, stage, reason)
                rejects.add(
                    {
                        "source": sample.source,
                        "row": place,
                        "id": sample.problem_id,
                        "reason": reason,
                        "detail": detail,
                    }
                )
        if not examples.num_rows:
            raise KlearError("no response passes the filters: loosen them, or sample more of them")
        counts = funnel.card(
            num_read=len(self.rejected), num_kept=examples.num_rows, num_rejected=rejects.num_rows
        )
        return counts | {"labels": dict(sorted(labels.items())), "teachers": dict(teachers)}


def by_source(pool: Pool, sources: list[str] | None) -> Taken:
    """What is of no source in `sources`; None for all.

    Raises:
        KlearError: at the end, a source of which there is no response.
    """
    found = set()
    for place, sample in pool:
        found.add(sample.source)
        if sources is not None and sample.source not in sources:
            yield place, "another source", ""
    if missing := sorted(set(sources or ()) - found):
        raise KlearError(
            f"no response is to a problem of {', '.join(missing)}; sources that there are: "
            f"{', '.join(sorted(found)) or 'none'}"
        )


def by_difficulty(
    pool: Pool, rates: Mapping[str, PassRate], difficulty: str, easy_from: float
) -> Taken:
    """What is to a problem of another difficulty, or of an unknown one."""
    for place, sample in pool:
        (found,) = difficulties([sample.problem_id], rates, easy_from=easy_from)
        if found != difficulty:
            yield place, f"not {difficulty}", found


def by_pass_rate(pool: Pool, rates: Mapping[str, PassRate], rule: dict) -> Taken:
    """What is to a problem that `filters.rejected_by_pass_rate` drops by `rule`."""
    for place, sample in pool:
        (reason,) = rejected_by_pass_rate([sample.problem_id], rates, **rule)
        if reason:
            yield place, reason, ""


def by_label(pool: Pool) -> Taken:
    for place, sample in pool:
        if sample.is_correct is None:
            yield place, label_word(sample), sample.reason
        elif not sample.is_correct:
            yield place, "wrong", sample.reason or "label of the source"


def label_word(sample: Sample) -> str:
    """``correct``, ``wrong``, ``not judged`` (the judge's failure) or ``no label``."""
    if sample.is_correct is None:
        return "not judged" if sample.reason in NOT_JUDGED else "no label"
    return "correct" if sample.is_correct else "wrong"


def beyond(pool: Pool, most: int) -> Taken:
    """What comes after the first `most` responses to a problem."""
    taken: Counter = Counter()
    for place, sample in pool:
        if taken[sample.problem_id] == most:
            yield place, "enough responses to the problem", ""
        else:
            taken[sample.problem_id] += 1


@dataclass(frozen=True)
class Texts:
    """The texts of the responses that are left, read anew in each pass; `kind` is of `TEXTS`."""

    pool: Pool
    kind: str

    def __iter__(self) -> Iterator[str]:
        for _, sample in self.pool:
            both = (sample.prompt, sample.response)
            yield "\n".join(both) if self.kind == "both" else both[TEXTS.index(self.kind)]
