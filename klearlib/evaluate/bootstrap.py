"""How sure it is which of several arms is the best: a bootstrap over seeds and problems."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_TIE = 1e-12


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
    best = means >= means.max(axis=1, keepdims=True) - _TIE
    shares = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return dict(zip(scores, shares.tolist(), strict=True))
