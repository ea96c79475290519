"""How often a model solves each problem, and which problems are left by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.lines import read_lines, write_lines
from klearlib.data.problems import iter_problems, write_problems
from klearlib.errors import KlearError
from klearlib.records import NOT_JUDGED, Verdict
from klearlib.run.files import write_json

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

RATES, REJECTS = "pass_rates.jsonl", "rejects.jsonl"
TOO_FEW_JUDGED = "too many responses could not be judged"
EASY, HARD, UNKNOWN = "easy", "hard", "unknown"


@dataclass(frozen=True)
class PassRate:
    """What a model's n responses to one problem gave.

    `num_not_judged` of them could not be judged (``timeout``, ``judge_error``) and are among the
    wrong ones.
    """

    id: str
    num_responses: int
    num_correct: int
    num_not_judged: int

    @property
    def pass_rate(self) -> float:
        """Correct responses / responses: what the paper calls pass@16 where n is 16."""
        return self.num_correct / self.num_responses

    @property
    def highest_pass_rate(self) -> float:
        """What it could be if every response that could not be judged were right."""
        return (self.num_correct + self.num_not_judged) / self.num_responses


def pass_rate_of(problem_id: str, verdicts: Sequence[Verdict]) -> PassRate:
    """The pass rate of a problem with these verdicts on its n >= 1 responses."""
    return PassRate(
        id=problem_id,
        num_responses=len(verdicts),
        num_correct=sum(verdict.correct for verdict in verdicts),
        num_not_judged=sum(verdict.reason in NOT_JUDGED for verdict in verdicts),
    )


def read_pass_rates(path: Path) -> dict[str, PassRate]:
    """The pass rates in a file `RATES`, by problem id."""
    return rates_by_id(read_lines(path))


def rates_by_id(rows: Iterable[Mapping]) -> dict[str, PassRate]:
    """Rows with the fields of `PassRate` by problem id; published ones may have another field."""
    names = [each.name for each in fields(PassRate)]
    return {row["id"]: PassRate(*(row[name] for name in names)) for row in rows}


def difficulties(
    ids: Sequence[str], rates: Mapping[str, PassRate], *, easy_from: float
) -> list[str]:
    """``easy`` or ``hard`` for each problem, by the reference model's pass rate (5.1.1).

    A problem is easy where its pass rate is at least `easy_from`, in (0, 1], and hard where it is
    below even if every response that could not be judged were right; between the two it is
    ``unknown``. The paper has its problems annotated by a model and prints no threshold.
    """
    maybe = {False: HARD, True: UNKNOWN}
    return [
        EASY if rate.pass_rate >= easy_from else maybe[rate.highest_pass_rate >= easy_from]
        for rate in (rates[name] for name in ids)
    ]


def rejected_by_pass_rate(
    ids: Sequence[str], rates: Mapping[str, PassRate], *, threshold: float, keep_equal: bool
) -> list[str]:
    """For each problem why it is dropped, "" where a teacher's pass rate is high enough to trust
    its tests (5.2.4).

    The paper keeps pass@16 > 0.5 in its text and >= 0.5 in the caption of Fig. 4: `keep_equal`
    False is the text. A problem whose tests are flawed fails right programs, so a good teacher's
    low pass rate points to it, or to a problem that is too hard for the teacher. One that would be
    kept if the responses that could not be judged were right is dropped as `TOO_FEW_JUDGED`: the
    judge's failures are not its fault.

    >>> rates = {"a": PassRate("a", 16, 8, 0), "b": PassRate("b", 16, 9, 0)}
    >>> rejected_by_pass_rate(["a", "b"], rates, threshold=0.5, keep_equal=False)
    ['pass rate not above threshold', '']
    """

    def keeps(rate: float) -> bool:
        return rate > threshold or (keep_equal and rate == threshold)

    below = f"pass rate {'below' if keep_equal else 'not above'} threshold"
    return [
        "" if keeps(rate.pass_rate) else TOO_FEW_JUDGED if keeps(rate.highest_pass_rate) else below
        for rate in (rates[name] for name in ids)
    ]


def keep_by_pass_rate(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    threshold: float,
    keep_equal: bool,
    problems: str = "train.jsonl",
) -> None:
    """Stage ``test_filter``: those problems of the file `problems` of ``inputs["world"]`` whose
    pass rate in ``inputs["pass_rates"]`` is above `threshold`.

    With 0.5 it is the filter for code of 5.2.4 and the majority filter for mathematics of 3.2.1.
    Writes train.jsonl (kept, in the old order), rejects.jsonl (id, reason, pass rate) and
    card.json, whose counts add up. Raises KlearError where no problem is left.
    """
    rates = read_pass_rates(inputs["pass_rates"] / RATES)
    read = list(iter_problems(inputs["world"] / problems))
    ids = [problem.id for problem in read]
    reasons = rejected_by_pass_rate(ids, rates, threshold=threshold, keep_equal=keep_equal)
    chosen = [problem for problem, reason in zip(read, reasons, strict=True) if not reason]
    if not chosen:
        raise KlearError(
            f"no problem has a pass rate above {threshold}: lower the threshold or train the "
            "teacher longer"
        )
    write_problems(chosen, folder.path / "train.jsonl")
    rejects = (
        {"id": name, "reason": reason, "pass_rate": rates[name].pass_rate}
        for name, reason in zip(ids, reasons, strict=True)
        if reason
    )
    num_rejected = write_lines(rejects, folder.path / REJECTS)
    card = {
        "num_read": len(read),
        "num_kept": len(chosen),
        "num_rejected": num_rejected,
        "num_responses_not_judged": sum(rates[name].num_not_judged for name in ids),
        "threshold": threshold,
        "keep_equal": keep_equal,
    }
    write_json(folder.path / "card.json", card)
