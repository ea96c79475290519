"""What an answer and a gold answer are read as: a text, a number, a unit, an equation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from klearlib.verify.left_side import is_name, is_named, is_question, is_repeated, is_shifted
from klearlib.verify.numbers import Number, Quantity, read_number, same_number, without_unit
from klearlib.verify.parts import SEPARATOR, split
from klearlib.verify.plain import plain_text

# What may stand before "is" or a colon: no word that makes another answer of what follows
_LABEL = (
    r"(?!(?:[a-z]+ )*(?:what|not?|none|nothing|nobody|never|hardly|half|double|twice|triple|squared"
    r"|cubed|root|inverse|reciprocal|opposite|negative|minus|except|wrong|false|incorrect|guess"
    r"|more|less|fewer|than|over|under|least|most|bound|given|case|error|sqrt|log|factorial|percent|cube|square|if|when|suppose|let)\b)"
    r"(?:[a-z]+(?: [a-z]+)? is|(?:[a-z]+ )?[a-z]{3,}(?=:))"
)
_MARKER = re.compile(
    r"\A(?:\\text\{(?:(?:the |my |our )?(?:final |correct )?answers?(?: is| are)?|so|thus|hence"
    rf"|therefore|exactly|{_LABEL})\b[:, ]*(?P<rest>[^{{}}]*)\}}[:, ]*"
    r"|(?:\\therefore|\\Rightarrow|=|:|\u5171|\u7b54\u6848?[:\u662f\u4e3a]+) ?)",
    re.IGNORECASE,
)
ARROW = re.compile(r"\\(?:to|Rightarrow|Leftrightarrow) ?")
CHAIN = re.compile(
    r"(?<![<>:])(?:(?<!!)|(?<=[\d)]!))=|\\approx ?|:="
)  # where a chain of equal sides is cut
_OPERATIONS = re.compile(  # 68 x 2, and numbers with units
    r"\\(?:times|cdot|sqrt|frac|binom|log|max|min|gcd|lcm|bmod)(?![a-z])|[lr](?:floor|ceil)"
    r"|[CPA]_\{\d+\}\^\{\d+\}|(?<=\d) ?[xX] ?(?=\d)|(?<=\d) ?\\text\{[^{}]*\}"
)
# left to be worked out: integrals, sums, limits
UNDONE = re.compile(r"\\(?:int|sum|prod|lim)(?![a-z])|\\frac\{d\}\{d")
_MEMBER = re.compile(r"(?:[A-Za-z]\w?|\([a-z](?:,[a-z])+\))\\in ?")
_SET_BUILDER = re.compile(r"\A\\\{[A-Za-z](?:\\in ?\\mathbb\{R\})?[|:](.*)\\\}\Z")
_POINT = re.compile(r"\A[A-Z](?=\([^()]*,[^()]*\)\Z)")  # the name in P(1,2)
ONLY_WORDS = re.compile(r"\\text\{([^{}]*)\}[.!]?")
_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty"
)
NUMBER_WORDS = {
    rf"\text{{{word}}}": read_number(str(value)) for value, word in enumerate(_WORDS.split())
}
MEANINGS = {
    meaning: symbol
    for symbol, meanings in (
        (r"\mathbb{R}", "real numbers; all real numbers; all reals"),
        (r"\mathbb{R}", r"(-\infty,\infty); (-\infty,+\infty)"),
        (r"(0,\infty)", r"(0,+\infty); \mathbb{R}^+; \mathbb{R}^{+}; \mathbb{R}_+; \mathbb{R}_{+}"),
        (r"\infty", r"+\infty; infinity; positive infinity"),
        (r"\emptyset", r"\{\}; empty set; the empty set; no solution; no solutions"),
        (r"\emptyset", "no real solution; no real solutions; has no solution; does not exist; dne"),
        (
            r"\text{infinitely many}",
            "infinitely many; infinitely many solutions; an infinite number",
        ),
    )
    for meaning in meanings.split("; ")
}


_FILLER = re.compile(
    r"\A(?:there (?:is|are)|it (?:is|will be)|on(?= \w+day)"
    r"|the (?:limit|series|integral|sequence|sum)|the(?= \w+ player)) "
    r"|(?<=[a-z])(?<!not) (?:exists?|wins(?: the game)?)\Z"
)


def without_filler(words: str) -> str:
    """A statement in lower letters without words that say nothing: (there is) no solution."""
    return _FILLER.sub("", words.lower())


def unmarked(text: str) -> str:
    """Without "the answer is" in front of it."""
    for _ in range(4):  # markers follow each other: "so the answer is"
        if not (match := _MARKER.match(text)):
            break
        rest = plain_text(rf"\text{{{match['rest']}}}") if match["rest"] else ""
        text = rest + text[match.end() :]
    return text


class Reading(NamedTuple):
    """A plain text without markers, left side and unit; `side`: profit or loss, north or south;
    `equation`: the whole, where its left side is no name."""

    text: str
    number: Number | None
    unit: str
    side: str = ""
    equation: str = ""
    has_unit: bool = False


@lru_cache(maxsize=65536)
def read(text: str, is_gold: bool = False) -> Reading:
    words = ONLY_WORDS.fullmatch(text)
    text = MEANINGS.get(without_filler(words[1]) if words else text, text)
    equation = ""
    if "=" in text or "\\" in text:
        text = split(text, ARROW)[-1] if "\\lim" not in text else text
        sides = split(text, CHAIN)  # what is asked = steps = answer
        if "\\approx" in text and "=" not in text and not is_name(sides[0]):
            text = sides[0]
        elif len(split(text, SEPARATOR)) == 1:
            is_answer = (
                all(is_named(side, sides[-1]) for side in sides[:-1])
                if is_gold
                else _is_answer(sides[:-1], sides[-1])
            )
            equation = "" if is_answer else text
            text = sides[-1]  # the answer ends its chain
        text = _MEMBER.sub("", text, count=1) if _MEMBER.match(text) else text
        text = _SET_BUILDER.sub(r"\1", text)
        text = MEANINGS.get(text, text)
    is_list = len(split(text, SEPARATOR)) > 1  # whose parts have units of their own
    quantity = Quantity(text) if is_list else without_unit(_POINT.sub("", text))
    number = read_number(quantity.text) or NUMBER_WORDS.get(quantity.text.lower())
    if quantity.times != 1:
        if number is None:
            return Reading(text, None, "", equation=equation)
        number = number._replace(value=number.value * quantity.times)
    has_unit = quantity.text != text
    return Reading(quantity.text, number, quantity.unit, quantity.side, equation, has_unit)


def _is_answer(left: Sequence[str], right: str) -> bool:
    """Whether the last side of a chain answers what stands on the left of it."""
    if all(_is_asked(side, right) for side in left):
        return True
    # A = \pi r^2 = 36\pi is worked out by a formula
    is_formula = len(left) > 1 and is_name(left[0]) and not is_shifted(left[0])
    return is_formula and not is_repeated(left[0], [*left[1:], right])


def _is_asked(left: str, right: str) -> bool:
    """Whether a right side answers what stands on the left: a name, what was asked (m + n), or what
    was worked out (7 + 37); a number equals no other."""
    if number := read_number(left):
        other = read(right).number
        return other is not None and same_number(number, other)
    if is_name(left):
        return not is_shifted(left)
    if UNDONE.match(left) or not re.search("[A-Za-z]", _OPERATIONS.sub("", left)):
        return True
    return is_question(left) and not is_repeated(left, [right])


def expression(reading: Reading) -> str:
    """For math-verify, which reads "1,024" as two numbers and "3 1/2" as 2."""
    number = reading.number
    if number is None or number.kind in ("decimal", "scientific"):
        return reading.text.replace(",", "") if number else reading.text
    top, bottom = number.value.numerator, number.value.denominator
    return str(top) if bottom == 1 else rf"\frac{{{top}}}{{{bottom}}}"


def same_unit(gold: Reading, answer: Reading) -> bool:
    """Whether units, where both are known, are one; 35% are not $35."""
    is_percent = [bool(each.number and each.number.is_percent) for each in (gold, answer)]
    if is_percent[0] != is_percent[1] and (answer if is_percent[0] else gold).has_unit:
        return False
    if gold.side and answer.side and gold.side != answer.side:
        return False
    units = gold.unit, answer.unit
    if any("degree" in unit for unit in units):  # a temperature may say degrees alone
        units = [re.sub("celsius|fahrenheit", "degree", unit) for unit in units]
    if "" in units or len({*units}) == 1:
        return True
    one, other = sorted(units, key=lambda unit: unit[0] != "/")
    # 60 per hour may be 60 miles per hour, or 60 dollars, and are not 60 hours.
    return one[0] == "/" and (other.endswith(one) if "/" in other else other != one[1:])
