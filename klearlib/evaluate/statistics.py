"""Deciding claims: one difference for each replicate, a paired t over replicates, a verdict.

A replicate is what is drawn anew together: a training seed in one world, or a world of its own.
`compare` takes the scores of two arms, `decide` the comparisons that a claim needs all of. Neither
knows of claims, profiles or files: docs/statistics.md has the reasons and the error rates.

    gppo, cispo = [0.52, 0.55, 0.50, 0.53, 0.54], [0.49, 0.51, 0.50, 0.49, 0.51]
    decide([compare(gppo, cispo, margin=0.05)], margin=0.05).verdict   # "supported"
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SUPPORTED, CONTRADICTED = "supported", "contradicted"
NO_DIFFERENCE, MIXED, UNDECIDED = "no difference", "mixed", "undecided"

ONE_SIDED = 0.025
"""Largest one-sided p-value that counts."""
SIGN_FLIPS_FROM = 6
"""Fewest replicates with which the sign-flip test can reach `ONE_SIDED`: 2^-6 = 0.016."""

_MOST_REPLICATES = 10_000
_ROUNDING = 1e-12  # differences closer than this, relative to the scores, are one number


@dataclass(frozen=True)
class Comparison:
    """The mean of a - b over replicates; see `compare`.

    low, high: its interval of `level`. p_greater: one-sided, small where a > b; p_less: where
    a < b. equivalent: the interval of level 2 `level` - 1 (90 %) lies inside +- margin.

    >>> Comparison(0.02, -0.01, 0.05, 0.08, 0.92, False, 5).smallest_margin
    0.04303499661133885
    """

    value: float
    low: float
    high: float
    p_greater: float
    p_less: float
    equivalent: bool
    num_replicates: int
    level: float = 0.95

    @property
    def standard_error(self) -> float:
        """Of `value`; infinite where equal differences are too few to say anything."""
        return (self.high - self.low) / 2 / _t(1 - self.level, self.num_replicates)

    @property
    def smallest_margin(self) -> float:
        """The smallest margin at which `equivalent` would hold."""
        if not np.isfinite(self.standard_error):  # equal differences: a sign-flip test
            return abs(self.value) if 2.0**-self.num_replicates <= 1 - self.level else np.inf
        return abs(self.value) + _t(2 * (1 - self.level), self.num_replicates) * self.standard_error


@dataclass(frozen=True)
class Decision:
    """One of the five words, why, and for "undecided" how many replicates it takes (None: more than
    10,000, or the verdict is another)."""

    verdict: str
    reason: str
    replicates_needed: int | None = None


def compare(a: object, b: object, *, margin: float, level: float = 0.95) -> Comparison:
    """The paired t-test of a against b over R replicates: in both directions, and for equivalence.

    With d_r = a_r - b_r, mean d and unbiased standard deviation s: d -+ t_{R-1} s / sqrt(R). Equal
    differences have no s and the t statistic does not exist; the sign-flip test, whose p-value is
    then 2^-R, takes its place: nothing is said before 2^-R is small enough (no interval: infinite
    ends), and the interval has no width from there on.

    Args:
        a, b: float [R], one score for each replicate, row r of both from replicate r; or [R, P],
            whose mean over the P problems is that score. R >= 2.
        margin: the smallest difference that matters, in the scores' own unit; above 0.
        level: of the interval; the interval of equivalence has 2 `level` - 1.

    Raises ValueError for other shapes, fewer than two replicates, NaN or infinity, a margin that is
    not positive, or a level outside (0.5, 1).

    >>> found = compare([0.6, 0.7, 0.8], [0.5, 0.5, 0.5], margin=0.05)
    >>> round(found.value, 3), round(found.low, 3), round(found.p_greater, 3), found.equivalent
    (0.2, -0.048, 0.037, False)
    """
    from scipy.special import stdtr

    if not 0.5 < level < 1:
        raise ValueError(f"level: expected a number between 0.5 and 1, such as 0.95, got {level!r}")
    _check_margin(margin)
    differences = _differences(a, b)
    num, value = len(differences), float(differences.mean())
    # The standard deviation of equal numbers is not always exactly 0.
    error = float(differences.std(ddof=1) / np.sqrt(num)) if np.ptp(differences) else 0.0
    if error > 0:
        half, inner = (_t(tail, num) * error for tail in (1 - level, 2 * (1 - level)))
        p_less = float(stdtr(num - 1, value / error))
        p_greater = float(stdtr(num - 1, -value / error))
    else:
        rare = 2.0**-num
        half, inner = (0.0 if rare <= tail else np.inf for tail in ((1 - level) / 2, 1 - level))
        p_greater, p_less = rare if value > 0 else 1.0, rare if value < 0 else 1.0
    equivalent = bool(abs(value) + inner < margin)
    low, high = float(value - half), float(value + half)
    return Comparison(value, low, high, p_greater, p_less, equivalent, num, level)


def decide(
    comparisons: Sequence[Comparison],
    *,
    margin: float,
    spread: float | None = None,
    unit: str = "",
) -> Decision:
    """The verdict on a claim that holds only if all its comparisons do, each positive where the
    claim is right. The first that fits:

    1. contradicted: the smallest `p_less`, times the number of comparisons (Holm), <= 0.025
    2. supported: every `p_greater` <= 0.025 (all must hold, so none is corrected)
    3. no difference: every comparison is equivalent
    4. mixed: every comparison is equivalent or, corrected by Holm, has p_greater <= 0.025
    5. undecided, with the replicates at which the 95 % half-width reaches the margin; if it is
       there already, at which half-width and equivalence together leave no gap (t_.975 + t_.95
       standard errors = margin). From the spread alone, never from the difference that was found.

    margin: as given to `compare`. spread: standard deviation of one replicate's difference by more
    than these comparisons; the widest of these counts where it is larger. unit: behind the margin
    in the reason.

    Raises ValueError without a comparison, or for a margin or spread that is not positive.

    >>> decide([compare([5.0, 6.0, 7.0], [1.0, 1.5, 2.0], margin=2)], margin=2).verdict
    'supported'
    """
    _check_margin(margin)
    if not comparisons:
        raise ValueError("comparisons: expected at least one")
    if spread is not None and not 0 < spread < np.inf:
        raise ValueError(f"spread: expected a positive number, got {spread!r}")
    greater = holm([each.p_greater for each in comparisons])
    less = holm([each.p_less for each in comparisons])
    against = [each for p, each in zip(less, comparisons, strict=True) if p <= ONE_SIDED]
    num, equal = len(comparisons), sum(each.equivalent for each in comparisons)
    width = max(each.smallest_margin for each in comparisons)
    bound = f"{margin:.3g}{unit and ' '}{unit}"
    if against:
        end = f", by less than {bound}" if all(each.low > -margin for each in against) else ""
        which = "the difference has" if num == 1 else f"{len(against)} of {num} differences have"
        return Decision(CONTRADICTED, f"{which} the other sign{end}")
    if all(each.p_greater <= ONE_SIDED for each in comparisons):
        small = sum(each.high < margin for each in comparisons)
        which = "" if num == 1 else f" in {small} of {num}"
        end = f", but smaller than {bound}{which}" if small else ""
        whole = "the difference has" if num == 1 else f"all {num} differences have"
        return Decision(SUPPORTED, f"{whole} the claim's sign{end}")
    if equal == num:
        reason = f"inside +-{bound}, and would be inside +-{width:.3g}"
        return Decision(NO_DIFFERENCE, reason)
    holds = [p <= ONE_SIDED for p in greater]
    if all(yes or each.equivalent for yes, each in zip(holds, comparisons, strict=True)):
        reason = f"{sum(holds)} of {num} have the claim's sign, the rest are inside +-{bound}"
        return Decision(MIXED, reason)
    needed = replicates_needed(comparisons, margin=margin, spread=spread)
    reason = f"neither a sign nor a difference inside +-{bound} can be told"
    return Decision(UNDECIDED, reason, needed)


def replicates_needed(
    comparisons: Sequence[Comparison], *, margin: float, spread: float | None = None
) -> int | None:
    """How many replicates `decide` asks for where it cannot tell; None for more than 10,000.
    Raises ValueError as `decide` does."""
    _check_margin(margin)
    spreads = [spread or 0.0, *(pooled_spread([each]) for each in comparisons)]
    spread = max(filter(np.isfinite, spreads))
    if spread == 0:  # equal differences, too few to say anything
        return SIGN_FLIPS_FROM
    counts = range(2, _MOST_REPLICATES + 1)
    fewest = min(each.num_replicates for each in comparisons)

    def narrow(num: int, tails: tuple[float, ...]) -> bool:
        return sum(_t(tail, num) for tail in tails) * spread / np.sqrt(num) <= margin

    for tails in ((0.05,), (0.05, 0.1)):  # half-widths shrink as replicates come
        place = bisect.bisect_left(counts, True, key=lambda num, tails=tails: narrow(num, tails))
        if place == len(counts) or counts[place] > fewest:
            break
    return max(fewest + 1, counts[place]) if place < len(counts) else None


def pooled_spread(comparisons: Sequence[Comparison]) -> float:
    """The standard deviation of one replicate's difference, root mean square over `comparisons`;
    those whose differences are all equal and few are left out (infinite if none remains)."""
    squares = [each.num_replicates * each.standard_error**2 for each in comparisons]
    known = [square for square in squares if np.isfinite(square)]
    return float(np.sqrt(np.mean(known))) if known else float("inf")


def sign_flip_p(a: object, b: object) -> float:
    """One-sided p-value of the sign that a - b has, by flipping the signs of the replicates'
    differences: exact to R = 16, from 65,536 draws beyond. A check beside the t-test that assumes
    only symmetry. a, b: as in `compare`.

    >>> sign_flip_p([2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    0.015625
    """
    from scipy.stats import permutation_test

    differences = _differences(a, b)
    towards = "greater" if differences.mean() >= 0 else "less"
    flipped = permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**16,
        alternative=towards,
        rng=np.random.default_rng(0),
    )
    return float(flipped.pvalue)


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


def _differences(a: object, b: object) -> np.ndarray:
    """float [R]: a - b, rounded to 0, or to one number, where only floating point tells them
    apart."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.shape != b.shape or a.ndim not in (1, 2) or a.size == 0:
        raise ValueError(
            "a, b: expected two arrays of one shape, [replicates] or [replicates, problems], "
            f"got {list(a.shape)} and {list(b.shape)}"
        )
    if len(a) < 2:
        raise ValueError("a, b: expected at least 2 replicates, one has no spread")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError(
            "a, b: expected finite scores, got NaN or infinity; leave the replicate out of both"
        )
    rounding = _ROUNDING * max(1.0, np.abs(a).max(), np.abs(b).max())
    found = (a - b).reshape(len(a), -1).mean(axis=1)
    if np.ptp(found) < rounding:
        found = np.full(len(a), 0.0 if abs(found[0]) < rounding else found[0])
    return found


def _check_margin(margin: float) -> None:
    if not 0 < margin < np.inf:
        raise ValueError(f"margin: expected a positive number in the scores' unit, got {margin!r}")


def _t(two_sided: float, num_replicates: int) -> float:
    """The two-sided quantile of Student's t with `num_replicates` - 1 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(num_replicates - 1, 1 - two_sided / 2))
