"""The parts of a plain text: what separators part, tuples and sets, intervals and relations."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from klearlib.verify.numbers import read_number

_NAMED = re.compile(
    r"\\(?:overline|vec|hat|overrightarrow|tilde|widehat|dot)\{[^{}]*\}|\\text\{[^{}]*\}"
)
_INDEXED = re.compile(r"_\{[^{}]*\}|'|\^\{(?:-1|\\prime ?)\}")
_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|chi"
    "|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega"
)
_FUNCTION = "sin|cos|tan|cot|sec|csc|log|ln|lg|exp|gcd|lcm|det|arg|dim|ker|deg"
_OF = r"\((?:[^()]|\([^()]*\))*\)"  # (x), (g(2)), (X=2)
_NAME = re.compile(
    rf"(?:m?\\(?:angle|triangle|lim|max|min|{_GREEK}) ?)?[A-Za-z]{{0,4}}(?:\([^()=]*\))?"
    rf"|[A-Za-z]{{1,4}}{_OF}|\([A-Za-z]\\circ [A-Za-z]\){_OF}|\\mathbb\{{[EP]\}}(?:{_OF}|\[[^]]*\])"
    rf"|\\(?:{_FUNCTION})(?:\^\{{\d\}})? ?(?:\([\d, ]*\)|\\(?:{_GREEK}) ?|[A-Z])"
    rf"|\[[A-Z]+\]|\\lfloor ?[^\\]*\\rfloor ?|\\lceil ?[^\\]*\\rceil ?"
    r"|\\frac\{d[A-Za-z]?\}\{d[A-Za-z]\}(?:[A-Za-z](?:\([^()]*\))?)?"
    r"|\([A-Za-z](?:,[A-Za-z])*\)|\|[A-Za-z]{1,3}\|"
)
RELATION = re.compile(r"<|>|\\le(?![a-z]) ?|\\ge(?![a-z]) ?")
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}  # 3 < x read from the right
_CLOSERS = {"(": ")", "[": "]", "\\{": "\\}"}
# A comma in front of three digits belongs to a number.
SEPARATOR = re.compile(
    r"(?:;|(?<!\d),|,(?!\d{3}(?!\d))) ?|\\text\{,? ?(?:and|or),?\} ?|\\vee ?|\\wedge ?"
)
_ALL_BUT = re.compile(r"(?P<name>[A-Za-z])\\ne ?(?P<point>[^,;\\]+)")  # x \ne 3
_SIZE = re.compile(r"\|(?P<name>[A-Za-z])\|(?P<sign><|\\le ?)(?P<most>\d+(?:\.\d+)?)")  # |x| < 3
_TURNED = re.compile(r"([\[\]])([^\[\]]*,[^\[\]]*)([\[\]])")  # ]0, 1[, as in France
_IN_BRACKETS = re.compile(r"[,;] ?")
_CUP = re.compile(r"\\cup ?")
_BRACKETS = re.compile(r"\\[{}]|\\[A-Za-z]+|[(\[{}\])]")
_STEPS = dict.fromkeys(("(", "[", "{", "\\{"), 1) | dict.fromkeys((")", "]", "}", "\\}"), -1)


def is_name(side: str) -> bool:
    """Whether it is what an answer is called: x, f(3), S_{\\max}, |AB|, \\angle A."""
    side = _INDEXED.sub("", _NAMED.sub("X", side)).strip()
    return bool(side) and bool(_NAME.fullmatch(side))


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
    if match := _ALL_BUT.fullmatch(text):
        point = match["point"]
        return match["name"], [("(", r"-\infty", point, ")"), ("(", point, r"\infty", ")")]
    if match := _SIZE.fullmatch(text):
        open_, close = ("[", "]") if "le" in match["sign"] else ("(", ")")
        return match["name"], [(open_, f"-{match['most']}", match["most"], close)]
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
