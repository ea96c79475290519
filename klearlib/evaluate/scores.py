"""Scores and their uncertainty. P problems, n responses to each, S seeds.

Three questions have three different intervals, and none stands in for another:

- `sampling_interval`: had we drawn other responses from this policy to *these* problems? (Enough to
  compare with the paper's number on the same benchmark.)
- `problem_interval`: had the benchmark held other problems of the same kind?
- `paired_difference`: does one training recipe beat another, on other seeds *and* other problems?

`best_shares` says how sure it is which of several arms is the best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Differences of scores below this are rounding of the same number.
_ROUNDING = 1e-12


def _checked(correct: object) -> np.ndarray:
    array = np.asarray(correct)
    if array.dtype != np.bool_ or array.ndim != 2 or array.size == 0:
        raise ValueError(
            "correct: expected a bool array [problems, n] with at least one problem and one "
            f"response, got {array.dtype} {list(array.shape)}"
        )
    return array


def _checked_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, such as 0.95, got {level!r}")
    return level


def avg_at_n(correct: np.ndarray) -> float:
    """avg@n: the mean over the n responses of each problem, then over problems.

    correct: bool [P, n]. With n equal for all problems both means are one.
    Raises ValueError unless bool, two-dimensional and not empty.

    >>> avg_at_n(np.array([[True, False], [True, True]]))
    0.75
    """
    return float(_checked(correct).mean())


def pass_at_k(correct: np.ndarray, k: int) -> float:
    """pass@k without bias: the mean over problems of 1 - C(n - c, k) / C(n, k).

    c of the n responses of a problem are correct; the quotient is the share of the k-subsets of the
    responses in which none is. 1 - (1 - c/n)^k would be biased downwards.
    correct: bool [P, n]; 1 <= k <= n. Raises ValueError for any other k.

    >>> pass_at_k(np.array([[True, False, False, False]]), 2)
    0.5
    """
    correct = _checked(correct)
    n = correct.shape[1]
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= n:
        raise ValueError(
            f"k: expected an int from 1 to n = {n} (the responses there are), got {k!r}"
        )
    num_wrong = n - correct.sum(axis=1, keepdims=True)
    taken = np.arange(k)
    all_wrong = np.prod(np.maximum(num_wrong - taken, 0) / (n - taken), axis=1)
    return float(1 - all_wrong.mean())


def sampling_error(correct: np.ndarray) -> float:
    """Standard error of avg@n from sampling noise, the problems fixed.

    sqrt(sum_p q_p (1 - q_p) / (n - 1)) / P with q_p the share correct of problem p; n - 1 makes
    each term's estimate unbiased. With n = 1 the noise inside a problem cannot be seen, and the
    binomial sqrt(m (1 - m) / (P - 1)) of the mean m stands in, whose square is too large on
    average, never too small (x (1 - x) is concave).

    correct: bool [P, n].
    """
    correct = _checked(correct)
    num_problems, n = correct.shape
    if n == 1:
        mean = correct.mean()
        return float(np.sqrt(mean * (1 - mean) / max(1, num_problems - 1)))
    share = correct.mean(axis=1)
    return float(np.sqrt((share * (1 - share)).sum() / (n - 1)) / num_problems)


def unseen_rate(num_draws: int, level: float = 0.95) -> float:
    """Highest rate of an event that fits with none in `num_draws` (exact, Clopper-Pearson).

    >>> round(unseen_rate(100), 3)
    0.036
    """
    return 1 - ((1 - _checked_level(level)) / 2) ** (1 / num_draws)


def sampling_interval(correct: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Interval (low, high) of avg@n from sampling noise, the problems fixed.

    Normal, avg@n -+ z `sampling_error`, cut at 0 and 1. The half-width is at least `unseen_rate` of
    P n draws, so that responses that all agree do not pass for certainty. It says nothing about
    other problems or other training seeds.

    correct: bool [P, n].

    >>> [round(end, 3) for end in sampling_interval(np.array([[True, False]] * 50))]
    [0.361, 0.639]
    """
    from scipy.stats import norm

    correct, tail = _checked(correct), (1 - _checked_level(level)) / 2
    half = max(norm.isf(tail) * sampling_error(correct), unseen_rate(correct.size, level))
    mean = avg_at_n(correct)
    return max(0.0, float(mean - half)), min(1.0, float(mean + half))


def problem_interval(correct: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Interval (low, high) of avg@n over problems, as if drawn from a larger pool.

    Analytic and clustered by problem (no bootstrap): the P problem means are the observations,
    mean -+ t_{P-1} sd / sqrt(P), cut at 0 and 1; sampling noise is inside sd. Where all problems
    have the same share correct, sd is 0 and `unseen_rate` of P draws is the half-width: the exact
    interval where all responses are right, or all wrong. One problem says nothing about others:
    (0, 1).

    correct: bool [P, n].
    """
    from scipy.stats import t

    correct, tail = _checked(correct), (1 - _checked_level(level)) / 2
    num_problems = correct.shape[0]
    if num_problems == 1:
        return 0.0, 1.0
    share = correct.mean(axis=1)
    half = t.isf(tail, num_problems - 1) * share.std(ddof=1) / np.sqrt(num_problems)
    if share.min() == share.max():
        half = unseen_rate(num_problems, level)
    mean = avg_at_n(correct)
    return max(0.0, float(mean - half)), min(1.0, float(mean + half))


@dataclass(frozen=True)
class PairedDifference:
    """The mean of a - b over seeds and problems with its uncertainty; see `paired_difference`.

    With one seed or one problem `low` and `high` are infinite and `p_value` is 1: the variance of
    one of a kind cannot be seen, and nothing is claimed.
    `var_seed`, `var_problem`, `var_residual` are variance components (never below 0).
    """

    difference: float
    standard_error: float
    low: float
    high: float
    p_value: float
    level: float
    num_seeds: int
    num_problems: int
    var_seed: float
    var_problem: float
    var_residual: float


def paired_difference(a: np.ndarray, b: np.ndarray, level: float = 0.95) -> PairedDifference:
    """Mean difference of two arms, paired by seed and problem, both as crossed random factors.

    Model: a - b = mu + u_seed + v_problem + e. The residual e holds their interaction and the
    sampling noise of the n responses. The variance of the mean is estimated by

        Var = var(seed means) / S + var(problem means) / P - MS_e / (S P)

    where MS_e is the residual mean square of the two-way table; it is subtracted since both first
    terms contain it. A component that comes out negative is set to 0, so Var is at least either
    factor's own. The interval is t with min(S, P) - 1 degrees of freedom: the fewest that any part
    of Var has, hence on the safe side (Satterthwaite's would be more, and unstable at 3 seeds). An
    interval over problems alone would call a lucky seed an effect; one over seeds alone would not
    carry over to other problems.

    a, b: float [S, P], score of each problem (such as its share of correct responses) under each
    training seed, row s of both from seed s. The interval is cut as in `cut_to_shares`. Where all
    differences are equal and not 0 it has no width; `klearlib.report.decide` takes that for a lack
    of data, not for certainty.

    Raises ValueError for shapes that differ, are not [seeds, problems], are empty, or hold NaN.

    >>> b = np.array([[0.1, 0.5, 0.3], [0.2, 0.4, 0.5]])
    >>> paired_difference(b + [[0.2, 0.3, 0.1]], b).num_seeds
    2
    """
    from scipy.stats import t

    a, b, level = np.asarray(a, dtype=float), np.asarray(b, dtype=float), _checked_level(level)
    if a.shape != b.shape or a.ndim != 2 or a.size == 0:
        raise ValueError(
            "a, b: expected two arrays of one shape [seeds, problems], "
            f"got {list(a.shape)} and {list(b.shape)}"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError(
            "a, b: expected finite scores, got NaN or infinity; leave out what is missing"
        )
    delta = a - b
    delta[np.abs(delta) < _ROUNDING] = 0.0
    num_seeds, num_problems = delta.shape
    mean = float(delta.mean())
    if min(num_seeds, num_problems) == 1:
        inf, nan = float("inf"), float("nan")
        tail = (num_seeds, num_problems, nan, nan, nan)
        return PairedDifference(mean, inf, -inf, inf, 1.0, level, *tail)

    by_seed, by_problem = delta.mean(axis=1), delta.mean(axis=0)
    residual = delta - by_seed[:, None] - by_problem[None, :] + mean
    ms_residual = float((residual**2).sum()) / ((num_seeds - 1) * (num_problems - 1))
    var_seed = max(0.0, float(by_seed.var(ddof=1)) - ms_residual / num_problems)
    var_problem = max(0.0, float(by_problem.var(ddof=1)) - ms_residual / num_seeds)
    parts = (var_seed, var_problem, ms_residual)
    if max(parts) < _ROUNDING**2:
        parts = (0.0, 0.0, 0.0)
    error = _standard_error(*parts, num_seeds, num_problems)
    df = min(num_seeds, num_problems) - 1
    half = float(t.isf((1 - level) / 2, df)) * error
    p_value = float(2 * t.sf(abs(mean) / error, df)) if error > 0 else float(mean == 0)
    low, high = cut_to_shares(mean - half, mean + half, a, b)
    sizes = (num_seeds, num_problems)
    return PairedDifference(mean, error, low, high, p_value, level, *sizes, *parts)


def cut_to_shares(low: float, high: float, a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """An interval of the mean of a - b, cut at -1 and 1 where all scores are in [0, 1].

    Two shares are never farther apart, but with few seeds or problems the t interval does not know
    it. The cut takes no possible value away and moves neither 0 nor a margin out of the interval.

    >>> cut_to_shares(-1.05, 0.2, np.zeros(3), np.ones(3))
    (-1.0, 0.2)
    >>> cut_to_shares(-3.0, 2.0, np.full(3, 5.0), np.zeros(3))
    (-3.0, 2.0)
    """
    if min(np.min(a), np.min(b)) < 0 or max(np.max(a), np.max(b)) > 1:
        return low, high
    return max(-1.0, low), min(1.0, high)


def _standard_error(
    var_seed: float, var_problem: float, var_residual: float, num_seeds: int, num_problems: int
) -> float:
    cells = num_seeds * num_problems
    return float(np.sqrt(var_seed / num_seeds + var_problem / num_problems + var_residual / cells))


def seeds_needed(
    difference: float,
    var_seed: float,
    var_problem: float,
    var_residual: float,
    *,
    num_problems: int,
    level: float = 0.95,
) -> int | None:
    """The fewest seeds at which this difference, if it stayed, would exclude 0 on these problems.

    None where no number of seeds would: the difference is 0, there is one problem, or the variance
    between problems alone already hides it (then only more problems help). An estimate from
    estimated variances: an order of magnitude, not a promise. At least 2.
    """
    from scipy.stats import t

    if difference == 0 or num_problems < 2:
        return None
    upper = (1 + level) / 2

    def excludes_zero(num_seeds: int) -> bool:
        margin = t.ppf(upper, min(num_seeds, num_problems) - 1)
        parts = (var_seed, var_problem, var_residual)
        return abs(difference) > margin * _standard_error(*parts, num_seeds, num_problems)

    high = 2
    while not excludes_zero(high):
        high *= 2
        if high > 2**30:
            return None
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if excludes_zero(middle) else (middle, high)
    return high


def best_shares(
    scores: Mapping[str, np.ndarray], *, num_resamples: int = 10_000, seed: int = 0
) -> dict[str, float]:
    """The share of resamples in which each arm has the highest mean score; the shares sum to 1.

    Each resample draws as many seeds and as many problems as there are, both with replacement and
    the same for all arms, so that the arms stay paired. Arms that tie share a resample equally.

    Args:
        scores: arm -> float [S, P], the same seeds and problems in the same order. With one seed
            only the problems are drawn anew.
        seed: of the draws.

    Raises:
        ValueError: no arm, or shapes that are empty or differ.

    >>> best_shares({"a": np.array([[0.5, 0.7]]), "b": np.array([[0.4, 0.1]])})
    {'a': 1.0, 'b': 0.0}
    """
    arrays = [np.asarray(values, dtype=float) for values in scores.values()]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 2 or not arrays[0].size:
        raise ValueError(
            "scores: expected one array [seeds, problems] for each arm, all of one shape, "
            f"got {sorted(shapes)}"
        )
    num_seeds, num_problems = arrays[0].shape
    draws = np.random.default_rng(seed)
    # How often each seed and each problem is drawn is all that a mean depends on.
    seeds = draws.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), num_resamples)
    problems = draws.multinomial(
        num_problems, np.full(num_problems, 1 / num_problems), num_resamples
    )
    means = np.stack(
        [((seeds @ array) * problems).sum(axis=1) / array.size for array in arrays], axis=1
    )
    best = means >= means.max(axis=1, keepdims=True) - _ROUNDING
    shares = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return dict(zip(scores, shares.tolist(), strict=True))
