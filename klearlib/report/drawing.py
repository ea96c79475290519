"""What one panel shows: paper, ours with band and seeds, a rule's coefficient, a legend."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from klearlib.report.bands import check_columns, seed_bands, seeds_text
from klearlib.report.style import PAPER_DASH, series_order, series_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#444444"
_MAX_MARKERS = 30
_SMOOTHED_FROM = 60
_SMOOTHING_STEPS = 21
_NOTE_CHARS = 36


def draw_paper(axis: Axes, frame: pd.DataFrame | None) -> None:
    """The paper's curves, dashed; a curve of many points is thin, under its running median."""
    if frame is None or not len(frame):
        _say(axis, "the paper has no such curve")
        return
    check_columns(frame, ("series", "step", "value"))
    smoothed = False
    for name in series_order(frame["series"]):
        curve = frame[frame["series"] == name].sort_values("step")
        style = series_style(name)
        dash = {"color": style.color, "linestyle": PAPER_DASH}
        if len(curve) <= _SMOOTHED_FROM:
            axis.plot(
                curve["step"],
                curve["value"],
                **dash,
                linewidth=1.6,
                marker=style.marker,
                markersize=4,
            )
            continue
        smoothed = True
        middle = curve["value"].rolling(_SMOOTHING_STEPS, center=True).median()
        axis.plot(curve["step"], curve["value"], color=style.color, linewidth=0.5, alpha=0.45)
        axis.plot(curve["step"], middle, **dash, linewidth=2.0, zorder=3)
    if smoothed:
        _note(axis, f"dashed: median of {_SMOOTHING_STEPS} steps", top=True)


def draw_ours(
    axis: Axes,
    frame: pd.DataFrame | None,
    *,
    limits: tuple[float, float] | None = None,
    note: str = "bottom",
) -> None:
    """Our curves, solid: the mean over seeds, its 95 % band, and a thin line for each seed.

    `limits` of the y axis: by default around the values of the seeds. `note`: where the number of
    seeds stands, "bottom" or "top", or "" for nowhere.
    """
    if frame is None or not len(frame):
        _say(axis, "not run yet")
        return
    bands = seed_bands(frame)
    names = series_order(frame["series"])
    one_step = frame["step"].nunique() == 1
    for place, name in enumerate(names):
        # at a single step the series would hide one another
        shift = 0.12 * (place - (len(names) - 1) / 2) if one_step else 0.0
        _draw_series(axis, frame[frame["series"] == name], bands[bands["series"] == name], shift)
    limits = limits or _limits(frame["value"].to_numpy(float), log=axis.get_yscale() == "log")
    if limits:
        axis.set_ylim(*limits)
    for name in names:
        band = bands[bands["series"] == name]
        axis.fill_between(
            band["step"].to_numpy(float),
            band["low"].to_numpy(float),
            band["high"].to_numpy(float),
            color=series_style(name).color,
            alpha=0.16,
            linewidth=0,
        )
    _whole_steps(axis, frame["step"])
    if note:
        text = seeds_text(frame, lambda name: series_style(name).label)
        if limits and (bands["low"].min() < limits[0] or bands["high"].max() > limits[1]):
            text += "; band cut by the frame"
        _note(axis, text, top=note == "top")


def draw_coefficient(axis: Axes, line: pd.DataFrame, rule: str, *, place: int, count: int) -> None:
    """One rule's F against the ratio, as the `place`-th of `count` lines that may coincide.

    A later line is narrower than the ones below it and has its markers at places of its own. A fall
    to zero is no slope: the line stops there and a dotted one joins its ends.
    """
    import numpy as np

    style = series_style(rule)
    ratio = line["ratio"].to_numpy(float)
    value = line["coefficient"].to_numpy(float)
    falls = np.flatnonzero((value[1:] == 0) != (value[:-1] == 0))
    for fall in falls:
        axis.plot(
            ratio[fall : fall + 2], value[fall : fall + 2], color=style.color, linestyle=":",
            linewidth=1.4,
        )  # fmt: skip
    every = max(len(ratio) // 6, 1)
    first = min(place * every // count, max(len(ratio) - 1, 0))
    broken = np.insert(value, falls + 1, np.nan)
    axis.plot(
        np.insert(ratio, falls + 1, np.nan),
        broken,
        color=style.color,
        linewidth=1.6 + 1.8 * (count - 1 - place),
        solid_capstyle="butt",
        marker=style.marker,
        markersize=6.5,
        markerfacecolor="white",
        markeredgewidth=1.5,
        markevery=(first, every),
        label=style.label,
        zorder=2 + 0.1 * place,
    )


def shade_clip_range(axis: Axes, eps_low: float | None, eps_high: float | None) -> None:
    """Grey between 1 - eps_low and 1 + eps_high, where all rules agree; nothing without both."""
    if eps_low is None or eps_high is None:
        return
    low, high = 1 - eps_low, 1 + eps_high
    axis.axvspan(low, high, color="#000000", alpha=0.06, linewidth=0, zorder=0)
    axis.text(
        (low * high) ** 0.5, 0.985, "clip\nrange", transform=axis.get_xaxis_transform(),
        ha="center", va="top", fontsize=8.5, color=_INK,
    )  # fmt: skip


def draw_legend(figure: Figure, ours, paper=()) -> None:
    """One legend below all panels: the series of all frames, and what dashes and bands mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ours = [frame for frame in ours if frame is not None and len(frame)]
    paper = [frame for frame in paper if frame is not None and len(frame)]
    names = [name for frame in [*ours, *paper] for name in frame["series"].unique()]
    styles = list(dict.fromkeys(series_style(name) for name in series_order(names)))
    handles = [Line2D([], [], color=s.color, marker=s.marker, label=s.label) for s in styles]
    if paper:
        handles.append(
            Line2D([], [], color=_INK, linestyle=PAPER_DASH, label="paper, one run each")
        )
    if any((frame.groupby("series")["seed"].nunique() > 1).any() for frame in ours):
        handles.append(Line2D([], [], color=_INK, label="here, mean over seeds"))
        handles.append(Line2D([], [], color=_INK, linewidth=0.7, label="here, one seed"))
        handles.append(Patch(color=_INK, alpha=0.2, label="95 % interval over seeds"))
    elif ours:
        handles.append(Line2D([], [], color=_INK, label="here, one seed"))
    if handles:
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=max(int(figure.get_figwidth() / 2.75), 1),
        )


def title(axis: Axes, text: str) -> None:
    """A panel's title, in lines that fit above it."""
    axis.set_title(textwrap.fill(text, 40))


def plain_log_ticks(axis: Axes) -> None:
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
            axis.plot(
                curve["step"] + shift,
                curve["value"],
                color=style.color,
                linewidth=0.7,
                alpha=0.45,
                marker="." if len(curve) == 1 else None,
            )
    many = len(band) > _MAX_MARKERS
    axis.plot(
        band["step"] + shift,
        band["mean"],
        color=style.color,
        linewidth=1.5 if many else 2.1,
        marker=None if many else style.marker,
        zorder=3,
    )
    if len(band) == 1:
        axis.vlines(band["step"] + shift, band["low"], band["high"], color=style.color, alpha=0.5)


def _limits(values, *, log: bool) -> tuple[float, float] | None:
    """Limits from the seeds' own values: with two seeds t is 12.7, and a band of that width would
    squeeze every curve flat."""
    import numpy as np

    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    if not len(values):
        return None
    low, high = values.min(), values.max()
    if log:
        factor = (high / low) ** 0.12 if high > low else 1.2
        return low / factor, high * factor
    margin = 0.12 * (high - low) or 0.05 * abs(high) or 0.05
    return low - margin, high + margin


def _whole_steps(axis: Axes, steps) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if steps.min() == steps.max():
        axis.set_xlim(steps.min() - 1, steps.max() + 1)


def _note(axis: Axes, text: str, *, top: bool = False) -> None:
    note = axis.text(
        0.99, 0.985 if top else 0.015, textwrap.fill(text, _NOTE_CHARS),
        transform=axis.transAxes, ha="right", va="top" if top else "bottom", fontsize=8.5,
        color=_INK, zorder=5,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
    )  # fmt: skip
    note.set_in_layout(False)  # a note lies on its panel: it may not push the panels apart


def _say(axis: Axes, text: str) -> None:
    axis.text(0.5, 0.5, text, ha="center", va="center", color=_INK, transform=axis.transAxes)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
