r"""Whether an answer is the gold answer: read as what they are, compared part by part.

Both are plain texts (`plain.plain_text`). Letters and words, written numbers, intervals and
relations, lists, tuples, sets and matrices are taken apart here; an expression that is left goes to
`symbolic`, which is math-verify in a process of its own (`answer_judge`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from klearlib.verify.numbers import Number, read_number, same_number, without_unit
from klearlib.verify.parts import RELATION, SEPARATOR, is_name, items, ranges, split

CORRECT, WRONG, NOT_WORKED_OUT, JUDGE_ERROR = "correct", "wrong", "not_worked_out", "judge_error"
BEST_FIRST = CORRECT, NOT_WORKED_OUT, JUDGE_ERROR, WRONG
"""Of several golds the one that fits best counts."""
MAX_ITEMS = 64  # of a list: matching them without an order takes the square

Symbolic = Callable[[str, str], str]
"""Of gold and answer: whether two expressions are equal, `CORRECT`, `WRONG` or `JUDGE_ERROR`."""

_MARKER = re.compile(
    r"\A(?:\\text\{(?:(?:the |my |our )?(?:final |correct )?answers?(?: is| are)?|so|thus|hence"
    r"|therefore|(?!what)[a-z]+(?: [a-z]+)? is)\b[:, ]*(?P<rest>[^{}]*)\}[:, ]*"
    r"|(?:\\therefore|\\Rightarrow|=|:) ?)",
    re.IGNORECASE,
)
_ARROW = re.compile(r"\\(?:to|Rightarrow|Leftrightarrow) ?")
_CHAIN = re.compile(r"(?<![<>!:])=|\\approx ?|:=")  # where a chain of equal sides is cut
_SUM = re.compile(r"[A-Za-z]{1,3}(?:[-+][A-Za-z]{1,3})*")  # m+n, the usual question of AIME
_OPERATIONS = re.compile(  # 68 x 2, and numbers with units
    r"\\(?:times|cdot|sqrt|frac|binom)(?![a-z])|(?<=\d) ?[xX] ?(?=\d)|(?<=\d) ?\\text\{[^{}]*\}"
)
# left to be worked out: integrals, sums, limits
_UNDONE = re.compile(r"\\(?:int|sum|prod|lim)(?![a-z])|\\frac\{d\}\{d")
_TOWER = re.compile(r"\^\{[^{}]*\^\{[^{}]*\^")  # of powers, which takes all the time there is
_MEMBER = re.compile(r"[A-Za-z]\w?\\in ?")
_SET_BUILDER = re.compile(r"\A\\\{[A-Za-z](?:\\in ?\\mathbb\{R\})?[|:](.*)\\\}\Z")
_POINT = re.compile(r"\A[A-Z](?=\([^()]*,[^()]*\)\Z)")  # the name in P(1,2)
_TEXTS = re.compile(r"\\text\{([^{}]*)\}")
_ONLY_WORDS = re.compile(r"\\text\{([^{}]*)\}[.!]?")
_FRACTION_OF = re.compile(r"\A(\d+):(\d+)\Z")  # a ratio of integers, for a gold that is a fraction
_MOD = re.compile(r"\\[pb]?mod(?![a-z])")
_CONGRUENCE = re.compile(r"(?:.*\\equiv ?)?(.*?) ?(?:\(?\\(?:pmod|bmod|mod) ?\{?([^{}()]*)\}?\)?)")
_BASE = re.compile(r"\(?(\w+)\)?_\{(?:\\text\{)?(\w+)\}?\}", re.ASCII)  # 1011_{2}, 1011_{two}
_NUMBER_WORDS = {
    rf"\text{{{word}}}": read_number(str(value))
    for value, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
}
_BASES = {"two": "2", "three": "3", "eight": "8", "ten": "10", "sixteen": "16"}
_SET = r"\{\}"
_MATRIX = re.compile(r"[(\[]?\\begin\{[pbB]?matrix\}(.*)\\end\{[pbB]?matrix\}[)\]]?", re.DOTALL)
_ARTICLE = re.compile(r"\A(?:it is|it's|an?|the) ")
_DENIED = re.compile(r"\b(?:yes|no|nope|not|never|false)\b|n't")
_LETTERS = re.compile(r"[A-J]+")  # options of a multiple-choice question
_OPTION = re.compile(
    r"(?:option|choice|answer)?[ :]*(?:\(([A-J])\)|([A-J])(?=\Z|[).:]|  \d))(.*)", re.I
)
_ANOTHER_OPTION = re.compile(r"(?:[(,/]|\b(?:or|and)\b) ?[A-J](?![A-Za-z])")
_MEANINGS = {
    meaning: symbol
    for symbol, meanings in (
        (r"\mathbb{R}", "real numbers; all real numbers; all reals"),
        (r"\mathbb{R}", r"(-\infty,\infty); (-\infty,+\infty)"),
        (r"\infty", r"+\infty; infinity; positive infinity"),
        (r"\emptyset", r"\{\}; empty set; the empty set; no solution; no solutions"),
    )
    for meaning in meanings.split("; ")
}


class Undecided(Exception):
    """An expression is left, and there is no `symbolic` to compare it."""


def match(gold: str, answer: str, *, is_written: bool, symbolic: Symbolic | None) -> str:
    r"""`CORRECT`, `WRONG`, `NOT_WORKED_OUT` or `JUDGE_ERROR` for two plain texts.

    Args:
        is_written: where a part of the gold is a written number, so is that part of a right
            answer: an equal expression, or a fraction that is an integer, is `NOT_WORKED_OUT`.
        symbolic: compares expressions; None raises `Undecided` where one is left.

    >>> match("44", "7+37", is_written=True, symbolic=lambda gold, answer: CORRECT)
    'not_worked_out'
    >>> match("(3,5)", r"(3,\frac{10}{2})", is_written=False, symbolic=None)
    'correct'
    """
    answer = _unmarked(answer)
    if answer.endswith(("=", "=?")):  # what was asked
        return WRONG
    return _Matcher(is_written, symbolic).match(_unmarked(gold), answer)


def _unmarked(text: str) -> str:
    """Without "the answer is" in front of it."""
    while match := _MARKER.match(text):  # markers follow each other: "so the answer is"
        rest = rf"\text{{{match['rest']}}}" if match["rest"] else ""
        text = rest + text[match.end() :]
    return text


class _Reading(NamedTuple):
    """A plain text without markers, left side and unit; `side`: profit or loss, north or south;
    `equation`: the whole, where its left side is no name."""

    text: str
    number: Number | None
    unit: str
    side: str = ""
    equation: str = ""


@lru_cache(maxsize=65536)
def _read(text: str, is_gold: bool = False) -> _Reading:
    words = _ONLY_WORDS.fullmatch(text)
    text = _MEANINGS.get(words[1].lower() if words else text, text)
    equation = ""
    if "=" in text or "\\" in text:
        text = split(text, _ARROW)[-1] if "\\lim" not in text else text
        sides = split(text, _CHAIN)  # what is asked = steps = answer
        if "\\approx" in text and "=" not in text and not is_name(sides[0]):
            text = sides[0]
        elif len(split(text, SEPARATOR)) == 1:
            is_answer = all(
                is_name(side) if is_gold else _is_asked(side, sides[-1]) for side in sides[:-1]
            )
            equation = "" if is_answer else text
            text = sides[-1]  # the answer ends its chain
        text = _MEMBER.sub("", text, count=1) if _MEMBER.match(text) else text
        text = _SET_BUILDER.sub(r"\1", text)
        text = _MEANINGS.get(text, text)
    quantity = without_unit(_POINT.sub("", text))
    number = read_number(quantity.text) or _NUMBER_WORDS.get(quantity.text.lower())
    if quantity.times != 1:
        if number is None:
            return _Reading(text, None, "", equation=equation)
        number = number._replace(value=number.value * quantity.times)
    return _Reading(quantity.text, number, quantity.unit, quantity.side, equation)


def _is_asked(left: str, right: str) -> bool:
    """Whether a right side answers what stands on the left: a name, a sum of names (m + n), or what
    was worked out (7 + 37); a number equals no other."""
    if number := read_number(left):
        other = _read(right).number
        return other is not None and same_number(number, other)
    if is_name(left) or _UNDONE.match(left):
        return True
    if not re.search("[A-Za-z]", _OPERATIONS.sub("", left)):
        return True
    return bool(_SUM.fullmatch(left)) and read_number(right) is not None


def _words(text: str) -> list[str]:
    return [" ".join(re.findall(r"\w+", words.lower())) for words in _TEXTS.findall(text)]


def _bare(text: str) -> str:
    return _TEXTS.sub(r" \1 ", text).strip()


class _Matcher:
    def __init__(self, is_written: bool, symbolic: Symbolic | None) -> None:
        self.is_written, self.symbolic = is_written, symbolic

    def match(self, gold: str, answer: str) -> str:
        if gold == answer:
            return CORRECT
        for look in (_same_letters, _same_words, self._congruence):
            if (found := look(gold, answer)) is not None:
                return found
        a, b = _read(gold, is_gold=True), _read(answer)
        if "=" in gold and "=" in answer:
            # f'(x) is not f(x), and math-verify drops primes
            if gold.count("'") != answer.count("'"):
                return WRONG
            if a.equation or b.equation or _other_left_side(gold, answer):
                found = self._symbolic(gold, answer)
                # 2x + 3 = 7 where the gold is x = 2
                is_undone = b.equation and not a.equation and a.number and self.is_written
                return NOT_WORKED_OUT if found == CORRECT and is_undone else found
        if b.equation and "=" not in gold and a.number is None and self._is_identity(answer):
            b = _read(b.text)
        if a.equation or b.equation:
            return WRONG
        if a.number is not None and b.number is not None:
            if not same_number(a.number, b.number) or not _same_unit(a, b):
                return WRONG
            # 6/2 where the gold is 3 is not worked out
            is_done = b.number.is_reduced or not a.number.is_reduced
            return CORRECT if is_done or not self.is_written else NOT_WORKED_OUT
        if a.text == b.text:
            return CORRECT if _same_unit(a, b) else WRONG
        if re.fullmatch("[A-Z]", b.text):
            return WRONG  # math-verify takes E for e
        if ":" in a.text or ":" in b.text:
            return self._ratio(a.text, b.text)
        base_a, base_b = _BASE.fullmatch(a.text), _BASE.fullmatch(b.text)
        if (base_a and base_a[1].isdigit()) or (base_b and base_b[1].isdigit()):
            if base_b and base_b[2] == "10" and not base_a:  # a number in base ten may say so
                return self.match(a.text, base_b[1])
            same = base_a and base_b and base_a[1] == base_b[1]
            return CORRECT if same and _base(base_a[2]) == _base(base_b[2]) else WRONG
        if (found := self._parts(a.text, b.text)) is not None:
            return found
        if _words(a.text) != _words(b.text):
            return WRONG
        # math-verify would not end, or not see it
        if _other_signs(a.text, b.text) or (_TOWER.search(b.text) and not _TOWER.search(a.text)):
            return WRONG
        found = self._symbolic(*(_expression(each) for each in (a, b)))
        if found == CORRECT and not _same_unit(a, b):
            return WRONG
        is_undone = _UNDONE.search(b.text) and not _UNDONE.search(a.text)
        if found == CORRECT and self.is_written and (a.number is not None or is_undone):
            return NOT_WORKED_OUT
        return found

    def _is_identity(self, equation: str) -> bool:
        """Whether what it equals is worked out: (x + 1)^2 = x^2 + 2x + 1."""
        sides = split(equation, _CHAIN)
        return len(sides) == 2 and self._symbolic(*sides) == CORRECT

    def _symbolic(self, gold: str, answer: str) -> str:
        if self.symbolic is None:
            raise Undecided
        return self.symbolic(gold, answer)

    def _parts(self, gold: str, answer: str) -> str | None:
        """Intervals, matrices, tuples, sets and lists; None where neither side is one."""
        found = ranges(gold), ranges(answer)
        if found[0] and found[1]:
            return self._same_ranges(*found)
        if bool(RELATION.search(gold)) != bool(RELATION.search(answer)):
            return WRONG
        matrices = _MATRIX.fullmatch(gold), _MATRIX.fullmatch(answer)
        if bool(matrices[0]) != bool(matrices[1]) and (found := _vectors(gold, answer, *matrices)):
            return self._in_order(*found)
        if matrices[0] or matrices[1]:
            rows = [_rows(found[1]) if found else None for found in matrices]
            shapes = [row and [len(cells) for cells in row] for row in rows]
            if shapes[0] != shapes[1]:
                return WRONG
            cells = [[cell for row in each for cell in row] for each in rows]
            return self._in_order(*cells)
        held = items(gold), items(answer)
        if "\\begin" in gold + answer or not (held[0] or held[1]):  # no list on either side
            return None
        bracket, golds = held[0] or ("", [gold])
        other, answers = held[1] or ("", [answer])
        if len(golds) == len(answers) == 1 and _SET not in (bracket, other):
            return None  # brackets around an expression
        if RELATION.search(gold + answer):
            return WRONG
        named = _named(golds), _named(answers)
        if named[1] and bracket in ("", "()") and not other:
            if named[0] and named[0].keys() != named[1].keys():
                return WRONG
            if named[0] or bracket == "()":
                return self._in_order([*named[0].values()] or golds, [*named[1].values()])
        if len(golds) != len(answers) or len(golds) > MAX_ITEMS:  # one answer more or less is wrong
            return WRONG
        if len(golds) == 1 and (bracket == _SET) != (other == _SET):
            return self.match(golds[0], answers[0]) if bracket == _SET else WRONG
        if {bracket, other} <= {_SET, ""}:  # sets and bare lists have no order
            return self._in_any_order(golds, answers, self.match)
        if {bracket, other} <= {"()", ""} or bracket == other:
            return self._in_order(golds, answers)
        return WRONG

    def _same_ranges(self, gold: tuple, answer: tuple) -> str:
        if gold[0] and answer[0] and gold[0] != answer[0]:
            return WRONG
        if len(gold[1]) != len(answer[1]):
            return WRONG

        def same(a: tuple, b: tuple) -> str:
            if (a[0], a[3]) != (b[0], b[3]):
                return WRONG
            return self._in_order(a[1:3], b[1:3])

        return self._in_any_order(gold[1], answer[1], same)

    def _in_order(self, golds: Sequence[str], answers: Sequence[str]) -> str:
        if len(golds) != len(answers):
            return WRONG
        return _worst(map(self.match, golds, answers))

    def _in_any_order(self, golds: Sequence, answers: Sequence, same: Callable) -> str:
        left, found = list(answers), []
        for gold in golds:
            words = [same(gold, answer) for answer in left]
            word = min(words, key=BEST_FIRST.index)
            if word == WRONG:
                return WRONG
            del left[words.index(word)]  # an answer counts for one gold alone
            found.append(word)
        return _worst(found)

    def _ratio(self, gold: str, answer: str) -> str:
        """a : b against another ratio, or against a fraction; a time (5:30) is no ratio."""
        if ":" not in gold:
            return CORRECT if gold == _FRACTION_OF.sub(r"\\frac{\1}{\2}", answer) else WRONG
        if re.fullmatch(r"\d{1,2}:\d\d", gold):  # equal texts were right already
            return WRONG
        golds, answers = gold.split(":"), answer.replace(r"\text{to}", ":").split(":")
        number = read_number(answer)
        if len(golds) == 2 and number is not None and number.kind == "fraction":
            answers = [str(number.value.numerator), str(number.value.denominator)]
        values = [[read_number(part) for part in parts] for parts in (golds, answers)]
        if len(golds) != len(answers) or any(v is None for parts in values for v in parts):
            return WRONG
        a, b = ([number.value for number in parts] for parts in values)
        # proportional, without dividing by a zero
        same = all(a[0] * y == b[0] * x for x, y in zip(a, b, strict=True)) and any(b)
        return CORRECT if same else WRONG

    def _congruence(self, gold: str, answer: str) -> str | None:
        if not (_MOD.search(gold) or _MOD.search(answer)):
            return None
        a, b = _CONGRUENCE.fullmatch(gold), _CONGRUENCE.fullmatch(answer)
        if not a and b and not _MOD.search(b[1]):
            return self.match(gold, b[1])
        if not (a and b) or ("\\not" in gold) != ("\\not" in answer):
            return WRONG
        return self._in_order(a.groups(), b.groups())


def _expression(reading: _Reading) -> str:
    """For math-verify, which reads "1,024" as two numbers and "3 1/2" as 2."""
    number = reading.number
    if number is None or number.kind in ("decimal", "scientific"):
        return reading.text.replace(",", "") if number else reading.text
    top, bottom = number.value.numerator, number.value.denominator
    return str(top) if bottom == 1 else rf"\frac{{{top}}}{{{bottom}}}"


def _same_unit(gold: _Reading, answer: _Reading) -> bool:
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


def _worst(found: Iterable[str]) -> str:
    worst = CORRECT
    for word in found:
        if word == WRONG:  # what is left need not be looked at
            return WRONG
        worst = max(worst, word, key=BEST_FIRST.index)
    return worst


def _named(parts: Sequence[str]) -> dict[str, str]:
    """Values by their names of x = 2, y = 5, in the order of the names, {} where each part is not
    that, or a name comes twice."""
    pairs = dict(sorted(part.split("=") for part in parts if re.fullmatch(r"[A-Za-z]=[^=]+", part)))
    return pairs if len(pairs) == len(parts) else {}


def _vectors(gold: str, answer: str, *matrices: re.Match | None) -> list[list[str]] | None:
    """The coordinates of a column or a row and of a tuple, None where they are not that."""
    found = []
    for text, matrix in zip((gold, answer), matrices, strict=True):
        held = items(text)
        if matrix:
            rows = _rows(matrix[1])
            if len(rows) > 1 and len(rows[0]) > 1:
                return None
            found.append([cell for row in rows for cell in row])
        elif held and held[0] == "()":
            found.append(held[1])
    return found if len(found) == 2 else None


def _rows(text: str) -> list[list[str]]:
    rows = [row.strip() for row in text.split("\\\\")]
    return [[cell.strip() for cell in row.split("&")] for row in rows if row]


def _base(name: str) -> str:
    return _BASES.get(name, name)


def _other_left_side(gold: str, answer: str) -> bool:
    """Whether two equations have other letters on the left: y = x/2 and x = 2y."""
    a, b = (
        re.match(r"([A-Za-z]|[-+\w{}^]*[-+][-+\w{}^]*)=[^=,;]*\Z", text) for text in (gold, answer)
    )
    return bool(a and b) and a[1] != b[1]


def _other_signs(gold: str, answer: str) -> bool:
    """Whether only capitals differ, or primes do, which math-verify does not always see."""
    a, b = (_TEXTS.sub("", text) for text in (gold, answer))
    return (a != b and a.lower() == b.lower()) or a.count("'") != b.count("'")


def _same_letters(gold: str, answer: str) -> str | None:
    """Options of a question, where the gold is one or several of them; None where it is not."""
    letters = _bare(gold).removeprefix("(").removesuffix(")").strip()
    if not _LETTERS.fullmatch(letters) or list(letters) != sorted(set(letters)):
        return None
    if len(letters) > 1:
        found = re.sub(r"\band\b|[\s,;]", "", _bare(answer))
        is_list = bool(_LETTERS.fullmatch(found))
        return CORRECT if is_list and sorted(found) == list(letters) else WRONG
    option = _OPTION.fullmatch(_bare(answer))
    if not option or (option[1] or option[2]) != letters:
        return WRONG
    return WRONG if _ANOTHER_OPTION.search(option[3]) else CORRECT


def _same_words(gold: str, answer: str) -> str | None:
    """Words in the place of a formula ("Tuesday", "June 20"); None where the gold has none."""
    a, b = (" ".join(_bare(text).lower().rstrip(".!").split()) for text in (gold, answer))
    if a == b and re.search(r"\\text\{|[\u4e00-\u9fff]", gold) and "\\" not in a:
        return CORRECT
    if not _ONLY_WORDS.fullmatch(gold) or re.search(r"\d", a) or a in _MEANINGS:
        return None
    a, b = (_ARTICLE.sub("", words) for words in (a, b))
    is_yes_or_no = a in ("yes", "no") and re.match(rf"{a}[,.;:] ", b)
    is_denied = is_yes_or_no and _DENIED.search(b[len(a) :])
    return CORRECT if a == b or (is_yes_or_no and not is_denied) else WRONG
