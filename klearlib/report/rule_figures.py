"""Figures of notebook 12: coefficients, useful windows of learning rates, performance profiles, and
the mechanism of the low corner."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from klearlib.report.curves import COLUMNS, learning_curves
from klearlib.report.style import figure_style, new_figure, series_order, series_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _PALE, _UP, _DOWN, _BAND = "#222222", "#BBBBBB", "#0072B2", "#D55E00", "#009E73"
_HIGHEST = 2.2  # of F drawn
_TITLE_CHARS = 22


def coefficient_grid(shapes: Mapping[str, pd.DataFrame | None]) -> Figure:
    """Small multiples of F over r. shapes: title -> columns ratio, positive, negative; None where F
    depends on the batch."""
    with figure_style():
        figure, axes = _grid(len(shapes), "ratio r", most=5, width=2.5, height=2.2, room=0.9)
        for axis, (name, shape) in zip(axes, shapes.items(), strict=True):
            axis.plot([0.1, _HIGHEST], [0.1, _HIGHEST], color=_PALE, linewidth=1.0)
            if shape is None:
                axis.text(0.5, 0.5, "depends on the batch", ha="center", transform=axis.transAxes)
            else:
                shown = shape.clip(upper=3.0)
                axis.plot(shape["ratio"], shown["positive"], color=_UP, linewidth=2.0)
                axis.plot(shape["ratio"], shown["negative"], color=_DOWN, linewidth=2.0, ls="--")
            axis.set_xlim(0.1, _HIGHEST)
            axis.set_ylim(-0.08, _HIGHEST)
            axis.set_title(textwrap.fill(name, _TITLE_CHARS))
        axes[0].plot([], [], color=_UP, linewidth=2.0, label="A > 0")
        axes[0].plot([], [], color=_DOWN, linewidth=2.0, ls="--", label="A < 0")
        axes[0].plot([], [], color=_PALE, label="F = r")
        figure.legend(loc="outside lower center", ncols=3)
        figure.supylabel("F", fontsize=10)
    return figure


def _grid(
    count: int, label: str, *, most: int, width: float, height: float, room: float
) -> tuple[Figure, np.ndarray]:
    """A figure of `count` panels, at most `most` in a row, and their axes; the last one of each
    column has the x label. width, height: of a panel in inches. room: below them all."""
    lines = -(-count // most)
    columns = -(-count // lines)
    figure = new_figure(width * columns + 0.6, height * lines + room)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axis in axes[count:]:
        axis.set_visible(False)
    for axis in axes[count - columns : count]:
        axis.set_xlabel(label)
    return figure, axes[:count]


def _log_ticks(axis: Axes, rates: Sequence[float] | np.ndarray) -> None:
    """A logarithmic x axis with a tick at each learning rate and no other."""
    axis.set_xscale("log")
    axis.set_xticks(rates, labels=[f"{each:g}" for each in rates])
    axis.set_xticks([], minor=True)


def rate_windows(frame: pd.DataFrame) -> Figure:
    """A panel for each rule: its mean score over the learning rate, with the useful rates below.

    frame: columns rule, learning_rate (rising), score, low, high, useful; scores are fractions.
    """
    groups = list(frame.groupby("rule", sort=False))
    if not groups:
        return learning_curves(frame.reindex(columns=COLUMNS))  # which says so
    best = 100 * frame["score"].max()
    with figure_style():
        figure, axes = _grid(len(groups), "learning rate", most=4, width=3.0, height=2.6, room=0.5)
        for axis, (rule, mine) in zip(axes, groups, strict=True):
            rate, score = mine["learning_rate"].to_numpy(), mine["score"].to_numpy()
            spread = 100 * np.stack([score - mine["low"], mine["high"] - score])
            axis.axhline(best, color=_PALE, linewidth=1.0)
            look = {"color": _INK, "marker": "o", "linewidth": 1.8, "capsize": 3}
            axis.errorbar(rate, 100 * score, yerr=spread, **look)
            near = rate[mine["useful"].to_numpy()]
            look = {"color": _BAND, "linewidth": 7, "solid_capstyle": "round"}
            axis.plot(near, [100 * frame["low"].min() - 4] * len(near), marker="o", **look)
            _log_ticks(axis, rate)
            window = " to ".join(f"{each:g}" for each in dict.fromkeys(near[[0, -1]]))
            axis.set_title(f"{textwrap.fill(rule, _TITLE_CHARS)}\nuseful: {window}")
        figure.supylabel("score, percent", fontsize=10)
    return figure


def two_worlds(frames: Mapping[str, pd.DataFrame], rules: Mapping[str, str]) -> Figure:
    """A panel for each frame: score over learning rate, a line for each of `rules` that it has.

    rules: series -> title. frames: title -> columns rule (its title), learning_rate, seeds, score,
    low, high; scores are fractions.
    """
    with figure_style():
        figure = new_figure(10.5, 4.2)
        axes = figure.subplots(1, len(frames))
        for axis, (title, frame) in zip(axes, frames.items(), strict=True):
            seeds = []
            for place, (series, rule) in enumerate(rules.items()):
                mine = frame[frame["rule"] == rule].astype({"learning_rate": float})
                mine = mine.sort_values("learning_rate")
                score, seeds = 100 * mine["score"], [*seeds, *mine["seeds"]]
                spread = np.stack([score - 100 * mine["low"], 100 * mine["high"] - score])
                style = series_style(series)
                look = {"color": style.color, "marker": style.marker, "capsize": 3}
                # Side by side, so that no interval hides another.
                rate = mine["learning_rate"] * (1 + 0.05 * place)
                axis.errorbar(rate, score, yerr=spread, linewidth=1.8, label=rule, **look)
            rates = sorted({*frame["learning_rate"].astype(float)})
            _log_ticks(axis, rates)
            axis.set_xlabel("learning rate")
            count = "-".join(map(str, dict.fromkeys((min(seeds), max(seeds))))) if seeds else "0"
            axis.set_title(f"{title}, n = {count}")
            axis.set_ylabel("score, percent")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def profiles(scores: Mapping[str, np.ndarray], *, beside: str) -> Figure:
    """A panel for each rule: the share of its scores, fractions, that are at least x, and in grey
    that of the rule `beside`."""
    import pandas as pd

    if not scores:
        return learning_curves(pd.DataFrame(columns=COLUMNS))  # which says so
    places = {}
    for name, values in scores.items():
        ordered = np.sort(100 * values)
        places[name] = ordered, 1 - np.arange(len(ordered)) / len(ordered)
    everything = np.concatenate([ordered for ordered, _ in places.values()])
    with figure_style():
        count = len(places)
        figure, axes = _grid(count, "score, percent", most=5, width=2.5, height=2.2, room=0.6)
        for axis, (name, own) in zip(axes, places.items(), strict=True):
            axis.step(*places[beside], where="pre", color=_PALE, linewidth=2.2)
            axis.step(*own, where="pre", color=_UP, linewidth=2.2)
            axis.set_xlim(everything.min() - 2, everything.max() + 2)
            axis.set_ylim(-0.02, 1.02)
            axis.set_title(textwrap.fill(name, _TITLE_CHARS))
        figure.supylabel("share at least x", fontsize=10)
    return figure


def mechanism(
    corner: pd.DataFrame,
    inside: pd.DataFrame,
    moved: pd.DataFrame,
    *,
    titles: Mapping[str, str],
    floor: float,
    left_out: pd.DataFrame | None = None,
) -> Figure:
    """The low corner's share of the gradient, what it moves, the one-logit model, and what leaving
    out a corner does.

    corner, inside: squared norms, moved: nats; columns series, seed, step, value. floor: the
    constant F of GPPO's low corner. left_out: columns left_out, minus_nothing, low and high, in
    points; those without a difference are not drawn.
    """
    both = corner.merge(inside, on=["series", "seed", "step"], suffixes=("", "_inside"))
    both = both[both["value_inside"] > 0]
    if not len(both):
        return learning_curves(both.reindex(columns=COLUMNS))  # which says so
    both = both.assign(value=both["value"] / both["value_inside"])
    drawn = None if left_out is None else left_out.dropna(subset="minus_nothing")
    has_fourth = drawn is not None and len(drawn)
    figure = new_figure(15.5 if has_fourth else 11.5, 4.2)
    with figure_style():
        left, middle, right, *fourth = figure.subplots(1, 4 if has_fourth else 3)
        for axis, frame in ((left, both), (middle, moved)):
            means = frame.groupby(["series", "step"])["value"].mean()
            for name in series_order(frame["series"]):
                style, mine = series_style(name), means[name]
                label = titles.get(name, style.label)
                look = {"color": style.color, "marker": style.marker, "linewidth": 1.9}
                axis.plot(mine.index, mine.to_numpy(), label=label, **look)
            axis.set_xlabel("RL step")
        left.set_yscale("symlog", linthresh=1e-3)
        left.set_title("low corner / inside,\nsquared gradient norm")
        middle.set_title("change of log-probability in a step,\nA < 0, nats")
        pushes = np.linspace(0, 12, 200)  # n eta
        right.plot(pushes, -np.log1p(pushes), color=_UP, linewidth=2.2, label="F = r")
        look = {"color": _DOWN, "linewidth": 2.2, "ls": "--"}
        right.plot(pushes, -floor * pushes, **look, label=f"F = {floor:g}")
        right.set_xlabel("pushes times rate, n eta")
        right.set_title("one logit of a rare token,\nchange by n pushes")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        right.legend(fontsize=8)
        for axis in fourth:
            place, value = np.arange(len(drawn)), drawn["minus_nothing"].to_numpy()
            spread = np.stack([value - drawn["low"], drawn["high"] - value])
            axis.axvline(0, color=_PALE, linewidth=1.0)
            axis.errorbar(value, place, xerr=spread, fmt="o", color=_INK, capsize=3)
            axis.set_yticks(place, labels=[textwrap.fill(x, 14) for x in drawn["left_out"]])
            axis.invert_yaxis()
            axis.set_xlabel("points of score")
            axis.set_title("left out, minus the whole rule,\nscore after four updates")
    return figure
