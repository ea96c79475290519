"""A small forest plot as inline SVG: differences with their intervals around the line of no
difference."""

from __future__ import annotations

import math

from klearlib.report.markup import Markup, element
from klearlib.report.tables import number_text

_WIDTH, _ROW, _AXIS, _PAD = 230, 34, 22, 14
_MAX_NAME = 36


def forest_plot(comparisons: list[dict], *, percent: bool = False) -> Markup:
    """One row for each comparison: its name, its interval as a line, its difference as a mark.

    A filled mark has an interval that excludes 0, a hollow one does not, or has no interval; the
    diamond is the paper's own difference. All rows share one scale, so they can be compared.

    Args:
        comparisons: dicts with name, difference, low, high (None: no bound) and, if known, paper.
        percent: the differences are fractions of 1 and are labelled in points (times 100).

    Returns:
        An <svg> with a text for screen readers; empty markup without comparisons.
    """
    rows = [row for row in comparisons if _finite(row.get("difference"))]
    if not rows:
        return Markup("")
    values = [row.get(key) for row in rows for key in ("difference", "low", "high", "paper")]
    reach = 1.05 * max((abs(value) for value in values if _finite(value)), default=0.0) or 1.0
    height = _ROW * len(rows) + _AXIS
    parts = [
        element("line", x1=_x(0, reach), x2=_x(0, reach), y1=2, y2=height - _AXIS, class_="zero")
    ]
    for index, row in enumerate(rows):
        parts += _row(row, index * _ROW, reach)
    parts += _axis(reach, height - _AXIS, percent)
    says = "; ".join(_in_words(row, percent) for row in rows)
    return element(
        "svg",
        element("title", says),
        parts,
        class_="forest",
        role="img",
        aria_label=says,
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
    )


def _row(row: dict, top: float, reach: float) -> list[Markup]:
    name = row["name"]
    short = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
    middle = top + 24
    low, high = row.get("low"), row.get("high")
    parts = [element("text", short, x=2, y=top + 12)]
    bounded = _finite(low) and _finite(high)
    if bounded:
        ends = (_x(low, reach), _x(high, reach))
        parts.append(
            element("line", x1=ends[0], x2=ends[1], y1=middle, y2=middle, class_="interval")
        )
        for end in ends:
            parts.append(
                element("line", x1=end, x2=end, y1=middle - 4, y2=middle + 4, class_="interval")
            )
    if _finite(row.get("paper")):
        x = _x(row["paper"], reach)
        points = f"{x},{middle - 8} {x + 6},{middle} {x},{middle + 8} {x - 6},{middle}"
        parts.append(element("polygon", points=points, class_="paper"))
    decided = bounded and (low > 0 or high < 0)
    parts.append(
        element(
            "circle",
            cx=_x(row["difference"], reach),
            cy=middle,
            r=4,
            class_="decided" if decided else "open",
        )
    )
    return parts


def _axis(reach: float, y: float, percent: bool) -> list[Markup]:
    ends = [(-reach, "start", _PAD), (0.0, "middle", _x(0, reach)), (reach, "end", _WIDTH - _PAD)]
    units = ("", "", " points" if percent else "")
    line = element("line", x1=_PAD, x2=_WIDTH - _PAD, y1=y, y2=y, class_="axis")
    labels = [
        element("text", _amount(value, percent) + unit, x=x, y=y + 14, text_anchor=anchor)
        for (value, anchor, x), unit in zip(ends, units, strict=True)
    ]
    return [line, *labels]


def _x(value: float, reach: float) -> float:
    half = (_WIDTH - 2 * _PAD) / 2
    return round(_PAD + half * (1 + value / reach), 1)


def _amount(value: float, percent: bool) -> str:
    if value == 0:
        return "0"
    return (
        number_text(100 * value, digits=1, signed=True)
        if percent
        else number_text(value, signed=True)
    )


def _in_words(row: dict, percent: bool) -> str:
    unit = " points" if percent else ""
    text = f"{row['name']}: {_amount(row['difference'], percent)}{unit}"
    if _finite(row.get("low")) and _finite(row.get("high")):
        text += f", 95 % interval {_amount(row['low'], percent)} to {_amount(row['high'], percent)}"
    else:
        text += ", no interval"
    if _finite(row.get("paper")):
        text += f", paper {_amount(row['paper'], percent)}"
    return text


def _finite(value) -> bool:
    return value is not None and math.isfinite(value)
