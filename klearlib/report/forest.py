"""The forest plot of all claims, claims.svg of a results folder: what a page and README show first.

A template draws it, because a report is built often and matplotlib takes a second to start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from klearlib.report.render import KINDS, VERDICT_SHAPES, lines_of, render, without_counts
from klearlib.report.section import NOT_RUN

REACH = 8.0
"""The reach of the axis to both sides, in margins; what lies beyond is an arrow at its end."""
_LEFT, _WIDTH, _ROW, _TOP = 345, 300, 21, 30
_MOST = 3  # comparisons of a claim that are drawn


def forest_svg(entries: Sequence[Mapping]) -> str | None:
    """The drawing, from entries of `klearlib.report.verdicts.ledger`; None without a difference."""
    drawn, y = [], _TOP
    for kind in KINDS:
        rows = [row for entry in entries if entry["test"] == kind for row in _rows(entry)]
        if rows:
            drawn.append({"kind": kind, "meaning": KINDS[kind], "y": y + _ROW})
            for place, row in enumerate(rows, 2):
                drawn.append(row | {"y": y + place * _ROW})
            y += (len(rows) + 1) * _ROW + 6
    if not drawn:
        return None
    ticks = {f"{tick:g}": _x(tick) for tick in (-REACH, -4.0, 0.0, 4.0, REACH)}
    margin = _x(-1.0), _x(1.0)
    shape = {"left": _LEFT, "width": _WIDTH, "top": _TOP, "bottom": y + _ROW}
    return render("forest.svg.j2", drawn=drawn, ticks=ticks, margin=margin, shape=shape)


def _rows(entry: Mapping) -> Iterator[dict]:
    """A row for each difference of a claim."""
    compared = entry["comparisons"]
    if entry["verdict"] == NOT_RUN or not compared:
        return
    if len(compared) > _MOST:
        name = f"{entry['claim']} {len(compared)} differences"
        yield {"name": name, "text": "in its notebook", "mark": None}
        return
    measured = dict(line.rpartition(": ")[::2] for line in lines_of(entry["measured"]))
    for each in compared:
        at, low, high = (each[name] for name in ("difference", "low", "high"))
        known = all(x is not None and math.isfinite(x) for x in (low, high))
        if at is None or not math.isfinite(at) or not each["margin"]:
            continue
        ends = [x / each["margin"] for x in ((low, high) if known else (at, at))]
        yield {
            "name": f"{entry['claim']} {each['name']}",
            "text": without_counts(measured.get(each["name"], "")),
            "mark": _x(at / each["margin"]),
            "ends": [_x(end) for end in ends],
            "beyond": [end < -REACH for end in ends[:1]] + [end > REACH for end in ends[1:]],
            "is_filled": known and (low > 0 or high < 0),
            "verdict": entry["verdict"],
            "shape": VERDICT_SHAPES[entry["verdict"]],
        }


def _x(margins: float) -> float:
    inside = min(REACH, max(-REACH, margins))
    return round(_LEFT + (inside / REACH + 1) * _WIDTH / 2, 1)
