"""Scores and their uncertainty. P problems, n responses to each, S seeds.

Two questions have two different intervals, and neither stands in for the other:

- `sampling_interval`: had we drawn other responses from this policy to *these* problems? (Enough to
  compare with the paper's number on the same benchmark.)
- `problem_interval`: had the benchmark held other problems of the same kind?

Whether one training recipe beats another is for `klearlib.evaluate.statistics`.
"""

from __future__ import annotations

import numpy as np

_LEVEL = 0.95


def _checked(correct: object) -> np.ndarray:
    array = np.asarray(correct)
    if array.dtype != np.bool_ or array.ndim != 2 or array.size == 0:
        raise ValueError(
            "correct: expected a bool array [problems, n] with at least one problem and one "
            f"response, got {array.dtype} {list(array.shape)}"
        )
    return array


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


def unseen_rate(num_draws: int, level: float = _LEVEL) -> float:
    """Highest rate of an event that fits with none in `num_draws` (exact, Clopper-Pearson).

    level: of the interval, in (0, 1).

    >>> round(unseen_rate(100), 3)
    0.036
    """
    return 1 - ((1 - level) / 2) ** (1 / num_draws)


def sampling_interval(*corrects: np.ndarray) -> tuple[float, float]:
    """95 % interval (low, high) of the mean of avg@n over S models from sampling noise alone, the
    problems and models fixed.

    Normal, mean -+ z sqrt(sum of `sampling_error` squared) / S, cut at 0 and 1. The half-width is
    at least `unseen_rate` of all draws, so that responses that all agree do not pass for certainty.
    It says nothing about other problems or other training seeds.

    corrects: bool [P, n] of each model.

    >>> [round(end, 3) for end in sampling_interval(np.array([[True, False]] * 50))]
    [0.361, 0.639]
    """
    from scipy.stats import norm

    mean = float(np.mean([avg_at_n(correct) for correct in corrects]))
    error = np.sqrt(sum(sampling_error(correct) ** 2 for correct in corrects)) / len(corrects)
    num_draws = sum(correct.size for correct in corrects)
    half = max(norm.isf((1 - _LEVEL) / 2) * error, unseen_rate(num_draws))
    return max(0.0, float(mean - half)), min(1.0, float(mean + half))


def problem_interval(correct: np.ndarray) -> tuple[float, float]:
    """95 % interval (low, high) of avg@n over problems, as if drawn from a larger pool.

    Analytic and clustered by problem (no bootstrap): the P problem means are the observations,
    mean -+ t_{P-1} sd / sqrt(P), cut at 0 and 1; sampling noise is inside sd. The half-width is at
    least `unseen_rate` of P draws, so that problems that agree do not pass for certainty: the exact
    interval where all responses are right, or all wrong. One problem says nothing about others:
    (0, 1).

    correct: bool [P, n].
    """
    from scipy.stats import t

    correct = _checked(correct)
    num_problems = correct.shape[0]
    if num_problems == 1:
        return 0.0, 1.0
    share = correct.mean(axis=1)
    half = t.isf((1 - _LEVEL) / 2, num_problems - 1) * share.std(ddof=1) / np.sqrt(num_problems)
    half = max(half, unseen_rate(num_problems))
    mean = avg_at_n(correct)
    return max(0.0, float(mean - half)), min(1.0, float(mean + half))
