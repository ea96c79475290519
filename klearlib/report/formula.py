"""Formulas as drawings for the report, which needs no script, font or network to show them."""

from __future__ import annotations

import functools
import html
import re

from klearlib.errors import KlearError

_SIZE, _PIXELS = 100, 18  # units of the drawing and pixels on the page to one em
# What matplotlib's mathtext has under another name, and sums and fractions in display style.
_SPELLED = {r"\frac": r"\dfrac", r"\tfrac": r"\frac", r"\sum": r"\;\sum"} | {
    r"\iff": r"\Leftrightarrow",
    r"\lVert": r"\Vert",
    r"\rVert": r"\Vert",
}
_LETTERS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}  # matplotlib's codes of a path


@functools.cache
def formula_svg(latex: str) -> str:
    """One formula as an <svg> in the colour of the text around it, with its LaTeX for readers who
    hear the page. Equal formulas give equal bytes.

    Raises KlearError for LaTeX that matplotlib's mathtext does not know.
    """
    from matplotlib import rc_context
    from matplotlib.textpath import TextPath

    known = re.sub(r"\\[A-Za-z]+", lambda command: _SPELLED.get(command[0], command[0]), latex)
    try:
        with rc_context({"mathtext.fontset": "stix"}):
            path = TextPath((0, 0), f"${known.strip()}$", size=_SIZE)
    except ValueError as error:
        why = str(error).strip().splitlines()[-1]
        raise KlearError(f"mathtext cannot draw the formula {latex!r} ({why})") from error
    steps = "".join(
        _LETTERS[code] + ("" if code == 79 else " ".join(map(str, _below(points))))
        for points, code in path.iter_segments(simplify=False)
    )
    (left, low), (right, high) = path.get_extents().get_points().round().astype(int)
    scale = _PIXELS / _SIZE
    return (
        f'<svg class="math" role="img" viewBox="{left} {-high} {right - left} {high - low}" '
        f'width="{scale * (right - left):.0f}" height="{scale * (high - low):.0f}" '
        f'aria-label="{html.escape(latex.strip())}"><path d="{steps}"/></svg>'
    )


def _below(points) -> list[int]:
    """x and y by turns, y downwards as SVG has it."""
    return [-round(value) if place % 2 else round(value) for place, value in enumerate(points)]
