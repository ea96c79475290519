"""What notebook 11 draws: scores over learning rate and updates, and differences with their
intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klearlib.report.curves import COLUMNS, learning_curves, title
from klearlib.report.style import figure_style, new_figure, series_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#222222"
_MAP = "cividis"  # grows evenly in lightness, for colour-blind readers too


def heat_maps(frame: pd.DataFrame) -> Figure:
    """A map for each rule: the score over updates per rollout batch and learning rate, and the
    stability frontier, above which fewer than half of the runs are stable.

    frame: columns rule, rate, updates, score (a fraction), stable (share of the runs); one row for
    each cell that has runs.
    """
    import numpy as np

    if not len(frame):
        return learning_curves(frame.reindex(columns=COLUMNS))  # which says so
    rules = list(dict.fromkeys(frame["rule"]))
    rates, updates = sorted(frame["rate"].unique()), sorted(frame["updates"].unique())
    figure = new_figure(2.9 * len(rules) + 1.4, 0.55 * len(rates) + 2.2)
    with figure_style():
        axes = figure.subplots(1, len(rules), squeeze=False, sharey=True)[0]
        limits = {"vmin": 100 * frame["score"].min(), "vmax": 100 * frame["score"].max()}
        for axis, rule in zip(axes, rules, strict=True):
            mine = frame[frame["rule"] == rule]
            wide = mine.pivot(index="rate", columns="updates", values="score")
            values = 100 * wide.reindex(index=rates, columns=updates)
            image = axis.imshow(values, cmap=_MAP, origin="lower", aspect="auto", **limits)
            middle = sum(limits.values()) / 2
            for (row, column), value in np.ndenumerate(values.to_numpy()):
                if not np.isfinite(value):
                    continue
                color = "white" if value < middle else "black"
                axis.text(column, row, f"{value:.1f}", ha="center", va="center", color=color)
            _draw_frontier(axis, mine, rates, updates)
            axis.set_xticks(range(len(updates)), labels=[str(each) for each in updates])
            axis.set_yticks(range(len(rates)), labels=[f"{each:g}" for each in rates])
            axis.set_ylim(-0.56, len(rates) - 0.42)  # with room for a frontier at either end
            axis.grid(visible=False)
            axis.set_xlabel("updates per rollout batch")
            title(axis, series_style(rule).label)
        axes[0].set_ylabel("learning rate")
        figure.colorbar(image, ax=list(axes), label="score, percent")
        axes[0].plot([], [], color="#D55E00", linewidth=2.6, label="stability frontier")
        figure.legend(loc="outside lower center")
    return figure


def _draw_frontier(axis: Axes, mine: pd.DataFrame, rates: list, updates: list) -> None:
    stable = mine[mine["stable"] >= 0.5].groupby("updates")["rate"].max()
    bottom = dict.fromkeys(mine["updates"], -0.5)  # a column without runs has no frontier
    heights = [
        rates.index(stable[each]) + 0.5 if each in stable else bottom.get(each, float("nan"))
        for each in updates
    ]
    edges = [x for place in range(len(updates)) for x in (place - 0.5, place + 0.5)]
    line = [height for height in heights for _ in range(2)]
    axis.plot(edges, line, color="#D55E00", linewidth=2.6, clip_on=False, zorder=5)


def forest_figure(frame: pd.DataFrame, *, margin: float) -> Figure:
    """One row for each difference, in points: its mark, filled where the 95 % interval excludes 0,
    its interval, and the shaded margin.

    frame: columns where, difference, value, low, high; values are fractions, low and high may be
    NaN. One panel for each `where`.
    """
    if not len(frame):
        return learning_curves(frame.reindex(columns=COLUMNS))  # which says so
    groups = list(frame.groupby("where", sort=False))
    tallest = max(len(rows) for _, rows in groups)
    figure = new_figure(4.4 * len(groups) + 1.8, 0.42 * tallest + 1.5)
    with figure_style():
        axes = figure.subplots(1, len(groups), squeeze=False, sharex=True)[0]
        for axis, (where, rows) in zip(axes, groups, strict=True):
            axis.axvspan(-100 * margin, 100 * margin, color="#000000", alpha=0.07, linewidth=0)
            axis.axvline(0.0, color=_INK, linewidth=1.0)
            for place, row in enumerate(rows.itertuples()):
                low, high = 100 * row.low, 100 * row.high
                axis.plot([low, high], [place, place], color="#0072B2", linewidth=1.8)
                face = "#0072B2" if low > 0 or high < 0 else "white"
                look = {"marker": "o", "markersize": 7, "markerfacecolor": face}
                axis.plot(100 * row.value, place, color="#0072B2", **look)
            axis.set_yticks(range(len(rows)), labels=rows["difference"])
            axis.set_ylim(tallest - 0.4, -0.6)
            axis.grid(axis="y", visible=False)
            axis.set_xlabel("difference, points")
            title(axis, where)
    return figure
