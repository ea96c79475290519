"""The comparing rules, one line each."""

import time

import pytest

from klearlib.verify.compare import same_output, same_value

HUGE = "9" * 200_000

# printed, expected, is it right?
PRINTED = {
    "equal": ("1 2\n3", "1 2\n3", True),
    "outer blanks": ("\n\n 7 \n\n", "7", True),
    "blanks around lines": ("1  \n  2", "1\n2", True),
    "windows line ends": ("a\r\nb\r\n", "a\nb\n", True),
    "nothing": ("", "\n", True),
    "correct prefix": ("1\n2", "1\n2\n3", False),
    "correct and one more line": ("1\n2\n3\n4", "1\n2\n3", False),
    "an empty line between": ("1\n\n2", "1\n2", False),
    "nothing for something": ("", "1", False), "something for nothing": ("1", "", False),
    "case": ("yes", "Yes", False), "decimals": ("0.50", "0.5", True),
    "exponent": ("1e3", "1000", True), "signs": ("+5 -0.0", "5 0", True),
    "leading zeros": ("007", "7", True), "numbers apart": ("1   2", "1 2", True),
    "words apart": ("a   b", "a b", False),
    "a number in a line of words": ("case 0.50", "case 0.5", False),
    "joined numbers": ("12", "1 2", False),
    "fewer numbers": ("1 2", "1 2 3", False),
    "more numbers": ("1 2 3", "1 2", False),
    "close": ("0.30000000000000004", "0.3", False),
    "last digit": ("123456789012345678901234567891", "123456789012345678901234567890", False),
    "underscores": ("1_000", "1000", False),
    "arabic digits": ("٣", "3", False),
    "not a number": ("nan", "NaN", False),
    "not a number, as text": ("nan", "nan", True),
    "infinity": ("inf", "Infinity", False),
    "signalling": ("sNaN", "1", False),
    "huge exponent": ("1e999999999", "1", False),
    "huge exponents": ("1e999999999", "10e999999998", True),
    "exponent beyond Decimal": ("1e9999999999999999999", "1", False),
    "the same beyond Decimal": ("1e9999999999999999999", "2e9999999999999999999", False),
    "tiny exponent": ("1e-999999999", "0", False),
    "hexadecimal": ("0x10", "16", False), "many digits": (HUGE, HUGE + ".0", True),
    "null bytes": ("1\x00", "1", False), "replaced bytes": ("\ufffd", "1", False),
    "taken back": ("NO\rYES", "YES", False), "rubbed out": ("NO\b\bYES", "YES", False),
    "no line but a page": ("1\x0c2", "1\n2", False),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_printed(name):
    printed, expected, is_right = PRINTED[name]
    start = time.process_time()
    assert same_output(printed, expected) is is_right
    assert time.process_time() - start < 5


NAN = float("nan")
INFINITE = float("inf")


@pytest.mark.parametrize(
    ("returned", "expected", "is_right"),
    [
        (1, 1.0, True),
        ("1", 1, False),
        ([1, [2, {"a": None}]], [1, [2, {"a": None}]], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (NAN, NAN, False),
        ([NAN], [NAN], False),  # though it is the same object
        (INFINITE, INFINITE, True),
        (0.1 + 0.2, 0.3, False),
        (NAN, 0.0, False), (None, False, False), ([], {}, False),
        (10**400, 10**400, True), (10**400, 1.0, False),
    ],
)  # fmt: skip
def test_values(returned, expected, is_right):
    assert same_value(returned, expected) is is_right
