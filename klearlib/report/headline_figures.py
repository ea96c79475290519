"""Final scores as horizontal bars: the paper's models above, the steps of our pipeline below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klearlib.report.bands import check_columns
from klearlib.report.style import figure_style, new_figure, series_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PALE = "#E9E9E9"
_INK = "#444444"
_ROOM = 1.32  # of the longest bar or interval, so that the number beside it fits


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
    interval: str,
) -> Figure:
    """One column for each benchmark: the scores of the paper's models on top, dashed; ours below,
    with an interval and, where there are several, a dot for each seed. The two rows have their own
    scales.

    Args:
        paper_models, our_models: the bars, the first on top. highlight: the paper's own model.
        interval: what the whiskers are, for the legend.

    Raises:
        ValueError: there is no panel, or a frame lacks a column.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if not panels:
        raise ValueError("headline_bars needs at least one panel")
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
            Line2D([], [], color="black", linewidth=1.3, label=interval),
        ]
        if any(panel.seeds["model"].duplicated().any() for panel in panels):
            dot = {"color": "black", "marker": ".", "linestyle": "none"}
            handles.append(Line2D([], [], **dot, label="here, one seed"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def model_color(model: str) -> str:
    """The colour of a step of the pipeline: that of its learning curves where it has some.

    >>> model_color("base model")
    '#4D4D4D'
    """
    return series_style(model.partition(",")[0]).color


def _draw_paper(axis: Axes, frame: pd.DataFrame, models: Sequence[str], highlight: str) -> None:
    check_columns(frame, ("model", "value"))
    values = frame.set_index("model")["value"]
    for place, model in enumerate(models):
        if model in values.index:
            own = model == highlight
            color = model_color("code RL") if own else _INK
            axis.barh(
                place, values[model], height=0.7, facecolor=_PALE, edgecolor=color, linestyle="--",
                linewidth=1.8 if own else 1.0,
            )  # fmt: skip
            _write(axis, values[model], place, values[model], bold=own)
    _scale(axis, values.max() if len(values) else 0.0)


def _draw_ours(axis: Axes, panel: BarPanel, models: Sequence[str]) -> None:
    check_columns(panel.ours, ("model", "value", "low", "high"))
    check_columns(panel.seeds, ("model", "seed", "value"))
    rows, ends = panel.ours.set_index("model"), [0.0]
    if not len(rows):
        axis.text(0.5, 0.5, "not run yet", transform=axis.transAxes, ha="center", color=_INK)
    for place, model in enumerate(models):
        if model not in rows.index:
            continue
        value, low, high = (float(rows.loc[model, name]) for name in ("value", "low", "high"))
        axis.barh(
            place, value, height=0.7, color=model_color(model), edgecolor="white", linewidth=0.0,
            hatch="///" if "," in model else None,
        )  # fmt: skip
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
    axis.annotate(
        f"{100 * value:.1f}", (end, place), xytext=(4, 0), textcoords="offset points",
        va="center", fontsize=9, fontweight="bold" if bold else "normal",
    )  # fmt: skip


def _scale(axis: Axes, longest: float) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axis.set_xlim(0, _ROOM * longest if longest > 0 else 1.0)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=3))
    axis.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
