"""Plain numbers, compared exactly: integers, decimals, percentages and fractions of integers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from klearlib.verify.extract import MAX_ANSWER_CHARS, trim

DECIMAL_PLACES = 6
MAX_RELATIVE_ERROR = Fraction(1, 1000)

_NUMBER = re.compile(r"(?P<sign>[+-]?)\s*(?P<digits>\d+|\d*\.\d+)\s*(?P<percent>\\?%)?", re.ASCII)
# math-verify reads "+1,234" and "1,234%" as lists, so neither is a plain number.
_GROUPED = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_SLASH = re.compile(r"([+-]?)\s*(\d+)\s*/\s*([+-]?\d+)", re.ASCII)
_FRAC = re.compile(
    r"([+-]?)\s*\\[dtc]?frac\s*(?:(\d)|\{\s*([+-]?\d+)\s*\})\s*(?:(\d)|\{\s*([+-]?\d+)\s*\})",
    re.ASCII,
)
_REPEATING = re.compile(
    r"([+-]?)\s*(\d+)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}",
    re.ASCII,
)
_NO_MEANING = re.compile(r"\\!\s*|\\?\$")
_IN_BRACES = re.compile(r"\{([^{},]*)\}")
# math-verify reads "1\,234" as the mixed number 1 + 234.
_THIN_SPACE = re.compile(r"(?<=\d)\s*(?:\\[,;: ]|\{,\})\s*(?=\d{3}(?!\d))", re.ASCII)


class PlainNumber(NamedTuple):
    """A number that was written without any operation but one division.

    `value` is exact, a percentage counted as hundredths; `integer` is the integer as written (50
    for "50%"), None for other forms; `is_decimal`: it was written with a point.
    """

    value: Fraction
    integer: int | None = None
    is_decimal: bool = False


def read_number(text: str) -> PlainNumber | None:
    r"""The plain number that `text` is, or None: then the text is for math-verify.

    >>> read_number("-1,234.50").value
    Fraction(-2469, 2)
    >>> read_number(r"\dfrac{2}{4}").value, read_number("073").integer, read_number("1+1")
    (Fraction(1, 2), 73, None)
    >>> read_number(r"0.1\overline{6}").value, read_number(r"12\,500").value
    (Fraction(1, 6), Fraction(12500, 1))
    """
    if len(text) > MAX_ANSWER_CHARS:
        return None
    text = _NO_MEANING.sub("", trim(text)).replace("\u2212", "-").strip()
    text = _THIN_SPACE.sub(",", text)
    if match := _IN_BRACES.fullmatch(text):
        text = match[1].strip()
    if match := _NUMBER.fullmatch(text):
        is_decimal = "." in match["digits"]
        written = Fraction(match["sign"] + match["digits"])
        return PlainNumber(
            value=written / 100 if match["percent"] else written,
            integer=None if is_decimal else int(written),
            is_decimal=is_decimal,
        )
    if _GROUPED.fullmatch(text):
        value = Fraction(text.replace(",", ""))
        is_decimal = "." in text
        return PlainNumber(value, None if is_decimal else int(value), is_decimal)
    if match := _SLASH.fullmatch(text):
        return _quotient(*match.groups())
    if match := _FRAC.fullmatch(text):
        sign, top_digit, top, bottom_digit, bottom = match.groups()
        return _quotient(sign, top_digit or top, bottom_digit or bottom)
    if match := _REPEATING.fullmatch(text):
        sign, whole, once, again = match.groups()
        shift = 10 ** len(once)
        value = Fraction(int(whole + once), shift)
        value += Fraction(int(again), shift * (10 ** len(again) - 1))
        return PlainNumber(-value if sign == "-" else value)
    return None


def same_number(gold: PlainNumber, prediction: PlainNumber) -> bool:
    """Whether two plain numbers are the same answer, by math-verify's rules without its slips.

    Equal values are the same, and so are an integer and the same integer as a percentage (50 and
    50%). Where one of the two is written with a point and neither is exactly an integer, they are
    the same when both round to the same six decimal places, so 0.333333 answers 1/3.

    Differences from math-verify 0.9.0: its six places are absolute, so 1e-7 passes for 2e-7; here
    the two must also agree to 1/1000 of the larger. It rejects ``385.`` for 385 and -50% for -50.

    >>> same_number(read_number("1/3"), read_number("0.333333"))
    True
    """
    if gold.value == prediction.value:
        return True
    if gold.integer is not None and gold.integer == prediction.integer:
        return True
    if not (gold.is_decimal or prediction.is_decimal):
        return False
    if any(not n.is_decimal and n.value.denominator == 1 for n in (gold, prediction)):
        return False
    a, b = gold.value, prediction.value
    if abs(a - b) > MAX_RELATIVE_ERROR * max(abs(a), abs(b)):
        return False
    return round(a, DECIMAL_PLACES) == round(b, DECIMAL_PLACES)


def _quotient(sign: str, top: str, bottom: str) -> PlainNumber | None:
    denominator = int(bottom)
    if denominator == 0:
        return None
    value = Fraction(int(top), denominator)
    return PlainNumber(-value if sign == "-" else value)
