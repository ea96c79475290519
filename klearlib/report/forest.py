"""A small forest plot as inline SVG: differences with their intervals around the line of no
difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klearlib.report.render import render
from klearlib.report.tables import number_text

_WIDTH, _ROW, _AXIS, _PAD = 230, 34, 22, 14
_MAX_NAME = 36


def forest_plot(comparisons: Sequence[Mapping], *, percent: bool = False) -> str:
    """One row for each comparison: its name, its interval as a line, its difference as a mark.

    A filled mark has an interval that excludes 0, a hollow one does not, or has no interval; the
    diamond is the paper's own difference, the shade the margin. All rows share one scale, so they
    can be compared.

    comparisons: with name, difference, low, high (None: no bound), margin and, if known, paper.
    percent: the differences are fractions of 1 and are labelled in points (times 100). Returns an
    <svg> with a text for screen readers; an empty text without comparisons.
    """
    if not comparisons:
        return ""
    rows = []
    for each in comparisons:
        name, low, high = each["name"], each["low"], each["high"]
        bounded = low is not None and high is not None
        short = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
        about = {"short": short, "bounded": bounded, "decided": bounded and (low > 0 or high < 0)}
        rows.append({"paper": None, **each, **about})
    values = [row[key] for row in rows for key in ("difference", "low", "high", "paper", "margin")]
    reach = 1.05 * max(abs(value) for value in values if value is not None) or 1.0
    bottom, unit = _ROW * len(rows), " points" if percent else ""

    def x(value: float) -> float:
        half = (_WIDTH - 2 * _PAD) / 2
        return round(_PAD + half * (1 + value / reach), 1)

    labels = [
        (amount(-reach, percent), "start", _PAD),
        ("0", "middle", x(0)),
        (amount(reach, percent) + unit, "end", _WIDTH - _PAD),
    ]
    return render(
        "forest.svg.j2",
        says="; ".join(_in_words(row, percent) for row in rows),
        rows=rows,
        labels=labels,
        x=x,
        bottom=bottom,
        height=bottom + _AXIS,
        width=_WIDTH,
        pad=_PAD,
        row_height=_ROW,
    )


def amount(value: float, percent: bool) -> str:
    """A difference with its sign, times 100 with `percent`."""
    if value == 0:
        return "0"
    if percent:
        return number_text(100 * value, digits=1, signed=True)
    return number_text(value, signed=True)


def _in_words(row: dict, percent: bool) -> str:
    text = f"{row['name']}: {amount(row['difference'], percent)}{' points' if percent else ''}"
    if row["bounded"]:
        text += f", 95 % interval {amount(row['low'], percent)} to {amount(row['high'], percent)}"
    else:
        text += ", no interval"
    if row["paper"] is not None:
        text += f", paper {amount(row['paper'], percent)}"
    return text
