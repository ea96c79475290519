"""Figures: the paper's curves beside ours, the clipping rules, the clipped tokens, learning curves.

Every function takes long data (columns series, seed, step, value) and returns a figure that
`save_figure` writes as svg, png and pdf. Ours is the mean over seeds with its 95 % t interval and a
thin line for each seed; the paper's curves are dashed and have one run each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.report.bands import COLUMNS, check_columns
from klearlib.report.drawing import (
    draw_coefficient,
    draw_legend,
    draw_ours,
    draw_paper,
    plain_log_ticks,
    shade_clip_range,
    title,
)
from klearlib.report.style import figure_bytes, figure_style, new_figure, series_order
from klearlib.run.files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from matplotlib.figure import Figure

CORNER_TITLES = {
    "low_negative": "r low, A < 0\n(cut by Clip-Higher)",
    "high_positive": "r high, A > 0\n(cut by Clip-Higher)",
    "low_positive": "r low, A > 0\n(clamped by CISPO alone)",
    "high_negative": "r high, A < 0\n(clamped by CISPO alone)",
}
"""The four corners outside the clip range (`klearlib.rl.coefficients.CORNERS`)."""

QUANTITY_LABELS = {"tokens": "share of tokens", "gradient": "share of gradient mass"}
"""What `corner_shares` draws, by the word in its column `quantity`."""

_LOG_FROM = 4.0


@dataclass(frozen=True)
class Panel:
    """One column of `paper_beside_ours`: what the paper plotted and what was measured here.

    `paper` has columns series, step, value; `ours` has columns series, seed, step, value; either
    may be None or empty. The titles name benchmark and avg@n, because ours may differ from the
    paper's.
    """

    paper_title: str
    ours_title: str
    paper: pd.DataFrame | None
    ours: pd.DataFrame | None
    y_label: str = ""
    log_y: bool = False


def paper_beside_ours(panels: Iterable[Panel], *, x_label: str = "RL step") -> Figure:
    """One column for each panel: the paper's curves on top, ours below.

    The two rows have their own axes, since scale and benchmark differ below paper scale: compare
    the order and the shape of the curves, not their height.

    Raises:
        ValueError: there is no panel, or a frame lacks a column.
    """
    panels = list(panels)
    if not panels:
        raise ValueError("paper_beside_ours needs at least one panel")
    figure = new_figure(max(3.75 * len(panels), 6.5), 6.6)
    with figure_style():
        axes = figure.subplots(2, len(panels), squeeze=False)
        for panel, top, bottom in zip(panels, axes[0], axes[1], strict=True):
            for axis, frame in ((top, panel.paper), (bottom, panel.ours)):
                axis.set_ylabel(panel.y_label)
                if panel.log_y and frame is not None and len(frame):
                    axis.set_yscale("log")
            draw_paper(top, panel.paper)
            draw_ours(bottom, panel.ours)
            for axis in (top, bottom):
                if axis.get_yscale() == "log":
                    plain_log_ticks(axis)
            title(top, f"Paper: {panel.paper_title}")
            title(bottom, f"Here: {panel.ours_title}")
            bottom.set_xlabel(x_label)
        draw_legend(figure, [p.ours for p in panels], [p.paper for p in panels])
    return figure


def learning_curves(
    frame: pd.DataFrame, *, x_label: str = "RL step", y_label: str = "", max_columns: int = 3
) -> Figure:
    """Our curves as small multiples: one panel for each value of the column `panel`, if there is
    one.

    Args:
        frame: columns series, seed, step, value and, where there are several panels, panel (a
            title).
        max_columns: panels in a row, at most.

    Raises:
        ValueError: a column is missing.
    """
    check_columns(frame, COLUMNS)
    if "panel" in frame.columns and len(frame):
        parts = [(str(name), part) for name, part in frame.groupby("panel", sort=False)]
    else:
        parts = [("", frame)]
    num_rows = -(-len(parts) // max_columns)
    num_columns = -(-len(parts) // num_rows)
    figure = new_figure(max(3.75 * num_columns, 6.5), 3.0 * num_rows + 0.6)
    with figure_style():
        axes = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
        for axis, (name, part) in zip(axes, parts, strict=False):
            draw_ours(axis, part)
            title(axis, name)
            axis.set(xlabel=x_label, ylabel=y_label)
        for axis in axes[len(parts) :]:
            axis.remove()
        draw_legend(figure, [frame])
    return figure


def coefficient_curves(
    frame: pd.DataFrame, *, eps_low: float | None = None, eps_high: float | None = None
) -> Figure:
    """The coefficient F against the ratio, for A > 0 and for A < 0: the clipping rules at a glance.

    Rules that agree lie exactly on one another, so each line is narrower than the one below it and
    carries its markers at its own places: every rule can be seen wherever it runs.

    Args:
        frame: columns rule, sign ("positive" or "negative", the sign of A), ratio (> 0),
            coefficient.
        eps_low, eps_high: offsets from 1 of the clip range, drawn as a shaded span.

    Raises:
        ValueError: a column is missing, the frame is empty, or a sign is another word.
    """
    check_columns(frame, ("rule", "sign", "ratio", "coefficient"))
    _check_words(frame, "sign", ("positive", "negative"))
    if not len(frame):
        raise ValueError("coefficient_curves needs at least one rule, got an empty frame")
    rules = series_order(frame["rule"])
    figure = new_figure(10.8, 4.9)
    with figure_style():
        axes = figure.subplots(1, 2, sharey=True)
        for axis, sign in zip(axes, ("positive", "negative"), strict=True):
            for place, rule in enumerate(rules):
                chosen = frame[(frame["sign"] == sign) & (frame["rule"] == rule)]
                line = chosen.sort_values("ratio")
                draw_coefficient(axis, line, rule, place=place, count=len(rules))
            shade_clip_range(axis, eps_low, eps_high)
            axis.set_xscale("log")
            _plain_ticks(axis.xaxis, frame["ratio"], (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100))
            axis.set_title("A > 0" if sign == "positive" else "A < 0")
            axis.set_xlabel("ratio r (log scale)")
        _coefficient_scale(axes[0], frame["coefficient"])
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(rules), 5))
    return figure


def corner_shares(frame: pd.DataFrame, *, x_label: str = "RL step") -> Figure:
    """How much a rule could matter: the share of tokens (top) and of gradient mass (bottom) outside
    the clip range, by corner.

    Args:
        frame: columns series, seed, step, corner (a key of `CORNER_TITLES`), quantity (a key of
            `QUANTITY_LABELS`) and value, a share in [0, 1] of all response tokens of the step or of
            the sum of their absolute gradients.

    Raises:
        ValueError: a column is missing, or a corner or quantity is another word.
    """
    from matplotlib.ticker import PercentFormatter

    check_columns(frame, (*COLUMNS, "corner", "quantity"))
    _check_words(frame, "corner", CORNER_TITLES)
    _check_words(frame, "quantity", QUANTITY_LABELS)
    quantities = [name for name in QUANTITY_LABELS if name in set(frame["quantity"])] or ["tokens"]
    figure = new_figure(12.0, 2.8 * len(quantities) + 0.9)
    with figure_style():
        axes = figure.subplots(len(quantities), 4, squeeze=False, sharey="row", sharex=True)
        for row, quantity in enumerate(quantities):
            chosen = frame[frame["quantity"] == quantity]
            top = chosen["value"].max() if len(chosen) else 0.0
            limits = (-0.03 * top, 1.08 * top) if top > 0 else (-0.0003, 0.01)
            for axis, (corner, words) in zip(axes[row], CORNER_TITLES.items(), strict=True):
                here = chosen[chosen["corner"] == corner]
                note = "top" if (row, corner) == (0, "low_negative") else ""
                draw_ours(axis, here, limits=limits, note=note)
                if row == 0:
                    axis.set_title(words, fontsize=10.5)
                if row == len(quantities) - 1:
                    axis.set_xlabel(x_label)
            axes[row, 0].set_ylabel(QUANTITY_LABELS[quantity])
            axes[row, 0].yaxis.set_major_formatter(PercentFormatter(1.0))
        draw_legend(figure, [frame])
    return figure


def save_figure(figure: Figure, folder: Path, name: str) -> dict[str, Path]:
    """Write <name>.svg, .png and .pdf into `folder`; equal figures give equal bytes.

    Returns:
        The three paths by kind. Each file is written whole or not at all.
    """
    paths = {kind: Path(folder) / f"{name}.{kind}" for kind in ("svg", "png", "pdf")}
    for kind, path in paths.items():
        write_bytes(path, figure_bytes(figure, kind), durable=False, make_folder=True)
    return paths


def _coefficient_scale(axis, values) -> None:
    """Unclipped rules reach the largest ratio, so F is logarithmic like the ratio, with a place for
    0."""
    top = values.max()
    if top > _LOG_FROM:
        axis.set_yscale("symlog", linthresh=values[values > 0].min(), linscale=0.35)
        _plain_ticks(axis.yaxis, values, (0, 0.1, 0.2, 0.5, 0.8, 1.28, 2, 5, 10, 20, 50))
        axis.set_ylabel("coefficient F (log scale, and 0)")
        axis.set_ylim(-0.3 * values[values > 0].min(), top * 1.4)
    else:
        axis.set_ylabel("coefficient F")


def _plain_ticks(axis, values, candidates) -> None:
    ticks = [tick for tick in candidates if values.min() * 0.999 <= tick <= values.max() * 1.001]
    axis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def _check_words(frame: pd.DataFrame, column: str, known) -> None:
    unknown = sorted(map(str, set(frame[column]) - set(known)))
    if unknown:
        raise ValueError(f"{column} must be one of {', '.join(known)}; got {', '.join(unknown)}")
