"""The rules of claims that compare no arms: exact mathematics (C14), stability (C3) and absolute
numbers (C13). `klearlib.report.verdicts` calls them by the kind of a claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from klearlib.errors import KlearError
from klearlib.evaluate import scores, statistics
from klearlib.evaluate.statistics import holm
from klearlib.paper.schema import Claim, PaperNumber
from klearlib.report.section import AT_PAPER, Comparison, Verdict
from klearlib.report.style import series_style


def decide_mechanism(claim: Claim, max_error: float, *, paper_scale: bool = False) -> Verdict:
    """ "reproduced" if `max_error`, the largest absolute error that the demonstration found, is
    within the rule's tolerance, else (also for NaN) "not reproduced"; the scale plays no part."""
    assert claim.kind == "mechanism", claim.id
    error, tolerance = f"largest error {max_error:.2g}", claim.rule.numbers["tolerance"]
    measured = f"{error} (tolerance {tolerance:g})"
    if max_error <= tolerance:
        return Verdict(
            claim.id, (), measured, f"{error}, at most {tolerance:g}", None, "reproduced"
        )
    settle = "find the case with the largest error and fix the code"
    reason = f"{error}, not within {tolerance:g}"
    return Verdict(claim.id, (), measured, reason, settle, "not reproduced")


def decide_stability(
    claim: Claim,
    runs: tuple[Mapping[str, Sequence[Sequence[float]]], Mapping[str, Sequence[float]]],
    *,
    paper_scale: bool,
) -> Verdict:
    """The verdict on "all arms train stably" from the gradient norms before clipping and the falls
    of the scores.

    runs: arm -> one sequence per seed, one norm per RL step, the mean over its updates; steps
    without an update are left out by the caller, NaN and infinity are kept: they are the finding.
    And arm -> for each seed its last score less its first.
    """
    grad_norms, score_changes = runs
    assert claim.kind == "trend" and {*grad_norms} <= {*claim.arms}, claim.id
    rule = claim.rule.numbers
    broken, short, out_of_band, texts = [], [], [], []
    for arm, by_seed in grad_norms.items():
        label = series_style(arm).label
        norms = [np.asarray(run, dtype=float) for run in by_seed]
        assert norms and all(run.size for run in norms), arm
        finite = all(np.isfinite(run).all() for run in norms)
        steps = min(run.size for run in norms)
        share = min(_share_below(run, rule["median_factor"]) for run in norms)
        pooled = np.concatenate(norms)
        in_band = float(((pooled >= rule["band_low"]) & (pooled <= rule["band_high"])).mean())
        moved = all(np.median(run[: (run.size + 1) // 2]) > 0 for run in norms) or not finite
        seeds = paper_scale or len(norms) >= rule["min_seeds"]
        enough = moved and seeds and steps >= rule["min_steps"]
        drop = -min(score_changes[arm])
        if not finite or (enough and share < rule["min_share_below"]):
            broken.append(label)
        elif enough and drop > rule["max_score_drop"]:
            broken.append(f"{label} (its score fell by {100 * drop:.1f} points)")
        elif not enough:
            short.append(label)
        if in_band < rule["min_share_in_band"]:
            out_of_band.append(label)
        spikes = f"{100 * share:.1f} % below the limit" if finite else "norms that are not finite"
        known = pooled[np.isfinite(pooled)]
        median = f"median {np.median(known):.3f}" if known.size else "no finite norm"
        texts.append(f"{label}: {spikes}, {median} ({len(norms)} seeds x {steps} steps)")
    missing = [series_style(arm).label for arm in claim.arms if arm not in grad_norms]
    settle = None
    if broken:
        word, reason = statistics.CONTRADICTED, f"not stable: {', '.join(broken)}"
    elif missing or short:
        word = statistics.UNDECIDED
        parts = {"missing": missing, "too few steps or seeds, or no gradient": short}
        reason = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
        least = f"{rule['min_seeds']:g} seeds of {rule['min_steps']:g} steps"
        settle = f"every arm with {least} or more"
    elif paper_scale and out_of_band:
        word = statistics.CONTRADICTED
        reason = f"outside {rule['band_low']:g} to {rule['band_high']:g}: {', '.join(out_of_band)}"
    else:
        word = statistics.SUPPORTED
        least = f"{100 * rule['min_share_below']:g} % of its steps below the limit"
        reason = f"every run finite, at least {least}, and without a fall"
    word = AT_PAPER.get(word, word) if paper_scale else word
    return Verdict(claim.id, (), "; ".join(texts), reason, settle, word)


def is_stable(norms: Sequence[float], score_change: float, limits: Mapping[str, float]) -> bool:
    """Whether one run is stable by the limits of the rule "trend": every norm finite, few above a
    multiple of the first half's median, and no fall of the score."""
    norms = np.asarray(norms, dtype=float)
    return (
        bool(np.isfinite(norms).all())
        and _share_below(norms, limits["median_factor"]) >= limits["min_share_below"]
        and -score_change <= limits["max_score_drop"]
    )


def _share_below(norms: np.ndarray, factor: float) -> float:
    """Share of steps below `factor` times the median of the run's first half. The first half only:
    a run that blows up for good would lift the median of the whole."""
    return float((norms < factor * np.median(norms[: (len(norms) + 1) // 2])).mean())


def decide_absolute(
    claim: Claim, measured: Mapping[str, np.ndarray], *, paper_scale: bool
) -> Verdict:
    """The verdict on absolute numbers, at paper scale only; below it "not run".

    The noise of a difference from the paper is sampling noise with the problems fixed, ours and the
    paper's: the paper's per-problem rates are unknown, ours stand in with the paper's n. (Over 30
    problems a bootstrap would accept anything.)

    measured: the number's name in ``claims.yaml`` -> correct, bool [P, n].
    """
    assert claim.kind == "absolute", claim.id
    if not paper_scale:
        return Verdict.not_run(
            claim.id, "absolute numbers are tested at paper scale only", "profile paper"
        )
    numbers = {number.what: number for number in claim.paper}
    if not measured:
        return Verdict.not_run(
            claim.id, "none of its numbers was measured", "evaluate the final model"
        )
    plain = [_against_paper(claim, numbers[name], array) for name, array in measured.items()]
    absent = [1.0] * (len(numbers) - len(plain))  # they count too: the limit is for all numbers
    corrected = holm([*(min(1.0, 2 * min(e.p_greater, e.p_less)) for e in plain), *absent])
    rounding, alpha = claim.rule.numbers["rounding"], round(1 - claim.rule.numbers["level"], 12)
    off = [e.name for e in plain if not e.low - rounding <= 0 <= e.high + rounding]
    far = [entry.name for entry, p in zip(plain, corrected, strict=False) if p < alpha]
    missing = [name for name in numbers if name not in measured]
    settle = None
    if far:
        word = "not reproduced"
        reason = f"outside the noise of all numbers at once: {', '.join(far)}"
    elif off or missing:
        word = statistics.UNDECIDED
        outside, absent = ", ".join(off) or "none", ", ".join(missing) or "none"
        reason = f"outside its own noise: {outside}; not measured: {absent}"
        settle = "more responses per problem for those, and all numbers"
    else:
        word, reason = "reproduced", "every number within its sampling noise of the paper's"
    texts = [
        _absolute_in_words(entry, numbers[entry.name], len(measured[entry.name])) for entry in plain
    ]
    return Verdict(claim.id, tuple(plain), "; ".join(texts), reason, settle, word)


def _against_paper(claim: Claim, number: PaperNumber, correct: np.ndarray) -> Comparison:
    """One number against the paper's, as a comparison; its p-values are for being further off than
    the paper's rounding."""
    from scipy.stats import norm

    level, rounding = claim.rule.numbers["level"], claim.rule.numbers["rounding"]
    difference = scores.avg_at_n(correct) - number.value
    num_problems, n = np.shape(correct)
    if number.num_problems not in (None, num_problems):
        wrong = f"expected {number.num_problems} problems, got {num_problems}"
        raise KlearError(f"{claim.id}, {number.what}: {wrong}")
    z = norm.isf((1 - level) / 2)
    ours = max(scores.sampling_error(correct), scores.unseen_rate(num_problems * n, level) / z)
    joint = ours * math.sqrt(1 + n / number.num_samples)
    return Comparison(
        difference=float(difference),
        high=float(difference + z * joint),
        low=float(difference - z * joint),
        margin=rounding,
        name=number.what,
        num_replicates=1,
        p_flip=None,
        p_greater=float(norm.sf((difference - rounding) / joint)),
        p_less=float(norm.cdf((difference + rounding) / joint)),
    )


def _absolute_in_words(entry: Comparison, number: PaperNumber, num_problems: int) -> str:
    half = 100 * (entry.high - entry.difference)
    ours, paper = 100 * (number.value + entry.difference), 100 * number.value
    size = f"{num_problems} problems"
    return f"{number.what}: {ours:.1f} against {paper:.1f}, joint noise {half:.1f} ({size})"


RULES = {"mechanism": decide_mechanism, "trend": decide_stability, "absolute": decide_absolute}
"""Kind of claim -> what takes the claim, its `Evidence.values` and the scale."""
