"""Rules that are compared each at a learning rate of its own, which the other replicates choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from klearlib.evaluate.statistics import ONE_SIDED, Comparison

_DRAWS = 2**16


def own_rates(right: np.ndarray) -> np.ndarray:
    """int [..., seeds]: the index of the learning rate with the most right responses to the
    validation sets of the *other* seeds; a tie goes to the first.

    right: [..., rates, seeds].

    >>> own_rates(np.array([[5, 0, 0], [0, 2, 2]])).tolist()
    [1, 0, 0]
    """
    others = right.sum(-1, keepdims=True) - right
    return others.argmax(-2)


def at_own_rates(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[..., seeds]: the score of each seed at the rate that `own_rates` gives; both [..., rates,
    seeds]."""
    return np.take_along_axis(scores, own_rates(right)[..., None, :], -2)[..., 0, :]


def swap_p(scores: np.ndarray, right: np.ndarray) -> float:
    """Two-sided p-value of the mean difference of two rules, each at its own rates, by swapping
    them in whole replicates, validation included, with the rates chosen again each time: exact up
    to 16 seeds, from 65,536 draws beyond. Choosing by the other seeds makes replicates dependent,
    which a t-test does not see.

    scores, right: [2, rates, seeds].
    """
    seeds = scores.shape[-1]
    if 2**seeds <= _DRAWS:
        swaps = (np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1  # [draws, seeds]
    else:
        swaps = np.random.default_rng(0).integers(0, 2, (_DRAWS, seeds))
        swaps[0] = 0

    def swapped(values: np.ndarray, by: np.ndarray) -> np.ndarray:  # [draws, 2, rates, seeds]
        first, second = values
        turned = by[:, None, :] == 1
        return np.stack([np.where(turned, second, first), np.where(turned, first, second)], axis=1)

    parts = []
    for by in np.array_split(swaps, max(1, len(swaps) // 4096)):  # a few megabytes at a time
        own = at_own_rates(swapped(scores, by), swapped(right, by)).mean(-1)  # [draws, 2]
        parts.append(own[:, 0] - own[:, 1])
    differences = np.abs(np.concatenate(parts))
    return float((differences >= differences[0] - 1e-12).mean())


def useful_rates(means: np.ndarray, *, margin: float) -> np.ndarray:
    """bool [rates]: the best learning rate and the neighbouring ones around it with mean scores
    within `margin` of the best. means: [rates], in the order of the rates.

    >>> useful_rates(np.array([0.70, 0.60, 0.70, 0.71]), margin=0.02).tolist()
    [False, False, True, True]
    """
    far = np.flatnonzero(means < means.max() - margin)
    best, places = means.argmax(), np.arange(len(means))
    low, high = far[far < best], far[far > best]
    return (places > low.max(initial=-1)) & (places < high.min(initial=len(means)))


def counted(rates: Iterable[float]) -> list[str]:
    """The rates that replicates chose, each as "5e-05 (14)", or a single one as "5e-05"."""
    counts = sorted(Counter(rates).items())
    return [f"{rate:g}" + f" ({n})" * (len(counts) > 1) for rate, n in counts]


def two_sided(found: Comparison) -> float:
    """The p-value of a difference, whatever its sign."""
    return min(1.0, 2 * min(found.p_greater, found.p_less))


def word(found: Comparison, p: float) -> str:
    """What a difference says by its corrected two-sided p-value, or by its 90 % interval."""
    if p <= 2 * ONE_SIDED:
        return "higher" if found.value > 0 else "lower"
    return "same" if found.equivalent else "undecided"
