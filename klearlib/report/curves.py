"""Curves over the steps of training: the paper's beside ours, learning curves, the clipping rules
and the clipped tokens.

Every figure takes long data (columns series, seed, step, value). Ours is the mean over seeds with
its 95 % t interval and a thin line for each seed; the paper's curves are dashed and have one run
each.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from klearlib.report.style import PAPER_DASH, figure_style, new_figure, series_order, series_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("series", "seed", "step", "value")

CORNER_TITLES = {
    "low_negative": "r low, A < 0\n(cut by Clip-Higher)",
    "high_positive": "r high, A > 0\n(cut by Clip-Higher)",
    "low_positive": "r low, A > 0\n(clamped by CISPO alone)",
    "high_negative": "r high, A < 0\n(clamped by CISPO alone)",
}
"""The four corners outside the clip range (`klearlib.rl.coefficients.CORNERS`)."""

QUANTITY_LABELS = {"tokens": "share of tokens", "gradient": "share of gradient mass"}
"""What `corner_shares` draws, by the word in its column `quantity`."""

BAND_SEEDS = 3
"""The fewest seeds with a band: that of two, by t of 12.7, would fill its panel."""

_INK = "#444444"
_MAX_MARKERS = 30
_SMOOTHED_FROM = 60
_SMOOTHING_STEPS = 21
_NOTE_CHARS = 36


def seed_bands(frame: pd.DataFrame, *, least: int = BAND_SEEDS) -> pd.DataFrame:
    """Mean over seeds with its t interval, mean +- t(0.975, n - 1) s / sqrt(n), for each series and
    step; s is the unbiased standard deviation of the n seeds.

    frame: columns series, seed, step, value; one row for each seed and step. Returns columns
    series, step, mean, low, high and num_seeds (finite values at this step).

    A mean over a part of the seeds would jump when a seed is late or diverged, so mean, low and
    high are NaN where not every seed has a finite value. With fewer than `least` seeds, at least 2,
    there is a mean and no interval. Raises ValueError where a seed has two values at one step.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"series": "gppo", "seed": [0, 1], "step": 1, "value": [0.4, 0.6]})
    >>> seed_bands(frame)[["mean", "num_seeds"]].values.tolist()
    [[0.5, 2.0]]
    """
    import pandas as pd
    from scipy.special import stdtrit

    parts = []
    for series, curves in frame.groupby("series", sort=False):
        wide = curves.pivot(index="step", columns="seed", values="value").sort_index()
        values = np.where(np.isfinite(wide.to_numpy(float)), wide.to_numpy(float), np.nan)
        num_seeds = values.shape[1]
        mean, half = values.mean(axis=1), np.nan
        if num_seeds >= least:
            error = values.std(axis=1, ddof=1) / np.sqrt(num_seeds)
            half = stdtrit(num_seeds - 1, 0.975) * error
        band = {"series": series, "step": wide.index, "mean": mean}
        band |= {"low": mean - half, "high": mean + half}
        parts.append(pd.DataFrame({**band, "num_seeds": np.isfinite(values).sum(axis=1)}))
    columns = ["series", "step", "mean", "low", "high", "num_seeds"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def seeds_text(frame: pd.DataFrame) -> str:
    """How many seeds stand behind the curves.

    >>> import pandas as pd
    >>> seeds = {"series": ["a", "a", "b"], "seed": [0, 1, 0]}
    >>> seeds_text(pd.DataFrame(seeds | {"step": 1, "value": 0.5}))
    'seeds: a 2 (no band), b 1 (no band)'
    """
    counts = frame.groupby("series", sort=False)["seed"].nunique()
    if counts.nunique() == 1:
        number = int(counts.iloc[0])
        none = ", so no band" if number < BAND_SEEDS else ""
        return f"1 seed{none}" if number == 1 else f"{number} seeds each{none}"
    words = [
        f"{series_style(name).label} {number}{' (no band)' if number < BAND_SEEDS else ''}"
        for name, number in counts.items()
    ]
    return "seeds: " + ", ".join(words)


@dataclass(frozen=True)
class Panel:
    """One column of `paper_beside_ours`: what the paper plotted and what was measured here.

    `paper` has columns series, step, value, `ours` a seed as well; either may be None or empty. The
    titles name benchmark and avg@n, because ours may differ from the paper's. is_rate: of values in
    [0, 1], to which the band of ours is cut.
    """

    paper_title: str
    ours_title: str
    paper: pd.DataFrame | None
    ours: pd.DataFrame | None
    y_label: str = ""
    log_y: bool = False
    is_rate: bool = False


def paper_beside_ours(panels: Sequence[Panel]) -> Figure:
    """One column for each panel: the paper's curves on top, ours below.

    The two rows have their own axes, since scale and benchmark differ below paper scale: compare
    the order and the shape of the curves, not their height.
    """
    figure = new_figure(max(3.75 * len(panels), 6.5), 6.6)
    with figure_style():
        axes = figure.subplots(2, len(panels), squeeze=False)
        for panel, top, bottom in zip(panels, axes[0], axes[1], strict=True):
            for axis, frame in ((top, panel.paper), (bottom, panel.ours)):
                axis.set_ylabel(panel.y_label)
                if panel.log_y and frame is not None and len(frame):
                    axis.set_yscale("log")
            _draw_paper(top, panel.paper)
            _draw_ours(bottom, panel.ours, is_rate=panel.is_rate)
            for axis in (top, bottom):
                if axis.get_yscale() == "log":
                    _plain_log_ticks(axis)
            title(top, f"Paper: {panel.paper_title}")
            title(bottom, f"Here: {panel.ours_title}")
            bottom.set_xlabel("RL step")
        _draw_legend(figure, [p.ours for p in panels], [p.paper for p in panels])
    return figure


def learning_curves(
    frame: pd.DataFrame, *, x_label: str = "RL step", max_columns: int = 3
) -> Figure:
    """Our curves as small multiples, at most `max_columns` in a row.

    frame: columns series, seed, step, value and, where there are several panels, panel (a title).
    """
    panels = frame.groupby("panel", sort=False) if "panel" in frame else ()
    parts = [*panels] or [("", frame)]
    num_rows = -(-len(parts) // max_columns)
    num_columns = -(-len(parts) // num_rows)
    figure = new_figure(max(3.75 * num_columns, 6.5), 3.0 * num_rows + 0.6)
    with figure_style():
        axes = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
        for axis, (name, part) in zip(axes, parts, strict=False):
            _draw_ours(axis, part)
            title(axis, name)
            axis.set_xlabel(x_label)
        for axis in axes[len(parts) :]:
            axis.remove()
        _draw_legend(figure, [frame])
    return figure


def coefficient_curves(frame: pd.DataFrame, *, eps_low: float, eps_high: float) -> Figure:
    """The coefficient F against the ratio, for A > 0 and for A < 0: the clipping rules at a glance.

    Rules that agree lie exactly on one another, so each line is narrower than the one below it and
    carries its markers at its own places: every rule can be seen wherever it runs.

    frame: columns rule, sign ("positive" or "negative", the sign of A), ratio (> 0), coefficient.
    eps_low, eps_high: offsets from 1 of the clip range, drawn as a shaded span.
    """
    rules = series_order(frame["rule"])
    figure = new_figure(10.8, 4.9)
    with figure_style():
        axes = figure.subplots(1, 2, sharey=True)
        for axis, sign in zip(axes, ("positive", "negative"), strict=True):
            for place, rule in enumerate(rules):
                chosen = frame[(frame["sign"] == sign) & (frame["rule"] == rule)]
                line = chosen.sort_values("ratio")
                _draw_coefficient(axis, line, rule, place=place, count=len(rules))
            low, high = 1 - eps_low, 1 + eps_high
            axis.axvspan(low, high, color="#000000", alpha=0.06, linewidth=0, zorder=0)
            look = {"ha": "center", "va": "top", "fontsize": 8.5, "color": _INK}
            place = {"x": (low * high) ** 0.5, "y": 0.985, "transform": axis.get_xaxis_transform()}
            axis.text(s="clip\nrange", **place, **look)
            axis.set_xscale("log")
            _plain_ticks(axis.xaxis, frame["ratio"], (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100))
            axis.set_title("A > 0" if sign == "positive" else "A < 0")
            axis.set_xlabel("ratio r (log scale)")
        # Unclipped rules reach the largest ratio, so F is logarithmic too, with a place for 0.
        values, axis = frame["coefficient"], axes[0]
        smallest = values[values > 0].min()
        axis.set_yscale("symlog", linthresh=smallest, linscale=0.35)
        _plain_ticks(axis.yaxis, values, (0, 0.1, 0.2, 0.5, 0.8, 1.28, 2, 5, 10, 20, 50))
        axis.set_ylabel("coefficient F (log scale, and 0)")
        axis.set_ylim(-0.3 * smallest, values.max() * 1.4)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(rules), 5))
    return figure


def corner_shares(frame: pd.DataFrame) -> Figure:
    """How much a rule could matter: the share of tokens (top) and of gradient mass (bottom) outside
    the clip range, by corner.

    frame: columns series, seed, step, corner (a key of `CORNER_TITLES`), quantity (a key of
    `QUANTITY_LABELS`) and value, a share in [0, 1] of all response tokens of the step or of the sum
    of their absolute gradients.
    """
    from matplotlib.ticker import PercentFormatter

    figure = new_figure(12.0, 2.8 * len(QUANTITY_LABELS) + 0.9)
    with figure_style():
        axes = figure.subplots(len(QUANTITY_LABELS), 4, sharey="row", sharex=True)
        for row, (quantity, label) in enumerate(QUANTITY_LABELS.items()):
            chosen = frame[frame["quantity"] == quantity]
            top = chosen["value"].max() if len(chosen) else 0.0
            limits = (-0.03 * top, 1.08 * top) if top > 0 else (-0.0003, 0.01)
            for axis, (corner, words) in zip(axes[row], CORNER_TITLES.items(), strict=True):
                here = chosen[chosen["corner"] == corner]
                note = "top" if (row, corner) == (0, "low_negative") else ""
                _draw_ours(axis, here, limits=limits, note=note, is_rate=True)
                if row == 0:
                    axis.set_title(words, fontsize=10.5)
                if row == len(QUANTITY_LABELS) - 1:
                    axis.set_xlabel("RL step")
            axes[row, 0].set_ylabel(label)
            axes[row, 0].yaxis.set_major_formatter(PercentFormatter(1.0))
        _draw_legend(figure, [frame])
    return figure


def title(axis: Axes, text: str) -> None:
    axis.set_title(textwrap.fill(text, 40))


def _draw_paper(axis: Axes, frame: pd.DataFrame | None) -> None:
    """The paper's curves, dashed; a curve of many points is thin, under its running median."""
    if frame is None or not len(frame):
        _say(axis, "the paper has no such curve")
        return
    smoothed = False
    for name in series_order(frame["series"]):
        curve = frame[frame["series"] == name].sort_values("step")
        step, value, style = curve["step"], curve["value"], series_style(name)
        dash = {"color": style.color, "linestyle": PAPER_DASH}
        if len(curve) <= _SMOOTHED_FROM:
            axis.plot(step, value, **dash, linewidth=1.6, marker=style.marker, markersize=4)
            continue
        smoothed = True
        middle = value.rolling(_SMOOTHING_STEPS, center=True).median()
        axis.plot(step, value, color=style.color, linewidth=0.5, alpha=0.45)
        axis.plot(step, middle, **dash, linewidth=2.0, zorder=3)
    if smoothed:
        _note(axis, f"dashed: median of {_SMOOTHING_STEPS} steps", top=True)


def _draw_ours(
    axis: Axes,
    frame: pd.DataFrame | None,
    *,
    limits: tuple | None = None,
    note: str = "bottom",
    is_rate: bool = False,
) -> None:
    """Our curves, solid: the mean over seeds, its 95 % band, and a thin line for each seed.

    limits: of the y axis; by default the range of the lines and 12 % on either side. A band beyond
    them is cut, and the panel says so. note: where the number of seeds stands, "bottom" or "top",
    or "" for nowhere.
    """
    from matplotlib.ticker import MaxNLocator

    if frame is None or not len(frame):
        _say(axis, "not run yet")
        return
    bands, steps = seed_bands(frame), frame["step"]
    if is_rate:
        bands[["low", "high"]] = bands[["low", "high"]].clip(0.0, 1.0)
    names = series_order(frame["series"])
    for place, name in enumerate(names):
        # at a single step the series would hide one another
        shift = 0.12 * (place - (len(names) - 1) / 2) if steps.nunique() == 1 else 0.0
        _draw_series(axis, frame[frame["series"] == name], bands[bands["series"] == name], shift)
    limits = limits or _limits(frame["value"].to_numpy(float), log=axis.get_yscale() == "log")
    if limits:
        axis.set_ylim(*limits)
    for name in names:
        band = bands[bands["series"] == name]
        step, low, high = (band[column].to_numpy(float) for column in ("step", "low", "high"))
        look = {"color": series_style(name).color, "alpha": 0.09, "linewidth": 0, "zorder": 0.5}
        axis.fill_between(step, low, high, **look)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if steps.min() == steps.max():
        axis.set_xlim(steps.min() - 1, steps.max() + 1)
    if note:
        text = seeds_text(frame)
        if limits and (bands["low"].min() < limits[0] or bands["high"].max() > limits[1]):
            text += "; band cut by the frame"
        _note(axis, text, top=note == "top")


def _draw_coefficient(axis: Axes, line: pd.DataFrame, rule: str, *, place: int, count: int) -> None:
    """One rule's F against the ratio, as the `place`-th of `count` lines that may coincide. A fall
    to zero is no slope: the line stops there and a dotted one joins its ends."""
    style = series_style(rule)
    ratio, value = (line[column].to_numpy(float) for column in ("ratio", "coefficient"))
    falls = np.flatnonzero((value[1:] == 0) != (value[:-1] == 0))
    for fall in falls:
        ends = slice(fall, fall + 2)
        axis.plot(ratio[ends], value[ends], color=style.color, linestyle=":", linewidth=1.4)
    every = max(len(ratio) // 6, 1)
    first = min(place * every // count, max(len(ratio) - 1, 0))
    mark = {"marker": style.marker, "markersize": 6.5, "markevery": (first, every)}
    mark |= {"markerfacecolor": "white", "markeredgewidth": 1.5}
    line = {"linewidth": 1.6 + 1.8 * (count - 1 - place), "solid_capstyle": "butt"}
    broken = (np.insert(each, falls + 1, np.nan) for each in (ratio, value))
    axis.plot(*broken, color=style.color, **line, **mark, label=style.label, zorder=2 + 0.1 * place)


def _draw_legend(figure: Figure, ours, paper=()) -> None:
    """One legend below all panels: the series of all frames, and what dashes and bands mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ours = [frame for frame in ours if frame is not None and len(frame)]
    paper = [frame for frame in paper if frame is not None and len(frame)]
    names = [name for frame in [*ours, *paper] for name in frame["series"].unique()]
    styles = list(dict.fromkeys(series_style(name) for name in series_order(names)))
    handles = [Line2D([], [], color=s.color, marker=s.marker, label=s.label) for s in styles]

    ink = partial(Line2D, [], [], color=_INK)
    if paper:
        handles.append(ink(label="paper, one run each", linestyle=PAPER_DASH))
    most = max((frame.groupby("series")["seed"].nunique().max() for frame in ours), default=0)
    if most > 1:
        handles += [ink(label="here, mean over seeds"), ink(label="here, one seed", linewidth=0.7)]
    if most >= BAND_SEEDS:
        handles.append(Patch(color=_INK, alpha=0.12, label="95 % interval of the mean over seeds"))
    if most == 1:
        handles.append(ink(label="here, one seed"))
    if handles:
        columns = max(int(figure.get_figwidth() / 2.75), 1)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _plain_log_ticks(axis: Axes) -> None:
    """Ticks of a logarithmic y axis that say 0.05 and not 5 x 10^-2, denser where the span is
    short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_ylim()
    span = high / low
    subs = (1, 2, 3, 5, 7) if span < 10 else (1, 2, 5) if span < 200 else (1,)
    axis.yaxis.set_major_locator(LogLocator(subs=subs))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _draw_series(axis: Axes, curves: pd.DataFrame, band: pd.DataFrame, shift: float) -> None:
    style = series_style(band["series"].iloc[0])
    if curves["seed"].nunique() > 1:
        for _, curve in curves.groupby("seed", sort=False):
            curve = curve.sort_values("step")
            thin = {"linewidth": 0.7, "alpha": 0.45, "marker": "." if len(curve) == 1 else None}
            axis.plot(curve["step"] + shift, curve["value"], color=style.color, **thin)
    look = {"linewidth": 2.1, "marker": style.marker}
    if len(band) > _MAX_MARKERS:
        look = {"linewidth": 1.5}
    axis.plot(band["step"] + shift, band["mean"], color=style.color, **look, zorder=3)
    if len(band) == 1:
        axis.vlines(band["step"] + shift, band["low"], band["high"], color=style.color, alpha=0.5)


def _limits(values, *, log: bool) -> tuple[float, float] | None:
    # From the seeds' own values: the band of a few is so wide that it would squeeze curves flat.
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    if not len(values):
        return None
    low, high = values.min(), values.max()
    if log:
        factor = (high / low) ** 0.12 if high > low else 1.2
        return low / factor, high * factor
    margin = 0.12 * (high - low) or 0.05 * abs(high) or 0.05
    return low - margin, high + margin


def _note(axis: Axes, text: str, *, top: bool = False) -> None:
    place = {"x": 0.99, "y": 0.985 if top else 0.015, "va": "top" if top else "bottom"}
    look = {"ha": "right", "fontsize": 8.5, "color": _INK, "zorder": 5}
    look["bbox"] = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1}
    text = textwrap.fill(text, _NOTE_CHARS)
    note = axis.text(s=text, **place, **look, transform=axis.transAxes)
    note.set_in_layout(False)  # a note lies on its panel: it may not push the panels apart


def _say(axis: Axes, text: str) -> None:
    axis.text(0.5, 0.5, text, ha="center", va="center", color=_INK, transform=axis.transAxes)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)


def _plain_ticks(axis, values, candidates) -> None:
    ticks = [tick for tick in candidates if values.min() * 0.999 <= tick <= values.max() * 1.001]
    axis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
