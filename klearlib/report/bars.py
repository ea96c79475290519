"""Scores as marks and bars (the paper's above ours), as maps, and as differences with intervals."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from klearlib.report.curves import COLUMNS, Panel, learning_curves, seed_bands, title
from klearlib.report.style import PAPER_DASH, figure_style, new_figure, series_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PALE, _INK = "#E9E9E9", "#444444"
_FRONTIER, _OURS = "#D55E00", "#0072B2"
_MAP = "cividis"  # grows evenly in lightness, also for colour-blind readers
_ROOM = 1.32  # times the longest bar or interval, so that the number next to it fits


def scores_beside_paper(
    panels: Sequence[Panel], *, groups: Sequence[str], series: Sequence[str], x_label: str
) -> Figure:
    """One column for each benchmark: the paper's scores on top, ours below with the mean over
    seeds, its 95 % t interval and a small dot for each seed.

    panels: `paper` has columns series, group, value, or is None; `ours` has series, group, seed,
    value. Values are fractions.
    groups: the places on the x axis, in order; a benchmark shows those that it has scores for.
    series: each has its own mark at every place.
    """
    groups = list(groups)
    figure = new_figure(max(3.4 * len(panels), 6.5), 6.4)
    with figure_style():
        axes = figure.subplots(2, len(panels), squeeze=False)
        for panel, top, bottom in zip(panels, axes[0], axes[1], strict=True):
            frames = [frame for frame in (panel.paper, panel.ours) if frame is not None]
            found = {group for frame in frames for group in frame["group"]}
            shown = [group for group in groups if group in found] or groups
            _draw_printed(top, panel.paper, shown, series)
            _draw_measured(bottom, panel.ours, shown, series)
            title(top, f"Paper: {panel.paper_title}")
            title(bottom, f"Here: {panel.ours_title}")
            bottom.set_xlabel(x_label)
        for row in axes:
            row[0].set_ylabel("score")
        if len(series) > 1:
            handles, labels = axes[1][0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=len(series))
    return figure


def scores_over_count(
    domains: Mapping[str, Sequence[Panel]], kinds: Mapping[str, str], *, x_label: str
) -> Figure:
    """One panel for each domain: the scores of its benchmarks over the number that ends the name of
    a group, as 4 in "top4"; the paper's dashed, ours with the 95 % t interval over seeds.

    domains: title -> panels as `scores_beside_paper` takes them. kinds: what comes before the
    number -> its words in the legend; other groups are not drawn.
    """
    looks = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"))
    figure = new_figure(5.2 * len(domains) + 0.6, 4.8)
    with figure_style():
        axes = figure.subplots(1, len(domains), squeeze=False, sharey=True)[0]
        for axis, (name, panels) in zip(axes, domains.items(), strict=True):
            numbers: set[int] = set()
            for panel, (color, marker) in zip(panels, itertools.cycle(looks), strict=False):
                look = {"color": color, "marker": marker, "markersize": 6}
                if panel.paper is not None and len(panel.paper):
                    at = [int(re.search(r"\d+$", each)[0]) for each in panel.paper["group"]]
                    numbers |= {*at}
                    paper = {"linestyle": PAPER_DASH, "markerfacecolor": "none"}
                    label = f"{panel.paper_title}, paper"
                    axis.plot(at, 100 * panel.paper["value"], **look, **paper, label=label)
                for line, (kind, words) in zip(("-", ":"), kinds.items(), strict=False):
                    mine = panel.ours[panel.ours["group"].str.startswith(kind)]
                    if not len(mine):
                        continue
                    steps = mine["group"].str.removeprefix(kind).astype(int)
                    bands = seed_bands(mine.assign(step=steps)).sort_values("step")
                    mean = 100 * bands["mean"]
                    spread = np.stack([mean - 100 * bands["low"], 100 * bands["high"] - mean])
                    numbers |= {*steps}
                    label = f"{panel.ours_title}{words}"
                    how = {"linestyle": line, "linewidth": 1.8, "capsize": 3}
                    axis.errorbar(bands["step"], mean, yerr=spread, **look, **how, label=label)
            axis.set_xticks(sorted(numbers))
            if not axis.containers:
                axis.text(0.5, 0.5, "not run yet", transform=axis.transAxes, ha="center")
            axis.set_xlabel(x_label)
            title(axis, name)
            axis.legend(fontsize=8, loc="upper right")
        axes[0].set_ylabel("score, percent")
        axes[0].set_ylim(bottom=0)
    return figure


def _draw_printed(
    axis: Axes, frame: pd.DataFrame | None, groups: Sequence[str], series: Sequence[str]
) -> None:
    _ticks(axis, groups)
    if frame is None or not len(frame):
        axis.text(0.5, 0.5, "the paper has no such score", transform=axis.transAxes, ha="center")
        return
    hollow = {"markerfacecolor": "none", "markeredgewidth": 1.8}
    for name in series:
        mine = frame[frame["series"] == name]
        places = [groups.index(group) + _shift(name, series) for group in mine["group"]]
        axis.plot(places, mine["value"], **_mark(name), **hollow)
    axis.margins(y=0.15)


def _draw_measured(
    axis: Axes, frame: pd.DataFrame, groups: Sequence[str], series: Sequence[str]
) -> None:
    _ticks(axis, groups)
    if not len(frame):
        axis.text(0.5, 0.5, "not run yet", transform=axis.transAxes, ha="center")
        return
    for name in series:
        mine, color = frame[frame["series"] == name], series_style(name).color
        steps = mine.assign(step=[groups.index(group) for group in mine["group"]])
        # group by group: one may have fewer seeds, which only in a curve would be a gap
        bands = [seed_bands(each).iloc[0] for _, each in steps.groupby("step")]
        places = [band["step"] + _shift(name, series) for band in bands]
        for place, band in zip(places, bands, strict=True):
            if band["low"] == band["low"]:
                axis.plot([place, place], [max(0, band["low"]), min(1, band["high"])], color=color)
        dots = steps["step"].to_numpy(float) + _shift(name, series) + 0.07
        axis.plot(dots, steps["value"], ".", color=color, markersize=3.5, alpha=0.7)
        axis.plot(places, [band["mean"] for band in bands], **_mark(name))
    axis.margins(y=0.15)
    low, high = axis.get_ylim()
    axis.set_ylim(bottom=max(-0.04 * high, low))  # so that the mark at a score of 0 is whole


def _mark(name: str) -> dict:
    style = series_style(name)
    look = {"color": style.color, "marker": style.marker, "label": style.label}
    return {"linestyle": "none", "markersize": 8, **look}


def _ticks(axis: Axes, groups: Sequence[str]) -> None:
    slanted = {"rotation": 40, "ha": "right"} if len(groups) > 6 else {}  # or they overlap
    axis.set_xticks(range(len(groups)), labels=groups, **slanted)
    axis.set_xlim(-0.6, len(groups) - 0.4)


def _shift(name: str, series: Sequence[str]) -> float:
    """Offsets that put the marks of several series at one place side by side."""
    return 0.22 * (series.index(name) - (len(series) - 1) / 2)


@dataclass(frozen=True)
class BarPanel:
    """One benchmark of `headline_bars`; all values are fractions.

    `paper` has columns model and value. `ours` has model, value, low and high (the interval that is
    drawn, NaN for none), `seeds` model, seed and value; both may be empty.
    """

    paper_title: str
    ours_title: str
    paper: pd.DataFrame
    ours: pd.DataFrame
    seeds: pd.DataFrame


def headline_bars(
    panels: Sequence[BarPanel],
    *,
    paper_models: Sequence[str],
    our_models: Sequence[str],
    highlight: str,
) -> Figure:
    """One column for each benchmark: the scores of the paper's models on top, dashed; ours below,
    with an interval and, where there are several, a dot for each seed. The two rows have their own
    scales.

    paper_models, our_models: the bars, the first on top. highlight: the paper's own model.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = new_figure(2.4 * len(panels) + 2.2, 0.42 * (len(paper_models) + len(our_models)) + 2.2)
    with figure_style():
        axes = figure.subplots(
            2, len(panels), squeeze=False, height_ratios=[len(paper_models), len(our_models)]
        )
        for column, panel in enumerate(panels):
            top, bottom = axes[0][column], axes[1][column]
            _draw_paper(top, panel.paper, paper_models, highlight)
            _draw_ours(bottom, panel, our_models)
            top.set_title(f"Paper: {panel.paper_title}", fontsize=10)
            bottom.set_title(f"Here: {panel.ours_title}", fontsize=10)
            bottom.set_xlabel("score")
            for axis, models in ((top, paper_models), (bottom, our_models)):
                axis.set_yticks(range(len(models)), labels=models if column == 0 else [])
                axis.set_ylim(len(models) - 0.4, -0.6)
                axis.grid(visible=False)  # every bar has its number
        handles = [
            Patch(facecolor=_PALE, edgecolor=_INK, linestyle="--", label="paper, one run each"),
            Patch(facecolor=_INK, label="here, mean over seeds"),
            Line2D([], [], color="black", linewidth=1.3, label="95 % sampling noise"),
        ]
        if any(panel.seeds["model"].duplicated().any() for panel in panels):
            dot = {"color": "black", "marker": ".", "linestyle": "none"}
            handles.append(Line2D([], [], **dot, label="here, one seed"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _draw_paper(axis: Axes, frame: pd.DataFrame, models: Sequence[str], highlight: str) -> None:
    values = frame.set_index("model")["value"]
    for place, model in enumerate(models):
        if model in values.index:
            own = model == highlight
            look = {"edgecolor": series_style("code RL").color if own else _INK, "linestyle": "--"}
            look |= {"facecolor": _PALE, "linewidth": 1.8 if own else 1.0}
            axis.barh(place, values[model], height=0.7, **look)
            _write(axis, values[model], place, values[model], bold=own)
    _scale(axis, values.max() if len(values) else 0.0)


def _draw_ours(axis: Axes, panel: BarPanel, models: Sequence[str]) -> None:
    rows, ends = panel.ours.set_index("model"), [0.0]
    if not len(rows):
        axis.text(0.5, 0.5, "not run yet", transform=axis.transAxes, ha="center", color=_INK)
    for place, model in enumerate(models):
        if model not in rows.index:
            continue
        value, low, high = (float(rows.loc[model, name]) for name in ("value", "low", "high"))
        # "code RL, YaRN" is code RL in another setting: its colour, hatched.
        name, setting, _ = model.partition(",")
        look = {"color": series_style(name).color, "hatch": "///" if setting else None}
        axis.barh(place, value, height=0.7, **look, edgecolor="white", linewidth=0.0)
        end = value
        if low == low and high == high:
            axis.plot([low, high], [place, place], color="black", linewidth=1.3)
            end = max(value, high)
        dots = panel.seeds.loc[panel.seeds["model"] == model, "value"]
        if len(dots) > 1:
            axis.plot(dots, [place + 0.22] * len(dots), ".", color="black", markersize=4)
            end = max(end, dots.max())
        _write(axis, value, place, end)
        ends.append(end)
    _scale(axis, max(ends))


def _write(axis: Axes, value: float, place: int, end: float, *, bold: bool = False) -> None:
    look = {"va": "center", "fontsize": 9, "fontweight": "bold" if bold else "normal"}
    place = {"xy": (end, place), "xytext": (4, 0), "textcoords": "offset points"}
    axis.annotate(f"{100 * value:.1f}", **place, **look)


def _scale(axis: Axes, longest: float) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axis.set_xlim(0, _ROOM * longest if longest > 0 else 1.0)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=3))
    axis.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def heat_maps(frame: pd.DataFrame) -> Figure:
    """A map for each rule: the score over updates per rollout batch and learning rate, and the
    stability frontier, above which fewer than half of the runs are stable.

    frame: columns rule, rate, updates, score (a fraction), stable (share of the runs); one row for
    each cell that has runs.
    """
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
        axes[0].plot([], [], color=_FRONTIER, linewidth=2.6, label="stability frontier")
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
    axis.plot(edges, line, color=_FRONTIER, linewidth=2.6, clip_on=False, zorder=5)


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
            axis.axvline(0.0, color="#222222", linewidth=1.0)
            for place, row in enumerate(rows.itertuples()):
                low, high = 100 * row.low, 100 * row.high
                axis.plot([low, high], [place, place], color=_OURS, linewidth=1.8)
                face = _OURS if low > 0 or high < 0 else "white"
                look = {"marker": "o", "markersize": 7, "markerfacecolor": face}
                axis.plot(100 * row.value, place, color=_OURS, **look)
            axis.set_yticks(range(len(rows)), labels=rows["difference"])
            axis.set_ylim(tallest - 0.4, -0.6)
            axis.grid(axis="y", visible=False)
            axis.set_xlabel("difference, points")
            title(axis, where)
    return figure
