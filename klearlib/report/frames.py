"""DataFrames in a notebook as the report has its tables: rounded, without an index, no column
hidden, and a dash where there is no number."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from klearlib.report.render import render
from klearlib.report.tables import CsvTable, csv_text, markdown_lines, parse_csv

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 60
"""Of a longer frame the first and the last are shown, with a row of dots between them."""


def show_frames(*, digits: int) -> None:
    """Have this notebook show every DataFrame so, with `digits` decimals; nothing happens outside
    of one. pandas is not imported."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return

    def as_text(frame: pd.DataFrame, printer, cycle: bool) -> None:
        printer.text(frame_text(frame, digits=digits))

    as_html = functools.partial(frame_html, digits=digits)
    for kind, show in (("text/html", as_html), ("text/plain", as_text)):
        formatter = shell.display_formatter.formatters[kind]
        formatter.for_type_by_name("pandas", "DataFrame", show)


def frame_html(frame: pd.DataFrame, *, digits: int) -> str:
    """The frame as an HTML table of the report, its text aligned left wherever it is shown."""
    table, rows = _as_published(frame, digits)
    return render("frame.html.j2", table=table, rows=rows, num_rows=len(table.rows))


def frame_text(frame: pd.DataFrame, *, digits: int) -> str:
    table, rows = _as_published(frame, digits)
    return markdown_lines(table.header, rows, table.numeric).rstrip("\n")


def _as_published(frame: pd.DataFrame, digits: int) -> tuple[CsvTable, list[list[str]]]:
    """As `write_table` would publish it and the report read it, and the rows to show; an index that
    says something is a column."""
    import pandas as pd

    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    table = parse_csv(csv_text(frame))
    rows, half = table.for_people(digits=digits), MAX_ROWS // 2
    if len(rows) > MAX_ROWS:
        rows = [*rows[:half], ["…"] * len(table.header), *rows[-half:]]
    return table, rows
