"""Which problems are left to train on, and why the others are not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.pass_rates import RATES, PassRate, read_pass_rates
from klearlib.data.problems import iter_problems, write_problems
from klearlib.errors import KlearError
from klearlib.run.files import write_json, write_text

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

REJECTS = "rejects.jsonl"
TOO_FEW_JUDGED = "too many responses could not be judged"


def kept_by_pass_rate(
    ids: Sequence[str], rates: Mapping[str, PassRate], *, threshold: float, keep_equal: bool
) -> list[bool]:
    """For each problem, whether a teacher's pass rate is high enough to trust its tests (5.2.4).

    The paper keeps pass@16 > 0.5 in its text and >= 0.5 in the caption of Fig. 4: `keep_equal`
    False is the text. A problem whose tests are flawed fails right programs, so a good teacher's
    low pass rate points to it, or to a problem that is too hard for the teacher.

    Args:
        threshold: in [0, 1].

    Raises:
        ValueError: a threshold out of range, or a problem without a pass rate.

    >>> rates = {"a": PassRate("a", 16, 8, 0), "b": PassRate("b", 16, 9, 0)}
    >>> kept_by_pass_rate(["a", "b"], rates, threshold=0.5, keep_equal=False)
    [False, True]
    """
    reasons = rejected_by_pass_rate(ids, rates, threshold=threshold, keep_equal=keep_equal)
    return [not reason for reason in reasons]


def rejected_by_pass_rate(
    ids: Sequence[str], rates: Mapping[str, PassRate], *, threshold: float, keep_equal: bool
) -> list[str]:
    """For each problem why `kept_by_pass_rate` drops it, "" where it keeps it.

    A problem that would be kept if the responses that could not be judged were right is dropped as
    `TOO_FEW_JUDGED`: the judge's failures are not its fault.

    >>> rates = {"a": PassRate("a", 4, 0, 0), "b": PassRate("b", 4, 2, 1)}
    >>> rejected_by_pass_rate(["a", "b"], rates, threshold=0.5, keep_equal=False)
    ['pass rate not above threshold', 'too many responses could not be judged']
    """
    if not 0 <= threshold <= 1:
        raise KlearError(f"threshold must be in [0, 1], got {threshold}")
    found = rates_of(ids, rates)
    below = f"pass rate {'below' if keep_equal else 'not above'} threshold"
    return [
        ""
        if _is_kept(rate.pass_rate, threshold, keep_equal)
        else TOO_FEW_JUDGED
        if _is_kept(rate.highest_pass_rate, threshold, keep_equal)
        else below
        for rate in found
    ]


def rates_of(ids: Sequence[str], rates: Mapping[str, PassRate]) -> list[PassRate]:
    """The pass rate of each problem.

    Raises:
        KlearError: a problem without one: it would drop out in silence.
    """
    missing = [name for name in ids if name not in rates]
    if missing:
        raise KlearError(
            f"{len(missing)} problems have no pass rate, the first is {missing[0]!r}: "
            "measure them with the same problem file"
        )
    return [rates[name] for name in ids]


def _is_kept(rate: float, threshold: float, keep_equal: bool) -> bool:
    return rate > threshold or (keep_equal and rate == threshold)


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
    Writes train.jsonl (kept, in the old order), rejects.jsonl (id, reason, pass rate) and card.json
    (counts; kept and rejected add up to the problems read).

    Args:
        problems: a file of `klearlib.data.problems`.

    Raises:
        KlearError: no problem is left.
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
    rejects = [
        {"id": name, "reason": reason, "pass_rate": rates[name].pass_rate}
        for name, reason in zip(ids, reasons, strict=True)
        if reason
    ]
    write_text(folder.path / REJECTS, "".join(json.dumps(row) + "\n" for row in rejects))
    assert len(chosen) + len(rejects) == len(read)
    write_json(
        folder.path / "card.json",
        {
            "num_read": len(read),
            "num_kept": len(chosen),
            "num_rejected": len(rejects),
            "num_responses_not_judged": sum(rates[name].num_not_judged for name in ids),
            "threshold": threshold,
            "keep_equal": keep_equal,
        },
    )
