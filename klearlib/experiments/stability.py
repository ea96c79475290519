"""Whether RL runs are stable, by the limits of C3, and how many of their tokens a rule can act
on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from klearlib import paper
from klearlib.experiments.results import Arm, Results
from klearlib.paper import Claim
from klearlib.report.decide import is_stable


def score_changes(runs: Results) -> dict[str, list[float]]:
    """Series -> for each seed how much its score on the validation set changed."""
    ends, starts = (runs.end_scores("validation", first=first) for first in (False, True))
    both = ends.merge(starts, on=["series", "seed"], suffixes=("", "_start"))
    return (both["value"] - both["value_start"]).groupby(both["series"]).apply(list).to_dict()


def stable_runs(runs: Results) -> dict[Arm, bool]:
    limits, found = paper.claim("C3").rule.numbers, {}
    for series, seed in runs.runs:
        mine = runs.of(series).with_seeds([seed])
        (norms,), (change,) = mine.gradient_norms()[series], score_changes(mine)[series]
        found[series, seed] = is_stable(norms, change, limits)
    return found


def largest_rates(
    runs: Mapping[float, Results], rules: Sequence[str]
) -> tuple[Results, Callable[[str, Sequence[int]], np.ndarray]]:
    """The runs of the seeds that have all `rules` at every learning rate, at one of them; and
    (rule, seeds) -> log10 of the largest rate at which the run of each seed is stable, half the
    smallest where it is at none: float [seeds]."""
    stable = {rate: stable_runs(each) for rate, each in runs.items()}
    done = set.intersection(*(set(each.common_seeds(rules)) for each in runs.values()))

    def largest(rule: str, seeds: Sequence[int]) -> np.ndarray:
        borne = [[rate for rate in runs if stable[rate][rule, seed]] for seed in seeds]
        return np.log10([max([min(runs) / 2, *rates]) for rates in borne])

    return runs[min(runs)].with_seeds(done), largest


def shares_in_corners(runs: Results, about: Claim) -> dict[str, float]:
    """Check on corners -> the share of tokens in them, mean over steps, seeds and its arms."""
    found = {}
    for check in about.checks:
        mine = runs.of(*check.arms)
        shares = [mine.curve(f"train/token_share_{corner}")["value"] for corner in check.corners]
        # No share at all: no token was trained on, so nothing could show a difference.
        found[check.name] = sum(float(each.mean()) if len(each) else 0.0 for each in shares)
    return found
