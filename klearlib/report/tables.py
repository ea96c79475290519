"""Tables as csv with all digits, and rounded numbers and texts for people."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.run.files import write_text

if TYPE_CHECKING:
    import pandas as pd

MISSING = "–"
"""Shown where there is no number."""

# What markdown takes for more than a letter: a < before a name, an underscore next to a word, ...
_SPECIAL = re.compile(
    r"[\\`*\[\]~|$]|<(?=[A-Za-z/!?])|&(?=[A-Za-z#])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"
    r"|^[#>]|^[-+](?=\s|$)|(?<=^\d)[.)](?=\s)"
)


def plain(text: str) -> str:
    """Text that markdown shows as it is, on one line and inside a table cell too.

    >>> print(plain("<b> of max_steps < 3, *all*"))
    \\<b> of max_steps < 3, \\*all\\*
    """
    return _SPECIAL.sub(r"\\\g<0>", re.sub(r"\r\n?|\n", " ", text))


def number_text(value, *, signed: bool = False) -> str:
    """A number for people: three decimals, or as many as show two significant ones if it is
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
    if number == 0 or abs(number) >= 0.0005:
        return f"{number:{plus}.3f}"
    return f"{number:{plus}.1e}"


def interval_text(value: float, low: float, high: float) -> str:
    """A value with its interval; without finite ends, the value and the word that says so.

    >>> interval_text(61.23, 58.0, 64.44)
    '61.2 (58.0 to 64.4)'
    """

    def text(number: float) -> str:
        return f"{number:.1f}" if math.isfinite(number) else MISSING

    if text(value) == MISSING:
        return MISSING
    if text(low) == MISSING or text(high) == MISSING:
        return f"{text(value)} (no interval)"
    return f"{text(value)} ({text(low)} to {text(high)})"


def write_table(frame: pd.DataFrame, path: Path) -> Path:
    """Write a frame as csv with every digit, without its index. The folder is made if it is absent,
    and the file is whole or absent."""
    # pandas would not quote a carriage return, which a reader takes for the end of a row.
    text = frame.to_csv(index=False, lineterminator="\n").replace("\r", " ")
    return write_text(path, text, durable=False, make_folder=True)


@dataclass(frozen=True)
class CsvTable:
    """A published csv: its texts, and which columns hold no word."""

    header: list[str]
    rows: list[list[str]]
    numeric: list[bool]

    def for_people(self) -> list[list[str]]:
        """The rows with rounded numbers."""
        return [
            [_rounded(text) if number else text for text, number in cells]
            for cells in (zip(row, self.numeric, strict=True) for row in self.rows)
        ]


def read_csv(path: Path) -> CsvTable:
    """A table that `write_table` wrote. Raises ValueError where its rows are not as long as its
    header."""
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = list(zip(header, *rows, strict=True))
    return CsvTable(header, rows, [all(map(_is_number, texts)) for _, *texts in columns])


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


def _rounded(text: str) -> str:
    whole = text.removeprefix("-").isdecimal()
    return number_text(int(text) if whole else float(text or "nan"))
