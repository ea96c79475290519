"""The table of scores that every RL notebook has, and the intervals in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.evaluate import scores as scoring
from klearlib.experiments import curves
from klearlib.paper import figure
from klearlib.report.curves import seed_bands
from klearlib.report.style import series_style

if TYPE_CHECKING:
    import pandas as pd

    Runs = Mapping[tuple[str, int], Path]

_LEVEL = 0.95
_ROUNDING = 1e-12  # an interval narrower than this is a difference that is everywhere the same


@dataclass(frozen=True)
class Difference:
    """A mean difference with its 95 % interval: over seeds and problems, or, where there is one
    seed, over problems alone, which says nothing about other seeds."""

    value: float
    low: float
    high: float
    interval_over: str


def difference(a: np.ndarray, b: np.ndarray) -> Difference:
    """The mean of a - b, paired by seed and problem; a, b: float [seeds, problems].

    Where all differences are equal, or there is one problem, there is no interval: that is a lack
    of data and no certainty.
    """
    from scipy.stats import t

    if len(a) > 1:
        found = scoring.paired_difference(a, b, _LEVEL)
        mean, low, high, over = found.difference, found.low, found.high, "seeds and problems"
    else:
        delta = (a - b)[0]
        mean, num_problems, over = float(delta.mean()), len(delta), "problems"
        error = delta.std(ddof=1) / np.sqrt(num_problems) if num_problems > 1 else 0.0
        half = float(t.isf((1 - _LEVEL) / 2, max(1, num_problems - 1)) * error)
        low, high = mean - half, mean + half
    if not _ROUNDING < high - low < np.inf:
        return Difference(mean, float("nan"), float("nan"), "none")
    return Difference(mean, low, high, over)


def score_table(
    runs: Runs,
    *,
    series: Sequence[str],
    benchmarks: Mapping[str, str],
    paper_figures: Mapping[str, str],
    what: str,
) -> pd.DataFrame:
    """Scores at the first and the last step: mean over seeds with its 95 % t interval.

    One row for each benchmark and series: start, end, gain = end - start (paired by seed), the
    intervals of end and of gain, and the paper's last plotted value, all in fractions; and how many
    responses of the last evaluations could not be judged (they count as wrong) or were truncated.

    Args:
        benchmarks: name of the evaluations -> title. paper_figures: name -> the paper's figure.
        what: the heading of the column that names the series ("rule", "reward").
    """
    import pandas as pd

    columns = ["benchmark", what, "seeds", "start", "end", "end_low", "end_high"]
    columns += ["gain", "gain_low", "gain_high", "paper_last", "not_judged", "truncated"]
    rows = []
    for name, title in benchmarks.items():
        scores = curves.score_curves(runs, name)
        for arm in series:
            mine = scores[scores["series"] == arm]
            if mine.empty:
                continue
            wide = mine.pivot(index="seed", columns="step", values="value")
            first, last = wide[wide.columns.min()], wide[wide.columns.max()]
            end, gain = seed_interval(last), seed_interval(last - first)
            values = [title, series_style(arm).label, len(wide), first.mean(), *end, *gain]
            counts = curves.last_counts(curves.of_series(runs, arm), name)
            rows.append([*values, paper_last(paper_figures.get(name), arm), *counts])
    return pd.DataFrame(rows, columns=columns)


def seed_interval(values: pd.Series) -> tuple[float, float, float]:
    """Mean over seeds with its 95 % t interval: (mean, low, high). values: indexed by seed."""
    band = seed_bands(values.rename("value").reset_index().assign(series="all", step=0)).iloc[0]
    return band["mean"], band["low"], band["high"]


def paper_last(name: str | None, series: str) -> float:
    """The last value that the paper's figure `name` plots for `series`; NaN where there is none."""
    if name is None:
        return float("nan")
    printed = figure(name)
    mine = printed[printed["series"].map(printed.attrs["keys"]) == series]
    return float(mine.loc[mine["step"].idxmax(), "value"])
