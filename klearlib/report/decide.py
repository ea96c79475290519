"""Verdicts on the paper's claims, by the rules fixed beforehand in ``klearlib/paper/claims.yaml``.

A notebook measures its comparisons, corrects them together, and asks for each verdict:

    measured = {"C1": [measure("GPPO - Clip-Higher", gppo, clip_higher), ...]}   # [seeds, problems]
    corrected = holm_in_notebook(measured)
    verdict = decide_ordering(claim("C1"), corrected["C1"], power=shares, paper_scale=False)

In its comparisons None stands for a bound that does not exist (one seed has no interval). What
would be a wrong verdict is an error instead.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from klearlib.errors import KlearError
from klearlib.evaluate import scores
from klearlib.paper import claim as claim_by_id
from klearlib.paper.schema import Claim, PaperNumber
from klearlib.report.section import AT_PAPER, NOT_RUN, Comparison, Verdict
from klearlib.report.style import series_style

# Above this many seeds the advice is no longer an amount of work.
_MANY_SEEDS = 1000
# A mean below this is a sum of scores that cancel, up to rounding.
_NO_DIFFERENCE = 1e-12


@dataclass(frozen=True)
class Measured:
    """One comparison of a notebook: its name in ``claims.yaml`` and its paired difference.

    `p_holm` is its p-value corrected over the `family` comparisons of the notebook, None before
    `holm_in_notebook`.
    """

    name: str
    result: scores.PairedDifference
    p_holm: float | None = None
    family: int = 1


def measure(name: str, a: np.ndarray, b: np.ndarray, *, level: float = 0.95) -> Measured:
    """`klearlib.evaluate.scores.paired_difference` of a - b under the comparison's name.

    a, b: float [S, P], the same seeds and problems in the same order.
    """
    return Measured(name, scores.paired_difference(a, b, level))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: the i-th smallest of m p-values times m - i + 1, made monotone.

    Controls the chance of one or more false rejections among all, whatever their dependence.
    Raises ValueError for values outside [0, 1].

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=float)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p_values: expected a list of numbers in [0, 1], got {p_values!r}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    factors = len(values) - np.arange(len(values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    return adjusted.tolist()


def holm_in_notebook(measured: Mapping[str, Sequence[Measured]]) -> dict[str, list[Measured]]:
    """All comparisons of one notebook, by claim id -> the same with `p_holm` set over all of them.

    Raises ValueError if the claims are not all judged by one notebook.
    """
    notebooks = {claim_by_id(claim_id).notebook for claim_id in measured}
    if len(notebooks) > 1:
        raise KlearError(f"Holm's correction is inside one notebook, got {sorted(notebooks)}")
    flat = [(claim_id, entry) for claim_id, entries in measured.items() for entry in entries]
    adjusted = holm([entry.result.p_value for _, entry in flat])
    corrected: dict[str, list[Measured]] = {claim_id: [] for claim_id in measured}
    for (claim_id, entry), p_holm in zip(flat, adjusted, strict=True):
        changed = dataclasses.replace(entry, p_holm=p_holm, family=len(flat))
        corrected[claim_id].append(changed)
    return corrected


def not_run(claim: Claim, reason: str, settle: str | None = None) -> Verdict:
    """The verdict "not run" with the reason, such as data that this profile does not have."""
    return Verdict(claim.id, (), "", reason, settle, NOT_RUN)


def _expect_kind(claim: Claim, *kinds: str) -> None:
    if claim.kind not in kinds:
        raise KlearError(
            f"{claim.id} is a claim of kind {claim.kind}, expected {' or '.join(kinds)}"
        )


def decide_mechanism(claim: Claim, max_error: float, tolerance: float) -> Verdict:
    """ "reproduced" if `max_error` <= `tolerance`, else (also for NaN) "not reproduced".

    max_error: the largest absolute error that the demonstration found. Raises ValueError for a
    tolerance that is looser than the one in the claim's rule.
    """
    _expect_kind(claim, "mechanism")
    limit = claim.rule.numbers["tolerance"]
    if not 0 <= tolerance <= limit:
        raise KlearError(f"{claim.id}: tolerance {tolerance:g}, its rule allows at most {limit:g}")
    found, settle = f"largest error {max_error:.2g}", None
    measured = f"{found} (tolerance {tolerance:g})"
    if max_error <= tolerance:
        word, reason = "reproduced", f"{found}, at most {tolerance:g}"
    else:
        word, reason = "not reproduced", f"{found}, not within {tolerance:g}"
        settle = "find the case with the largest error and mend the code"
    return Verdict(claim.id, (), measured, reason, settle, word)


def decide_ordering(
    claim: Claim,
    comparisons: Sequence[Measured],
    *,
    power: Mapping[str, float] | None = None,
    paper_scale: bool,
) -> Verdict:
    """The verdict on a direction or ordering from all its comparisons, by the claim's rule.

    A claim holds only as a whole: one comparison that counts against it is "opposite", and
    "direction" needs every one ("not reproduced" and "reproduced" at paper scale). A comparison
    without power neither speaks for nor against. Comparisons of the claim that were not measured
    leave it "inconclusive".

    comparisons: from `holm_in_notebook`. power: comparison's name -> mean share of tokens in the
    corners in which its two rules differ (`claim.power`), only for claims with a rule of power.
    Raises ValueError for a claim of another kind, an unknown or repeated comparison, a missing
    correction or share.
    """
    _expect_kind(claim, "direction", "ordering")
    level = claim.rule.numbers["level"]
    _check_comparisons(claim, comparisons, level)
    if not comparisons:
        return not_run(claim, "none of its comparisons was measured", "run the arms of the claim")
    weak = _weak(claim, comparisons, power)
    signs = {e.name: _sign(e, level) for e in comparisons if e.name not in weak}
    against = [name for name, sign in signs.items() if sign < 0]
    open_ones = [entry for entry in comparisons if signs.get(entry.name) == 0]
    missing = [c.name for c in claim.comparisons if c.name not in {e.name for e in comparisons}]
    settle = None
    if against:
        word, reason = "opposite", f"counts against the claim: {', '.join(against)}"
    elif weak:
        word = "no power"
        texts = [f"{name} {100 * share:.3f} %" for name, share in weak.items()]
        limit = f"{100 * claim.power.min_share:g} %"
        reason = f"under {limit} of tokens where the rules differ: {', '.join(texts)}"
        settle = f"more updates per rollout or a larger learning rate, until {limit} stand there"
    elif open_ones or missing:
        word = "inconclusive"
        alone = [e.name for e in open_ones if e.result.low > 0 or e.result.high < 0]
        parts = {
            "no difference can be told": [e.name for e in open_ones if e.name not in alone],
            "beside 0 alone, but not with Holm's correction for all of the notebook": alone,
            "not measured": missing,
        }
        reason = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
        steps = [f"{e.name}: {_more_seeds(e, level, _over(claim, e))}" for e in open_ones]
        settle = "; ".join(steps + [f"{name}: run its arms" for name in missing])
    else:
        word, reason = "direction", f"{100 * level:g} % intervals exclude 0 with the paper's sign"
    texts = [_in_words(claim, entry, (power or {}).get(entry.name)) for entry in comparisons]
    word = AT_PAPER.get(word, word) if paper_scale else word
    published = tuple(map(_published, comparisons))
    return Verdict(claim.id, published, "; ".join(texts), reason, settle, word)


def _check_comparisons(claim: Claim, comparisons: Sequence[Measured], level: float) -> None:
    names = [entry.name for entry in comparisons]
    expected = [comparison.name for comparison in claim.comparisons]
    if len(set(names)) < len(names) or set(names) - set(expected):
        raise KlearError(
            f"{claim.id}: expected comparisons out of {expected}, each once, got {names}"
        )
    for entry in comparisons:
        if entry.p_holm is None:
            raise KlearError(f"{claim.id}, {entry.name}: call holm_in_notebook first")
        if entry.p_holm < entry.result.p_value or entry.result.level != level:
            raise KlearError(f"{claim.id}, {entry.name}: p-value or level differ from the rule's")


def _weak(
    claim: Claim, comparisons: Sequence[Measured], power: Mapping[str, float] | None
) -> dict[str, float]:
    """The comparisons whose rules saw too few tokens that they treat apart, with that share."""
    if claim.power is None:
        if power:
            raise KlearError(f"{claim.id} has no rule of power, got {dict(power)}")
        return {}
    shares = {entry.name: (power or {}).get(entry.name, math.nan) for entry in comparisons}
    wrong = [name for name, share in shares.items() if not 0 <= share <= 1]
    if wrong:
        raise KlearError(
            f"{claim.id}: power needs the mean share of tokens, in [0, 1], in the corners "
            f"in which the rules differ, for {wrong}"
        )
    return {name: share for name, share in shares.items() if share < claim.power.min_share}


def _sign(entry: Measured, level: float) -> int:
    """+1 or -1 where the difference counts, else 0. No variance is no evidence: equal differences
    in every cell come from scores too coarse to show their noise."""
    result = entry.result
    significant = entry.p_holm < round(1 - level, 12) and result.standard_error > 0
    return int(np.sign(result.difference)) if significant else 0


def _more_seeds(entry: Measured, level: float, over: str) -> str:
    """What would tell the difference from 0; `over`: problems or steps."""
    result, number = entry.result, entry.result.num_problems
    if result.num_seeds < 2 or number < 2:
        return f"at least 2 seeds and 2 {over}"
    if result.standard_error == 0:
        same = f"every seed and {over[:-1]} shows the same difference, too coarse for an interval"
        return f"more responses or {over}, {same}"
    if abs(result.difference) < _NO_DIFFERENCE:
        none = "the mean difference is 0, so no number of seeds can be given"
        return f"{none}, more seeds and {over} narrow the interval"
    variances = (result.var_seed, result.var_problem, result.var_residual)
    level = 1 - (1 - level) / entry.family
    needed = scores.seeds_needed(result.difference, *variances, num_problems=number, level=level)
    if needed is None:
        enough = "no number of seeds is enough if the difference stays"
        return f"more {over}, on these {number} {enough}"
    amount = f"more than {_MANY_SEEDS}" if needed > _MANY_SEEDS else f"about {needed}"
    return f"{amount} seeds if the difference stays"


def _published(entry: Measured) -> Comparison:
    result = entry.result
    low, high = (end if math.isfinite(end) else None for end in (result.low, result.high))
    size = (result.num_problems, result.num_seeds)
    return Comparison(result.difference, high, low, entry.name, *size, entry.p_holm)


def _number(claim: Claim, value: float) -> str:
    return f"{100 * value:+.1f}" if claim.unit == "fraction" else f"{value:+.3f}"


def _over(claim: Claim, entry: Measured) -> str:
    """What the comparison is paired by beside seeds: problems or steps."""
    return next(c.over for c in claim.comparisons if c.name == entry.name)


def _in_words(claim: Claim, entry: Measured, share: float | None) -> str:
    result = entry.result
    unit = " points" if claim.unit == "fraction" else ""
    size = f"{result.num_seeds} seeds x {result.num_problems} {_over(claim, entry)}"
    if math.isinf(result.low):
        interval = "no interval"
    else:
        interval = f"[{_number(claim, result.low)}, {_number(claim, result.high)}]"
    if share is not None:
        size += f", {100 * share:.2g} % of tokens where the rules differ"
    return f"{entry.name}: {_number(claim, result.difference)}{unit} {interval} ({size})"


def decide_stability(
    claim: Claim, grad_norms: Mapping[str, Sequence[Sequence[float]]], *, paper_scale: bool
) -> Verdict:
    """The verdict on "all arms train stably" from the gradient norms before clipping.

    grad_norms: arm -> one sequence per seed, one norm per optimiser step; steps without an update
    are left out by the caller, NaN and infinity are kept: they are the finding.
    Raises ValueError for an unknown arm or a run without steps.
    """
    _expect_kind(claim, "trend")
    rule = claim.rule.numbers
    if set(grad_norms) - set(claim.arms):
        raise KlearError(f"{claim.id}: expected arms out of {claim.arms}, got {sorted(grad_norms)}")
    broken, short, out_of_band, texts = [], [], [], []
    for arm, runs in grad_norms.items():
        label = series_style(arm).label
        norms = [np.asarray(run, dtype=float) for run in runs]
        if not norms or any(run.ndim != 1 or run.size == 0 for run in norms):
            raise KlearError(f"{claim.id}, {arm}: expected one sequence of norms for each seed")
        finite = all(np.isfinite(run).all() for run in norms)
        steps = min(run.size for run in norms)
        share = min(_share_below(run, rule["median_factor"]) for run in norms)
        pooled = np.concatenate(norms)
        in_band = float(((pooled >= rule["band_low"]) & (pooled <= rule["band_high"])).mean())
        moved = all(np.median(run[: (run.size + 1) // 2]) > 0 for run in norms) or not finite
        seeds = paper_scale or len(norms) >= rule["min_seeds"]
        enough = moved and seeds and steps >= rule["min_steps"]
        if not finite or (enough and share < rule["min_share_below"]):
            broken.append(label)
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
        word, reason = "opposite", f"not stable: {', '.join(broken)}"
    elif missing or short:
        word = "inconclusive"
        parts = {"missing": missing, "too few steps or seeds, or no gradient": short}
        reason = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
        least = f"{rule['min_seeds']:g} seeds of {rule['min_steps']:g} steps"
        settle = f"every arm with {least} or more"
    elif paper_scale and out_of_band:
        word = "opposite"
        reason = f"outside {rule['band_low']:g} to {rule['band_high']:g}: {', '.join(out_of_band)}"
    else:
        word, reason = "direction", "every run finite and without spikes"
    word = AT_PAPER.get(word, word) if paper_scale else word
    return Verdict(claim.id, (), "; ".join(texts), reason, settle, word)


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
    Raises ValueError for an unknown number or another number of problems than the paper's.
    """
    _expect_kind(claim, "absolute")
    if not paper_scale:
        return not_run(claim, "absolute numbers are tested at paper scale only", "profile paper")
    numbers = {number.what: number for number in claim.paper}
    if set(measured) - set(numbers):
        raise KlearError(
            f"{claim.id}: expected numbers out of {list(numbers)}, got {list(measured)}"
        )
    if not measured:
        return not_run(claim, "none of its numbers was measured", "evaluate the final model")
    plain = [_against_paper(claim, numbers[name], array) for name, array in measured.items()]
    corrected = holm([entry.p_holm for entry in plain])
    found = [
        dataclasses.replace(entry, p_holm=p_holm)
        for entry, p_holm in zip(plain, corrected, strict=True)
    ]
    rounding, alpha = claim.rule.numbers["rounding"], round(1 - claim.rule.numbers["level"], 12)
    off = [e.name for e in found if not e.low - rounding <= 0 <= e.high + rounding]
    far = [entry.name for entry in found if entry.p_holm < alpha]
    missing = [name for name in numbers if name not in measured]
    settle = None
    if far:
        word = "not reproduced"
        reason = f"outside the noise of all numbers at once: {', '.join(far)}"
    elif off or missing:
        word = "inconclusive"
        outside, absent = ", ".join(off) or "none", ", ".join(missing) or "none"
        reason = f"outside its own noise: {outside}; not measured: {absent}"
        settle = "more responses per problem for those, and all numbers"
    else:
        word, reason = "reproduced", "every number within its sampling noise of the paper's"
    texts = [_absolute_in_words(entry, numbers[entry.name]) for entry in found]
    return Verdict(claim.id, tuple(found), "; ".join(texts), reason, settle, word)


def _against_paper(claim: Claim, number: PaperNumber, correct: np.ndarray) -> Comparison:
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
    return Comparison(
        difference=float(difference),
        high=float(difference + z * joint),
        low=float(difference - z * joint),
        name=number.what,
        num_problems=num_problems,
        num_seeds=1,
        p_holm=float(2 * norm.sf(max(0.0, abs(difference) - rounding) / joint)),
    )


def _absolute_in_words(entry: Comparison, number: PaperNumber) -> str:
    half = 100 * (entry.high - entry.difference)
    ours, paper = 100 * (number.value + entry.difference), 100 * number.value
    size = f"{entry.num_problems} problems"
    return f"{number.what}: {ours:.1f} against {paper:.1f}, joint noise {half:.1f} ({size})"
