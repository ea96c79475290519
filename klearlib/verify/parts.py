"""The parts of a plain text: what separators part, tuples and sets, intervals and relations."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from klearlib.verify.left_side import is_name
from klearlib.verify.numbers import read_number

RELATION = re.compile(r"<|>|\\le(?![a-z]) ?|\\ge(?![a-z]) ?")
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}  # 3 < x read from the right
_CLOSERS = {"(": ")", "[": "]", "\\{": "\\}"}
# A comma in front of three digits belongs to a number.
SEPARATOR = re.compile(
    r"(?:;|(?<!\d),|,(?!\d{3}(?!\d))) ?|\\text\{,? ?(?:and|or),?\} ?|\\vee ?|\\wedge ?"
)
_ALL_BUT = re.compile(r"(?P<name>[A-Za-z])\\ne ?(?P<point>[^,;]+)")  # x \ne 3
_NE = re.compile(r"\\ne(?![a-z])")
_REALS = re.compile(r"(?:[A-Za-z]\\in ?)?\\mathbb\{R\}")
_REALS_BUT = re.compile(
    r"\\mathbb\{R\}(?:\\setminus ?|-)\\\{(.*)\\\}"
    r"|\\text\{all real(?:s| numbers) (?:except|but)\}(?:[A-Za-z]=)?([^A-Za-z,;]+)"
)
_SIZE = re.compile(  # |x| < 3
    r"\|(?P<name>[A-Za-z])\|(?P<sign><|\\le ?|>|\\ge ?)(?P<most>\d+(?:\.\d+)?|\\frac\{\d+\}\{\d+\})"
)
_IS_AN_INTEGER = (
    r"\\in ?\\?(?:mathbb\{)?(?P<set>[ZN])\b\}?(?P<more>[\^_](?:\{[^{}]*\}|[*+]))?"
    r"|\\text\{is (?:an |any )?integer\}"
)
_DOMAIN = re.compile(
    r"(?P<text>.+?)[,;:|]? ?(?P<open>\()?"
    r"(?:\\text\{,? ?(?:for|where|with)(?: (?:all|any|some|every))?\})? ?"
    rf"(?:(?P<name>[a-z])(?:{_IS_AN_INTEGER})"
    r"|\\text\{(?:for )?(?:any |an )?integer\}(?P<named>[a-z]))(?(open)\))"
)
_FOR_ALL = r"[,;]? ?\(?\\text\{,? ?for (?:all|any|every|each)"
_QUALIFIER = re.compile(  # for all real x, (n >= 1), where c is a constant
    rf"{_FOR_ALL}(?: (?:real|complex)(?: numbers?)?| reals?)?\}}[a-zA-Z](?:,[a-z])*"
    r"(?:\\in ?\\mathbb\{[RC]\})?\)?\Z"
    rf"|{_FOR_ALL}(?: (?:positive |non-?negative )?(?:integers?|natural numbers?))?\}}[nkm]"
    r"(?:\\in ?\\mathbb\{[NZ]\}(?:\^[*+])?|\\ge ?[01])?\)?\Z"
    r"|(?:[,;] ?|\()(?![kn]\\)[a-zA-Z](?:,[a-z])*\\in ?\\mathbb\{[RC]\}\)?\Z"
    r"|(?:[,;] ?|\(|\\text\{for\})[kn]\\ge ?[01]\)?\Z"
    r"|[,;]? ?\\text\{(?:for|with) (?:some|any|an?)(?: real| arbitrary)? constant\}[a-zA-Z]"
    r"(?:\\in ?\\mathbb\{[RC]\})?\Z"
    r"|[,;]? ?\\text\{(?:where|with)\}[a-zA-Z]"
    r"\\text\{is (?:an?|any)(?: real| arbitrary)? constant\}\Z"
    r"|\\text\{only\}\Z"
)
_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_TURNED = re.compile(r"([\[\]])([^\[\]]*,[^\[\]]*)([\[\]])")  # ]0, 1[, as in France
_IN_BRACKETS = re.compile(r"[,;] ?")
_CUP = re.compile(r"\\cup ?")
_BRACKETS = re.compile(r"\\[{}]|\\[A-Za-z]+|[(\[{}\])]")
_STEPS = dict.fromkeys(("(", "[", "{", "\\{"), 1) | dict.fromkeys((")", "]", "}", "\\}"), -1)


def with_domain(text: str) -> tuple[str, str, str] | None:
    r"""A text whose parameter is an integer, without those words; the parameter, and its set.

    >>> with_domain(r"2k\pi ,k\in\mathbb{Z}")
    ('2k\\pi', 'k', 'Z')
    """
    is_domain = "\\in" in text or "integer" in text  # the pattern takes the square of its length
    if not is_domain or (match := _DOMAIN.fullmatch(text)) is None:
        return None
    set_ = (match["set"] or "Z") + re.sub("[{}^_]", "", match["more"] or "")
    set_ = "N*" if set_ in {"N+", "Z+"} else set_
    return match["text"].strip(), match["name"] or match["named"], set_


def unqualified(text: str) -> str:
    """Without the words behind a value that bound nothing: f(x) = x for all real x."""
    match = _QUALIFIER.search(text)
    if not match or _QUALIFIER.search(text[: match.start()]):  # two say more
        return text
    bare = text[: match.start()].strip()
    letters = _LETTER.findall(re.sub(r"\\text\{[^{}]*\}|\\mathbb\{.\}|\\[a-z]+", " ", match[0]))
    plain = re.sub(r"\\[A-Za-z]+", " ", bare)
    is_bound = all(each in plain and not plain.startswith(f"{each}=") for each in letters)
    return bare if bare and is_bound else text


def noun(part: str) -> str:
    """What a number counts, in the singular: 18 chickens."""
    match = re.fullmatch(r"[-+\d.,/ ]+\\text\{([A-Za-z ]+)\}", part)
    return match[1].strip().lower().removesuffix("s") if match else ""


def renamed(text: str, name: str, other: str) -> str:
    """With another letter for a parameter."""
    if re.search(rf"(?<![A-Za-z\\]){other}(?![A-Za-z])", text):  # it stands for something else
        return text
    return re.sub(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])", other, text)


def _depths(text: str) -> tuple[list[int], list[int]]:
    """Where brackets stand, and how deep the text is in them at its start and behind each."""
    places, depths = [], [0]
    for token in _BRACKETS.finditer(text):
        places.append(token.start())
        depths.append(depths[-1] + _STEPS.get(token[0], 0))
    return places, depths


def split(text: str, separator: re.Pattern) -> list[str]:
    """The parts between separators that stand in no bracket."""
    places, depths = _depths(text)
    parts, start = [], 0
    for found in separator.finditer(text):
        if depths[bisect_left(places, found.start())] <= 0:
            parts.append(text[start : found.start()].strip())
            start = found.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part] or [text]


def items(text: str) -> tuple[str, list[str]] | None:
    """The bracket and the parts of a tuple or a set, ``""`` and those of a bare list; None for
    what is neither."""
    for opener, closer in _CLOSERS.items():
        for end in {closer, *({")", "]"} if opener != "\\{" else ())}:
            if text.startswith(opener) and text.endswith(end) and len(text) > len(opener + end):
                inner = text[len(opener) : -len(end)]
                _, depths = _depths(inner)
                if min(depths) == depths[-1] == 0:  # none inside closes what opened before
                    return opener + end, _spread(split(inner, _IN_BRACKETS))
    parts = _spread(split(text, SEPARATOR))
    return ("", parts) if len(parts) > 1 else None


_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z]) ?")


def _spread(parts: Sequence[str]) -> list[str]:
    r"""Each ``a \pm b`` as two."""
    found = []
    for part in parts:
        if len(_PLUS_MINUS.findall(part)) == 1 and "\\mp" not in part:
            found += [_worked_out(*_PLUS_MINUS.split(part), sign) for sign in (1, -1)]
        else:
            found.append(part)
    return found


def _worked_out(before: str, behind: str, sign: int) -> str:
    """One value of "before plus or minus behind", as a number where both are."""
    numbers = read_number(before or "0"), read_number(behind)
    if all(numbers):
        return str(numbers[0].value + sign * numbers[1].value)
    return f"{before}{'-' if sign < 0 else '+'}{behind}".removeprefix("+")


def ranges(text: str) -> tuple[str, list[tuple[str, str, str, str]]] | None:
    """The variable ("" for none) and the intervals, as (bracket, low, high, bracket), that
    intervals, their union, or relations name."""
    if match := _REALS_BUT.fullmatch(text):
        within = _without(_REAL_LINE, split(match[1] or match[2], _IN_BRACKETS))
        return ("", within) if within else None
    if match := _SIZE.fullmatch(text):
        open_, close = ("[", "]") if "e" in match["sign"] else ("(", ")")
        least, most = f"-{match['most']}", match["most"]
        if match["sign"][0] == "<" or "le" in match["sign"]:
            return match["name"], [(open_, least, most, close)]
        rays = [("(", r"-\infty", least, close), (open_, most, r"\infty", ")")]
        return match["name"], rays
    if _NE.search(text):
        return _but(text)
    if RELATION.search(text):
        return _relations(text)
    if match := _TURNED.fullmatch(text):  # ]0,1[
        turned = {"]": "(", "[": "["}[match[1]], {"[": ")", "]": "]"}[match[3]]
        text = f"{turned[0]}{match[2]}{turned[1]}"
    found = []
    parts = [part for each in split(text, SEPARATOR) for part in split(each, _CUP)]
    for part in parts:
        held = items(part)
        if held is None or held[0] not in ("()", "(]", "[)", "[]") or len(held[1]) != 2:
            return None
        found.append((held[0][0], *held[1], held[0][1]))
    return "", found


_REAL_LINE = [("(", r"-\infty", r"\infty", ")")]


def _but(text: str) -> tuple[str, list[tuple[str, str, str, str]]] | None:
    r"""Relations with points that are left out: x > 3, x \ne 4."""
    if "\\text{or}" in text:
        return None
    parts = split(text, SEPARATOR)
    holes = [_ALL_BUT.fullmatch(part) for part in parts]
    left = [p for p, hole in zip(parts, holes, strict=True) if not (hole or _REALS.fullmatch(p))]
    names = {hole["name"] for hole in holes if hole}
    found = _relations(r"\text{and}".join(left)) if left else ("", _REAL_LINE)
    if not names or found is None or len({*names, *filter(None, [found[0]])}) > 1:
        return None
    within = _without(found[1], [hole["point"] for hole in holes if hole])
    return (names.pop(), within) if within else None


def _without(within: list, points: Sequence[str]) -> list:
    """Intervals without some points, [] where it cannot be seen in which they are."""
    for point in points:
        value, split_up = read_number(point), []
        for open_, low, high, close in within:
            ends = [read_number(end) for end in (low, high)]
            is_known = value and all(
                each or "\\infty" in end for each, end in zip(ends, (low, high), strict=True)
            )
            if not is_known and within != _REAL_LINE:
                return []
            if is_known and (
                (ends[0] and value.value <= ends[0].value)
                or (ends[1] and value.value >= ends[1].value)
            ):
                split_up.append((open_, low, high, close))
            else:
                split_up += [(open_, low, point, ")"), ("(", point, high, close)]
        within = split_up
    return within


def _overlap(found: Sequence[tuple[str, str, str, str]]) -> bool:
    """Whether two relations, one from below and one from above, leave an interval: x > 1, x < 3."""
    numbers = [[read_number(end) for end in each[1:3]] for each in found]
    lows = [low for low, high in numbers if low and not high]
    highs = [high for low, high in numbers if high and not low]
    return len(lows) == len(highs) == 1 == len(found) - 1 and lows[0].value < highs[0].value


def _relations(text: str) -> tuple[str, list[tuple[str, str, str, str]]] | None:
    is_both = "\\text{and}" in text or "\\wedge" in text
    found: list[tuple[str, str, str, str]] = []
    names: set[str] = set()
    for part in split(text, SEPARATOR):
        sides = [side.strip() for side in RELATION.split(part)]
        signs = [sign.strip() for sign in RELATION.findall(part)]
        if len(sides) == 2 and is_name(sides[1]) and not is_name(sides[0]):
            sides, signs = sides[::-1], [_FLIPPED[signs[0]]]
        if len(sides) == 3 and signs[0] in (">", r"\ge"):
            sides, signs = sides[::-1], [_FLIPPED[sign] for sign in signs[::-1]]
        if len(sides) == 2 and is_name(sides[0]):
            names.add(sides[0])
            closed = signs[0] in (r"\le", r"\ge")
            if signs[0] in ("<", r"\le"):
                found.append(("(", r"-\infty", sides[1], ")]"[closed]))
            else:
                found.append(("(["[closed], sides[1], r"\infty", ")"))
        elif len(sides) == 3 and is_name(sides[1]) and all(s in ("<", r"\le") for s in signs):
            names.add(sides[1])
            found.append(("(["[signs[0] == r"\le"], sides[0], sides[2], ")]"[signs[1] == r"\le"]))
        else:
            return None
    if len(names) != 1:
        return None
    if is_both or ("\\text{or}" not in text and _overlap(found)):
        lows = [each for each in found if each[1] != r"-\infty"]
        highs = [each for each in found if each[2] != r"\infty"]
        if len(found) != 2 or len(lows) != 1 or len(highs) != 1:
            return None
        found = [(*lows[0][:2], *highs[0][2:])]
    return names.pop(), found
