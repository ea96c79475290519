"""Tables as csv (all digits, for machines) and markdown (rounded, for people), and number texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.run.files import write_text

if TYPE_CHECKING:
    import pandas as pd

MISSING = "–"
"""What stands where there is no number."""


def number_text(value, *, digits: int = 3, signed: bool = False) -> str:
    """A number for people: `digits` decimals, or as many as show two significant ones if it is
    small.

    Whole numbers and words stay as they are; None, NaN and infinities become a dash.

    >>> number_text(0.51234), number_text(0.2, signed=True), number_text(0.00001234), number_text(7)
    ('0.512', '+0.200', '1.2e-05', '7')
    """
    if value is None:
        return MISSING
    if isinstance(value, (str, bool)):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return MISSING
    plus = "+" if signed else ""
    if hasattr(value, "__index__"):
        return f"{int(value):{plus}d}"
    if number == 0 or abs(number) >= 0.5 * 10**-digits:
        return f"{number:{plus}.{digits}f}"
    return f"{number:{plus}.1e}"


def interval_text(
    value: float, low: float, high: float, *, digits: int = 1, signed: bool = False
) -> str:
    """A value with its interval; without finite ends, the value and the word that says so.

    >>> interval_text(61.23, 58.0, 64.44)
    '61.2 (58.0 to 64.4)'
    """

    def text(number: float) -> str:
        if number is None or not math.isfinite(number):
            return MISSING
        return f"{number:{'+' if signed else ''}.{digits}f}"

    if text(value) == MISSING:
        return MISSING
    if text(low) == MISSING or text(high) == MISSING:
        return f"{text(value)} (no interval)"
    return f"{text(value)} ({text(low)} to {text(high)})"


def write_table(
    frame: pd.DataFrame, folder: Path, name: str, *, digits: int | dict[str, int] = 3
) -> dict[str, Path]:
    """Write <name>.csv with every digit and <name>.md for people; the index is not written.

    Args:
        frame: one row for each line; column names become the headers.
        folder, name: where; the folder is made if it is absent.
        digits: decimals of the floating point columns in the markdown, for all or by column.

    Returns:
        The two paths by kind. Each file is written whole or not at all.
    """
    texts = {
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": markdown_table(frame, digits=digits),
    }
    paths = {kind: Path(folder) / f"{name}.{kind}" for kind in texts}
    for kind, path in paths.items():
        write_text(path, texts[kind], durable=False, make_folder=True)
    return paths


def markdown_table(frame: pd.DataFrame, *, digits: int | dict[str, int] = 3) -> str:
    """The frame as a markdown table; columns of numbers are aligned right.

    >>> import pandas as pd
    >>> print(markdown_table(pd.DataFrame({"rule": ["gppo"], "score": [0.51234]})), end="")
    | rule | score |
    | :--- | ---: |
    | gppo | 0.512 |
    """
    lookup = digits if isinstance(digits, dict) else {}
    default = 3 if isinstance(digits, dict) else digits
    numeric = [frame[column].dtype.kind in "iuf" for column in frame.columns]
    rows = [[str(column) for column in frame.columns]]
    for values in frame.itertuples(index=False, name=None):
        pairs = zip(frame.columns, values, strict=True)
        rows.append([number_text(v, digits=lookup.get(c, default)) for c, v in pairs])
    return markdown_rows(rows, numeric)


def markdown_rows(rows, numeric, *, escaped: bool = False) -> str:
    """Markdown of `rows` of texts, the first being the header; `numeric` says which align right.

    `escaped`: the texts are markdown already.
    """
    lines = [_line(row if escaped else map(_escape, row)) for row in rows]
    lines.insert(1, _line("---:" if right else ":---" for right in numeric))
    return "\n".join(lines) + "\n"


def read_markdown_table(text: str) -> tuple[list[str], list[bool], list[list[str]]]:
    """The header, which columns are numeric, and the rows of what `markdown_rows` wrote.

    Raises:
        ValueError: the text is no such table.
    """
    lines = [_cells(line) for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
        raise ValueError("not a markdown table with as many cells in every row as in its header")
    return lines[0], [mark.endswith(":") for mark in lines[1]], lines[2:]


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", " ")


def _cells(line: str) -> list[str]:
    cells, current, characters = [], "", iter(line.strip())
    for character in characters:
        if character == "\\":
            current += next(characters, "")
        elif character == "|":
            cells.append(current.strip())
            current = ""
        else:
            current += character
    return cells[1:]
