r"""Whether an answer is the gold answer: read as what they are, compared part by part.

Both are plain texts (`plain.plain_text`). Letters and words, written numbers, intervals and
relations, lists, tuples, sets and matrices are taken apart here; an expression that is left goes to
`symbolic`, which is math-verify in a process of its own (`answer_judge`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from klearlib.verify.left_side import (
    are_other_names,
    are_roots,
    is_name,
    left_sides,
    named,
    spelled_out,
)
from klearlib.verify.numbers import read_number, same_number
from klearlib.verify.options import bare, is_same_option, with_letter
from klearlib.verify.parts import (
    RELATION,
    items,
    noun,
    ranges,
    renamed,
    split,
    unqualified,
    with_domain,
)
from klearlib.verify.plain import TEXT_MACRO
from klearlib.verify.reading import (
    ARROW,
    CHAIN,
    MEANINGS,
    NUMBER_WORDS,
    ONLY_WORDS,
    UNDONE,
    expression,
    read,
    same_unit,
    unmarked,
    without_filler,
)

CORRECT, WRONG, NOT_WORKED_OUT, JUDGE_ERROR = "correct", "wrong", "not_worked_out", "judge_error"
BEST_FIRST = CORRECT, NOT_WORKED_OUT, JUDGE_ERROR, WRONG
"""Of several golds the one that fits best counts."""
MAX_ROUNDING = Fraction(1, 100)  # of a decimal that stands beside its exact value
MAX_DECIMAL = 10**30
MAX_ITEMS = 64  # of a list: matching them without an order takes the square

Bounds = tuple[Fraction, Fraction]
"""The numbers that a decimal rounds lie between these."""
Symbolic = Callable[[str | Bounds, str], str]
"""Of gold and answer: whether two expressions are equal, `CORRECT`, `WRONG` or `JUDGE_ERROR`."""

_CONNECTIVE = re.compile(r"\\(?:vee|wedge)(?![a-z])")
_WRITTEN_ALIKE = re.compile(  # a date or a score, degrees and minutes: nothing is worked out
    r"\d+(?:-\d+)+|\d+\^\{\\circ\}\d+'.*", re.ASCII
)
_TOWER = re.compile(r"\^\{[^{}]*\^\{[^{}]*\^")  # of powers, which takes all the time there is
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")  # June 20th
_APPROX = re.compile(r"\\approx ?")
_CHOOSE = re.compile(r"C\((\w+),(\w+)\)|C_\{(\w+)\}\^\{(\w+)\}")
_FRACTION_OF = re.compile(r"\A(\d+):(\d+)\Z")  # a ratio of integers, for a gold that is a fraction
_MOD = re.compile(r"\\[pb]?mod(?![a-z])")
_CONGRUENCE = re.compile(
    r"(?:(.*)\\equiv ?)?(.*?) ?(?:\(?\\(?:pmod|bmod|mod) ?\{?([^{}()]*)\}?\)?)"
)
_BASE = re.compile(  # 1011_{2}, 1011_{two}, 1011_{(2)}, 1011_{base 2}
    r"\(?(\w+)\)?_\{\(?(?:\\text\{(?:base)?\}? ?)?(\w+)[})]*", re.ASCII
)
_BASES = {"two": "2", "three": "3", "eight": "8", "ten": "10", "sixteen": "16"}
_SET = r"\{\}"
_MATRIX = re.compile(r"[(\[]?\\begin\{[pbB]?matrix\}(.*)\\end\{[pbB]?matrix\}[)\]]?", re.DOTALL)
_ALIKE = {"true": "yes", "false": "no", "divergent": "diverges", "convergent": "converges"}
_ARTICLE = re.compile(r"\A(?:it is|it's|an?|the) ")
_DENIED = {
    "yes": re.compile(
        r"\b(?:yes|no|nope|not|never|false|but|only|sometimes|unless|impossible|actually|kidding"
        r"|wait|fails|if|when)\b|n't"
    ),
    "no": re.compile(
        r"(?<!not )\b(?:yes|true|possible|correct|wait|actually|kidding|it (?:does|can)"
        r"(?! ?n.t| not))\b"
    ),
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
    answer = unmarked(answer)
    if answer.endswith(("=", "=?")):  # what was asked
        return WRONG
    if "\\binom" in gold + answer:
        gold, answer = (_CHOOSE.sub(r"\\binom{\1\3}{\2\4}", text) for text in (gold, answer))
    return _Matcher(is_written, symbolic).match(unmarked(gold), answer)


def _words(text: str) -> list[str]:
    return [" ".join(re.findall(r"\w+", words.lower())) for words in TEXT_MACRO.findall(text)]


class _Matcher:
    def __init__(self, is_written: bool, symbolic: Symbolic | None) -> None:
        self.is_written, self.symbolic = is_written, symbolic

    def match(self, gold: str, answer: str) -> str:
        if gold == answer:
            return CORRECT
        looks = self._option, _same_words, self._rounded, self._domain, self._bound, self._logic
        for look in (*looks, self._congruence):
            if (found := look(gold, answer)) is not None:
                return found
        if "=" in gold + answer and not (read_number(gold) or read_number(answer)):
            gold, answer = spelled_out(gold), spelled_out(answer)
        if re.match(r"[A-Za-z]\([a-z]\)=", gold):
            answer = answer.replace("\\equiv ", "=")
        a, b = read(gold, is_gold=True), read(answer)
        if "=" in gold and "=" in answer:
            # f'(x) is not f(x), and math-verify drops primes
            if gold.count("'") != answer.count("'"):
                return WRONG
            left = left_sides(gold, answer)
            if left == "other":
                return WRONG
            if a.equation or b.equation or left == "unlike":
                found = self._symbolic(gold, answer)
                # 2x + 3 = 7 where the gold is x = 2
                is_undone = b.equation and not a.equation and a.number and self.is_written
                return NOT_WORKED_OUT if found == CORRECT and is_undone else found
        if b.equation and "=" not in gold and a.number is None and self._is_identity(answer):
            b = read(b.text)
        if a.equation or b.equation:
            return WRONG
        if a.number is not None and b.number is not None:
            if not same_number(a.number, b.number) or not same_unit(a, b):
                return WRONG
            # 6/2 where the gold is 3 is not worked out
            is_done = b.number.is_reduced or not a.number.is_reduced
            return CORRECT if is_done or not self.is_written else NOT_WORKED_OUT
        if a.text == b.text:
            return CORRECT if same_unit(a, b) else WRONG
        # math-verify takes E for e, and works out dates
        if re.fullmatch("[A-Z]", b.text) or _WRITTEN_ALIKE.fullmatch(a.text):
            return WRONG
        if any(":" in TEXT_MACRO.sub("", each.text) for each in (a, b)):
            return self._ratio(a.text, b.text)
        base_a, base_b = _BASE.fullmatch(a.text), _BASE.fullmatch(b.text)
        if any(base and re.search(r"\d", base[1]) for base in (base_a, base_b)):
            if base_b and base_b[2] == "10" and not base_a:  # a number in base ten may say so
                return self.match(a.text, base_b[1])
            same = base_a and base_b and base_a[1] == base_b[1]
            return CORRECT if same and _base(base_a[2]) == _base(base_b[2]) else WRONG
        if (found := self._parts(a.text, b.text)) is not None:
            return found
        if _words(a.text) != _words(b.text):
            return WRONG
        # math-verify would not end, or not see it
        has_dots = ["\\ldots" in each.text for each in (a, b)]
        if a.number is None and has_dots[0] != has_dots[1]:
            return WRONG
        if _other_signs(a.text, b.text) or (_TOWER.search(b.text) and not _TOWER.search(a.text)):
            return WRONG
        found = self._symbolic(*(expression(each) for each in (a, b)))
        if found == CORRECT and not same_unit(a, b):
            return WRONG
        is_undone = UNDONE.search(b.text) and not UNDONE.search(a.text)
        if found == CORRECT and self.is_written and (a.number is not None or is_undone):
            return NOT_WORKED_OUT
        return found

    def _is_identity(self, equation: str) -> bool:
        """Whether what it equals is worked out: (x + 1)^2 = x^2 + 2x + 1."""
        sides = split(equation, CHAIN)
        return len(sides) == 2 and self._symbolic(*sides) == CORRECT

    def _symbolic(self, gold: str | Bounds, answer: str) -> str:
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
        if all(held) and held[0][0] == "()" and held[1][0] == _SET and len(held[1][1]) == 1:
            held = held[0], items(held[1][1][0])  # the set of one tuple
        bracket, golds = held[0] or ("", [gold])
        other, answers = held[1] or ("", [answer])
        if ":" not in gold:  # Alice: 18, Bob: 24
            answers = [unmarked(each) for each in answers]
        if len(golds) == len(answers) == 1 and _SET not in (bracket, other):
            return None  # brackets around an expression
        if RELATION.search(gold + answer):
            return WRONG
        names = named(golds), named(answers)
        if names[1] and bracket in ("", "()") and not other:
            if are_roots(golds) and are_roots(answers):
                return self._in_any_order([*names[0].values()], [*names[1].values()], self.match)
            if names[0] and names[0].keys() != names[1].keys():
                return WRONG
            if names[0] or bracket == "()":
                order = names[0] or names[1]
                values = [names[1][name] for name in order]
                return self._in_order([*names[0].values()] or golds, values)
        if names[0] and not (names[1] or are_roots(golds)):  # x = 12, y = 5: 12, 5
            return self._in_order([each.partition("=")[2] for each in golds], answers)
        if len(golds) != len(answers) or len(golds) > MAX_ITEMS:  # one answer more or less is wrong
            return WRONG
        if len(golds) == 1 and (bracket == _SET) != (other == _SET):
            return self.match(golds[0], answers[0]) if bracket == _SET else WRONG
        if {bracket, other} <= {_SET, ""}:  # sets and bare lists have no order
            nouns = [*map(noun, golds)], [*map(noun, answers)]
            if all(nouns[0]) and len({*nouns[0]}) > 1:
                if not any(nouns[1]):  # 18 chickens and 24 rabbits: 18, 24
                    return self._in_order(golds, answers)
                if {*nouns[1]} <= {*nouns[0]}:
                    order = [nouns[1].index(each) for each in nouns[0] if each in nouns[1]]
                    return self._in_order(golds, [answers[place] for place in order])
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
        golds, answers = gold.split(":"), re.sub(r"\\text\{to ?(\d*)\}", r":\1", answer).split(":")
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
        if not b or ("\\not" in gold) != ("\\not" in answer):
            return WRONG
        left = [((side and side[1]) or "").replace("\\not ", "").strip() for side in (a, b)]
        is_asked = left[0] == left[1] or is_name(left[1]) or not re.search("[A-Za-z]", left[1])
        if not is_asked or (all(map(is_name, left)) and are_other_names(*left)):
            return WRONG  # 2x = 1, x^2 = 1
        if not a and "=" in gold:
            return WRONG
        if not a:  # 12 mod 7 without brackets is 5
            is_operation = _MOD.search(b[2]) or (not left[1] and "\\bmod" in answer)
            return WRONG if is_operation else self.match(gold, b[2])
        return self._in_order(a.groups()[1:], b.groups()[1:])

    def _rounded(self, gold: str, answer: str) -> str | None:
        """An exact value with its decimal, 5/36 = 0.139: either is an answer, where they agree."""
        sides = split(answer, _APPROX)
        if len(sides) != 2 or is_name(sides[0]) or "\\approx" in gold:
            return None
        exact, decimal = split(sides[0], CHAIN)[-1], read(sides[1]).number
        number = read(exact).number
        # one of two decimals, or integers, would be a guess
        if decimal is None or (number and number.kind != "fraction"):
            return None
        if max(map(abs, decimal.value.as_integer_ratio())) > MAX_DECIMAL:  # 10^5000
            return WRONG
        found = min((self.match(gold, side) for side in sides), key=BEST_FIRST.index)
        if found not in (CORRECT, NOT_WORKED_OUT):
            return found
        digits = re.search(r"\.(\d+)", sides[1])
        slack = Fraction(1, 2 * 10 ** len(digits[1])) if digits else 0  # 2/3 is about 0.7
        slack = max(slack, MAX_ROUNDING * abs(decimal.value))
        low, high = decimal.value - slack, decimal.value + slack
        if number is None:
            agree = self._symbolic((low, high), exact)
            return found if agree == CORRECT else agree
        return found if low <= number.value <= high else WRONG

    def _domain(self, gold: str, answer: str) -> str | None:
        """What holds for every integer k, or n: with the parameter of the gold."""
        a, b = with_domain(gold), with_domain(answer)
        if b is None or (a is None and not re.search(rf"(?<![A-Za-z]){b[1]}(?![A-Za-z])", gold)):
            return None
        if a is None:
            return self.match(gold, b[0])
        if a[2] != b[2]:
            return WRONG
        return self.match(a[0], renamed(b[0], b[1], a[1]))

    def _bound(self, gold: str, answer: str) -> str | None:
        """What holds for all x, where only one of both says so."""
        bare = unqualified(gold), unqualified(answer)
        return self.match(*bare) if (bare[0] == gold) != (bare[1] == answer) else None

    def _option(self, gold: str, answer: str) -> str | None:
        """Letters of options, and values behind a letter; None where the gold says neither."""
        if (same := is_same_option(gold, answer)) is not None:
            return CORRECT if same else WRONG
        a, b = with_letter(gold), with_letter(answer)
        if not (a or b):
            return None
        if a and b:
            return self.match(a[1], b[1]) if a[0] == b[0] else WRONG
        if a:
            return CORRECT if is_same_option(a[0], answer) else self.match(a[1], answer)
        found = self.match(gold, b[1])
        return None if found == WRONG else found

    def _logic(self, gold: str, answer: str) -> str | None:
        """Statements with arrows, part by part, where the gold is one; WRONG for "and" against
        "or"."""
        signs = [set(_CONNECTIVE.findall(text)) for text in (gold, answer)]
        if all(signs) and signs[0] != signs[1]:
            return WRONG
        golds = split(gold, ARROW)
        if len(golds) == 1 or "\\lim" in gold or "=" in golds[-1]:
            return None
        if is_name(golds[0]) and read_number(golds[-1]):  # x \to 3
            return None
        if ARROW.findall(gold) != ARROW.findall(answer):
            return WRONG
        return self._in_order(golds, split(answer, ARROW))


def _worst(found: Iterable[str]) -> str:
    worst = CORRECT
    for word in found:
        if word == WRONG:  # what is left need not be looked at
            return WRONG
        worst = max(worst, word, key=BEST_FIRST.index)
    return worst


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


def _other_signs(gold: str, answer: str) -> bool:
    """Whether only capitals differ, or primes do, which math-verify does not always see."""
    a, b = (TEXT_MACRO.sub("", text) for text in (gold, answer))
    return (a != b and a.lower() == b.lower()) or a.count("'") != b.count("'")


def _same_words(gold: str, answer: str) -> str | None:
    """Words in the place of a formula ("Tuesday", "June 20"); None where the gold has none."""
    a, b = (
        _ORDINAL.sub("", " ".join(bare(text).lower().rstrip(".!").split()))
        for text in (gold, answer)
    )
    if a == b and re.search(r"\\text\{|[\u4e00-\u9fff]", gold) and "\\" not in a:
        return CORRECT
    if not ONLY_WORDS.fullmatch(gold) or re.search(r"\d", a) or gold.lower() in NUMBER_WORDS:
        return None
    a, b = (_ARTICLE.sub("", without_filler(words)) for words in (a, b))
    if a in MEANINGS:
        return None
    a, b = (_ALIKE.get(words, words) for words in (a, b))
    is_yes_or_no = a in ("yes", "no") and re.match(rf"{a}[,.;:] ", b)
    is_denied = is_yes_or_no and _DENIED[a].search(b[len(a) :])
    return CORRECT if a == b or (is_yes_or_no and not is_denied) else WRONG
