"""Curves over the steps of training: the paper's beside ours, learning curves and the clipped
tokens.

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
"""The fewest seeds with a band: with two, t is 12.7 and the band would fill its panel."""

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

    A mean over some of the seeds would jump when a seed is late or diverges, so mean, low and high
    are NaN where not every seed has a finite value. With fewer than `least` seeds, at least 2,
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
    """How many seeds the curves have.

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
    less: the series of ours that the others are compared with, in a row of its own; "" for none.
    """

    paper_title: str
    ours_title: str
    paper: pd.DataFrame | None
    ours: pd.DataFrame | None
    y_label: str = ""
    log_y: bool = False
    is_rate: bool = False
    less: str = ""


def paper_beside_ours(panels: Sequence[Panel]) -> Figure:
    """One column for each panel: the paper's curves on top, ours below, and, where a panel names
    `less`, each other series less that one, paired by seed, as seeds differ more than series do.

    The rows have their own axes, since scale and benchmark differ below paper scale: compare the
    order and the shape of the curves, not their height.
    """
    paired = [_less(panel) for panel in panels]
    num_rows = 2 + any(frame is not None for frame in paired)
    figure = new_figure(max(3.75 * len(panels), 6.5), 3.0 * num_rows + 0.6)
    with figure_style():
        axes = figure.subplots(num_rows, len(panels), squeeze=False)
        for panel, frame, (top, middle, *bottom) in zip(panels, paired, axes.T, strict=True):
            for axis, drawn in ((top, panel.paper), (middle, panel.ours)):
                axis.set_ylabel(panel.y_label)
                if panel.log_y and drawn is not None and len(drawn):
                    axis.set_yscale("log")
            if panel.paper is None:
                top.axis("off")
            else:
                _draw_paper(top, panel.paper)
                title(top, f"Paper: {panel.paper_title}")
            _draw_ours(middle, panel.ours, is_rate=panel.is_rate, is_mean_alone=frame is not None)
            for axis in (top, middle):
                if axis.get_yscale() == "log":
                    _plain_log_ticks(axis)
            title(middle, f"Here: {panel.ours_title}")
            middle.set_xlabel("RL step")
            for axis in bottom:
                if frame is None:
                    axis.axis("off")
                    continue
                axis.axhline(0.0, color=series_style(panel.less).color, linewidth=1.6)
                _draw_ours(axis, frame)
                title(axis, f"Here: minus {series_style(panel.less).label}, by seed")
                axis.set_ylabel("difference, points")
                axis.set_xlabel("RL step")
        free = axes[-1, -1] if num_rows > 2 and paired[-1] is None else None
        _draw_legend(figure, [p.ours for p in panels], [p.paper for p in panels], on=free)
    return figure


def _less(panel: Panel) -> pd.DataFrame | None:
    """Each series of a panel minus the one that it names, in points, for the seeds of both."""
    if not panel.less or panel.ours is None or not len(panel.ours):
        return None
    wide = panel.ours.pivot(index=["seed", "step"], columns="series", values="value")
    if panel.less not in wide or len(wide.columns) < 2:
        return None
    found = 100 * wide.drop(columns=panel.less).sub(wide[panel.less], axis=0)
    long = found.melt(ignore_index=False).reset_index().dropna(subset="value")
    return long if len(long) else None


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


def _draw_paper(axis: Axes, frame: pd.DataFrame) -> None:
    """The paper's curves, dashed; a curve of many points is thin, under its running median."""
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
    is_mean_alone: bool = False,
) -> None:
    """Our curves, solid: the mean over seeds, its 95 % band, and a thin line for each seed.

    limits: of the y axis; by default the range of the lines and 12 % on either side. A band beyond
    them is cut, and the panel says so. note: where the number of seeds stands, "bottom" or "top",
    or "" for nowhere. is_mean_alone: without band and thin lines.
    """
    from matplotlib.ticker import MaxNLocator

    if frame is None or not len(frame):
        _say(axis, "not run yet")
        return
    bands, steps, seeds = seed_bands(frame), frame["step"], seeds_text(frame)
    if is_mean_alone:
        bands[["low", "high"]] = np.nan
        frame = bands.rename(columns={"mean": "value"}).assign(seed=0)
    if is_rate:
        bands[["low", "high"]] = bands[["low", "high"]].clip(0.0, 1.0)
    names = series_order(frame["series"])
    for place, name in enumerate(names):
        # at a single step the series would hide each other
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
        text = seeds
        if limits and (bands["low"].min() < limits[0] or bands["high"].max() > limits[1]):
            text += "; band cut by the frame"
        _note(axis, text, top=note == "top")


def _draw_legend(figure: Figure, ours, paper=(), on: Axes | None = None) -> None:
    """One legend below all panels, or on an empty one: the series of all frames, and what dashes
    and bands mean."""
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
    if handles and on is not None:
        on.legend(handles=handles, loc="center")
    elif handles:
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
