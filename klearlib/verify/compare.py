"""Is what a program printed, or returned, what a test expects?

The rules for printed text are LiveCodeBench's: outer blanks and the blanks around each line do not
count, a different number of lines fails, and where two lines differ all their tokens must be equal
numbers. Case counts, and so does every character of a line that is not all numbers.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import zip_longest

_LINE = re.compile("^.*$", re.MULTILINE)
_TOKEN = re.compile(r"\S+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# The exponents that Decimal can hold; what lies beyond is equal only as text.
_MAX_EXPONENT_DIGITS = 15


def same_output(printed: str, expected: str) -> bool:
    """Whether a program printed what was expected. NaN and infinity are equal to nothing but the
    same text.

    >>> same_output("0.5 1000\\r\\n", "0.50 1e3")
    True
    >>> same_output("1\\n2", "1\\n2\\n3"), same_output("yes", "Yes")
    (False, False)
    """
    printed, expected = printed.strip(), expected.strip()
    if printed == expected:
        return True
    if printed.count("\n") != expected.count("\n"):  # a correct prefix fails
        return False
    # One after the other: lists of a large output's lines would take ten times its size.
    pairs = zip(_LINE.finditer(printed), _LINE.finditer(expected), strict=True)
    return all(_same_line(ours[0], theirs[0]) for ours, theirs in pairs)


def _same_line(printed: str, expected: str) -> bool:
    if printed.strip() == expected.strip():
        return True
    pairs = zip_longest(_TOKEN.finditer(printed), _TOKEN.finditer(expected))
    return all(
        ours is not None and theirs is not None and _same_number(ours[0], theirs[0])
        for ours, theirs in pairs
    )


def _same_number(printed: str, expected: str) -> bool:
    numbers = []
    for text in (printed, expected):
        if not _NUMBER.fullmatch(text):
            return False
        exponent = re.split("[eE]", text)[1:]
        if exponent and len(exponent[0].strip("+-").lstrip("0")) > _MAX_EXPONENT_DIGITS:
            return printed == expected
        numbers.append(Decimal(text))  # exact: no tolerance
    return numbers[0] == numbers[1]


def same_value(returned: object, expected: object) -> bool:
    """Whether two values that were read from JSON are equal: 1 is 1.0, and NaN is nothing.

    >>> same_value([1, {"a": 0.1}], [1.0, {"a": 0.1}])
    True
    >>> same_value([0.30000000000000004], [0.3])
    False
    """
    if isinstance(returned, list) and isinstance(expected, list):
        return len(returned) == len(expected) and all(
            same_value(a, b) for a, b in zip(returned, expected, strict=True)
        )
    if isinstance(returned, dict) and isinstance(expected, dict):
        return returned.keys() == expected.keys() and all(
            same_value(returned[key], expected[key]) for key in expected
        )
    return returned == expected
