"""The verdict on the paper's absolute numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from klearlib.errors import KlearError
from klearlib.evaluate import scores
from klearlib.paper.schema import Claim, PaperNumber
from klearlib.report.comparisons import holm
from klearlib.report.verdicts import expect_kind, not_run, verdict


def decide_absolute(claim: Claim, measured: Mapping[str, np.ndarray], *, paper_scale: bool) -> dict:
    """The verdict on absolute numbers, at paper scale only; below it "not run".

    The noise of a difference from the paper is sampling noise with the problems fixed, ours and the
    paper's: the paper's per-problem rates are unknown, ours stand in with the paper's n. (Over 30
    problems a bootstrap would accept anything.)

    measured: the number's name in ``claims.yaml`` -> correct, bool [P, n].
    Raises ValueError for an unknown number or another number of problems than the paper's.
    """
    expect_kind(claim, "absolute")
    if not paper_scale:
        return not_run(claim, "absolute numbers are tested at paper scale only", "profile paper")
    numbers = {number.what: number for number in claim.paper}
    if set(measured) - set(numbers):
        raise KlearError(
            f"{claim.id}: expected numbers out of {list(numbers)}, got {list(measured)}"
        )
    if not measured:
        return not_run(claim, "none of its numbers was measured", "evaluate the final model")
    found = [_against_paper(claim, numbers[name], array) for name, array in measured.items()]
    for entry, p_holm in zip(found, holm([entry["p_holm"] for entry in found]), strict=True):
        entry["p_holm"] = p_holm
    rounding, alpha = claim.rule.numbers["rounding"], round(1 - claim.rule.numbers["level"], 12)
    off = [e["name"] for e in found if not e["low"] - rounding <= 0 <= e["high"] + rounding]
    far = [entry["name"] for entry in found if entry["p_holm"] < alpha]
    missing = [name for name in numbers if name not in measured]
    settle = None
    if far:
        word, reason = (
            "not reproduced",
            f"outside the noise of all numbers at once: {', '.join(far)}",
        )
    elif off or missing:
        word = "inconclusive"
        outside, absent = ", ".join(off) or "none", ", ".join(missing) or "none"
        reason = f"outside its own noise: {outside}; not measured: {absent}"
        settle = "more responses per problem for those, and all numbers"
    else:
        word, reason = "reproduced", "every number within its sampling noise of the paper's"
    texts = [_absolute_in_words(entry, numbers[entry["name"]]) for entry in found]
    return verdict(claim, word, reason, settle=settle, comparisons=found, measured="; ".join(texts))


def _against_paper(claim: Claim, number: PaperNumber, correct: np.ndarray) -> dict:
    """One number against the paper's, as a comparison; `p_holm` still holds the plain p-value."""
    from scipy.stats import norm

    level, rounding = claim.rule.numbers["level"], claim.rule.numbers["rounding"]
    difference = scores.avg_at_n(correct) - number.value
    num_problems, n = np.shape(correct)
    if number.num_problems not in (None, num_problems):
        raise KlearError(
            f"{claim.id}, {number.what}: expected {number.num_problems} problems, "
            f"got {num_problems}"
        )
    z = norm.isf((1 - level) / 2)
    ours = max(scores.sampling_error(correct), scores.unseen_rate(num_problems * n, level) / z)
    joint = ours * math.sqrt(1 + n / number.num_samples)
    return {
        "name": number.what,
        "difference": float(difference),
        "low": float(difference - z * joint),
        "high": float(difference + z * joint),
        "num_seeds": 1,
        "num_problems": num_problems,
        "p_holm": float(2 * norm.sf(max(0.0, abs(difference) - rounding) / joint)),
    }


def _absolute_in_words(entry: dict, number: PaperNumber) -> str:
    half = 100 * (entry["high"] - entry["difference"])
    ours, paper = 100 * (number.value + entry["difference"]), 100 * number.value
    size = f"{entry['num_problems']} problems"
    return f"{number.what}: {ours:.1f} against {paper:.1f}, joint noise {half:.1f} ({size})"
