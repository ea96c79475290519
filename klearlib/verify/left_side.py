"""What stands before an equals sign: the name of the answer, or what was asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from klearlib.verify.plain import TEXT_MACRO

_UPRIGHT = re.compile(
    r"\\(?:overline|vec|hat|overrightarrow|tilde|widehat|dot)\{[^{}]*\}|\\text\{[^{}]*\}"
)
_INDEXED = re.compile(r"_\{[^{}]*\}|'|\^\{(?:-1|\\prime ?)\}")
_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|chi"
    "|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega"
)
_FUNCTION = "sin|cos|tan|cot|sec|csc|log|ln|lg|exp|gcd|lcm|det|arg|dim|ker|deg"
_OF = r"\((?:[^()]|\([^()]*\))*\)"  # (x), (g(2)), (X=2)
_ANGLE = rf"(?:\\angle ?[A-Z]{{1,3}}|\\(?:{_GREEK}) ?|[A-Z])"
_NAME = re.compile(
    rf"(?:m?\\(?:angle|triangle|lim|max|min|{_GREEK}) ?)?[A-Za-z]{{0,4}}(?:\([^()=]*\))?"
    rf"|[A-Za-z]{{1,4}}{_OF}|\([A-Za-z]\\circ [A-Za-z]\){_OF}|\\mathbb\{{[EP]\}}(?:{_OF}|\[[^]]*\])"
    rf"|\\(?:{_FUNCTION})(?:\^\{{\d\}})? ?(?:\([\d, ]*\)|\d*{_ANGLE}"
    rf"|\(\d*{_ANGLE}(?:[-+]\d*{_ANGLE})*\)|\\frac\{{{_ANGLE}\}}\{{\d\}})"
    rf"|\[[A-Z]+\]|\\lfloor ?[^\\]*\\rfloor ?|\\lceil ?[^\\]*\\rceil ?"
    r"|\\frac\{d[A-Za-z]?\}\{d[A-Za-z]\}(?:[A-Za-z](?:\([^()]*\))?)?"
    r"|\([A-Za-z](?:,[A-Za-z])*\)|\|[A-Za-z]{1,3}(?:\([A-Z]\))?\|"
    r"|\|[A-Z](?:\\(?:cup|cap) ?[A-Z])+\|"
)
_HELD = r"((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)"
_RATIO = re.compile(rf"\\frac\{{{_HELD}\}}\{{{_HELD}\}}|([^/:]*)[/:]([^/:]*)")
# a sum or a product, of vectors too, or what two sets have
_JOINED = re.compile(r"\\(?:cdot|cap|cup) ?|[-+](?![^{}()]*[})])")
# f(x+1), a_{n+1}, f(2x): what is named so is not what f(x) or a_n names
_SHIFTED = re.compile(
    r"[({][^(){}]*(?:(?<![A-Za-z])[a-z][-+]|(?<=[-+\d])[a-z](?![a-z]))[^(){}]*[)}]"
)
_STATEMENT = re.compile(
    r"([^=,;]+)=(?:[^,;]*|[(\[][^()\[\]]*[)\]]|\\\{[^{}]*\\\})|(\([^()=]*\))=.*|([^=]*\([^()]*\)[^=,;]*)=[^,;]*"
)
_SEGMENT = re.compile(r"\\over(?:line|rightarrow)\{([A-Z]{2})\}|\|([A-Z]{2})\|")
_MARK = re.compile(r"_\{([^{}]*)\}|\(((?:[^()]|\([^()]*\))*)\)|m?\\(angle|max|min|triangle|lim) ?")
_POINTS = re.compile(r"\\text\{([A-Z]{2,3})\}")  # of an angle, which are no word
_EXPECTED = re.compile(r"\\mathbb\{([EP])\}(?:\[(.*)\])?")
_ROOT = re.compile(r"([t-z])_\{\d\}")  # x_1 and x_2 may be told in any order
_TUPLE = re.compile(r"\(([^()]*)\)=\((.*)\)")
_ALL_EQUAL = re.compile(r"([A-Za-z](?:=[A-Za-z])+)=((?:\\[a-z]+|[^=,;A-Za-z])+)")


def is_name(side: str) -> bool:
    r"""Whether it is what an answer is called: x, f(3), S_{\max}, |AB|, \angle A, \cos 2\alpha."""
    side = _INDEXED.sub("", _UPRIGHT.sub("X", side)).strip()
    return bool(side) and bool(_NAME.fullmatch(side))


def is_shifted(name: str) -> bool:
    """Whether a name is that of the next or the double: f(x+1), a_{n+1}, f(2x)."""
    return bool(_SHIFTED.search(name))


def is_question(side: str) -> bool:
    """Whether it is a ratio, a sum or a product of names (m + n, AE/EC): what was asked for."""
    return bool(_asked(side))


def is_named(side: str, value: str) -> bool:
    """Whether a gold answer names its value so: AB : CD = 2, and not x + y = 2."""
    if is_name(side):
        return True
    is_sum = re.search(r"[-+]", side)
    return is_question(side) and not is_sum and not re.search(r"(?<![\\A-Za-z])[A-Za-z]", value)


def _asked(side: str) -> list[str]:
    """The names that a question joins, [] for none."""
    if side[:1] + side[-1:] == "||":
        side = side[1:-1]
    match = _RATIO.fullmatch(side)
    parts = [part for part in match.groups() if part is not None] if match else _JOINED.split(side)
    parts = [part.strip() for part in parts]
    is_asked = len(parts) > 1 and len(set(parts)) == len(parts) and all(map(is_name, parts))
    return parts if is_asked else []


def left_sides(gold: str, answer: str) -> str:
    """How the left sides of two equations compare: ``same``, or nothing is known; ``other``: AB = 5
    and AC = 5; ``unlike``: only their solutions can be compared, y = x/2 and x = 2y."""
    a, b = _left_side(gold), _left_side(answer)
    if is_name(a) and is_name(b):
        if not are_other_names(a, b):
            return "same"
        return "unlike" if re.fullmatch("[A-Za-z]{2}", a + b) else "other"
    is_known = a != b and a and b and (is_name(a) or is_question(a))
    return "unlike" if is_known and (is_question(a) or is_question(b)) else "same"


def _left_side(text: str) -> str:
    """What stands left in an equation, or a chain of them; "" for a list, or none."""
    match = _STATEMENT.fullmatch(text)
    return next(filter(None, match.groups())).strip() if match else ""


def is_repeated(name: str, sides: Sequence[str]) -> bool:
    """Whether a chain goes back to its name (x = 2x = 4), or to one that its question joins."""
    bare = [re.sub(r"\\[A-Za-z]+", " ", side) for side in sides]
    names = _asked(name) or [name]
    return any(each in side for each in names for side in (sides if "\\" in each else bare))


def are_other_names(gold: str, answer: str) -> bool:
    r"""Whether two names are not of one thing.

    f and f(x), S and S_{ABC}, \angle A and A may be; AB and AC, f(x) and f(x+1), a_1 and a_2, x and
    |x| are not. A word may stand for any letter (Area for S).
    """
    gold, answer = (_POINTS.sub(r"\1", name) for name in (gold, answer))
    if gold == answer or {gold, answer} == {"y", "f(x)"}:
        return False
    words = [" ".join(TEXT_MACRO.findall(name)).lower().split() for name in (gold, answer)]
    if all(words):
        return not set(words[0]) & set(words[1])
    if any(words):
        return False
    (stem, marks), (other, its) = _parted(gold), _parted(answer)
    return stem != other or not (marks <= its or its <= marks)


def _parted(name: str) -> tuple[str, set[str]]:
    """A name without indices and arguments, and those."""
    name = _SEGMENT.sub(r"\1\2", re.sub(r"\\triangle ?", "", name))
    name = _EXPECTED.sub(lambda m: f"{m[1]}({m[2]})" if m[2] else m[1], name)
    name = re.sub(rf"(\\(?:{_FUNCTION})) ?\(([^()]*)\)", r"\1 \2", name)
    stem = _MARK.sub("", name).strip()
    if re.fullmatch("[A-Z]{2,3}", stem):
        stem = min(stem, stem[::-1])  # AB is BA, and the angle ABC is CBA
    return stem, {"".join(found).strip("\\ ") for found in _MARK.findall(name)}


def named(parts: Sequence[str]) -> dict[str, str]:
    """Values by their names of x = 2, AB = 5; {} where each part is not that, or a name comes
    twice. Single letters come in their order."""
    found = {}
    for part in parts:
        name, sign, value = part.partition("=")
        if not (sign and value) or "=" in value or not is_name(name):
            return {}
        found[_key(_POINTS.sub(r"\1", name))] = value
    if all(len(name) == 1 for name in found):
        found = dict(sorted(found.items()))
    return found if len(found) == len(parts) else {}


def _key(name: str) -> str:
    if "\\text" in name:
        return name
    stem, marks = _parted(name)
    return f"{stem}[{';'.join(sorted(marks))}]" if marks else stem


def are_roots(parts: Sequence[str]) -> bool:
    """Whether all are x_1 = ..., x_2 = ... of one letter, which have no order."""
    stems = [_ROOT.fullmatch(part.partition("=")[0]) for part in parts]
    return all(stems) and len({stem[1] for stem in stems if stem}) == 1


def spelled_out(text: str) -> str:
    """(x,y)=(2,3) as x=2, y=3, and x=y=1 as x=1, y=1."""
    if match := _ALL_EQUAL.fullmatch(text):
        return ", ".join(f"{name}={match[2]}" for name in match[1].split("="))
    if not (match := _TUPLE.fullmatch(text)):
        return text
    names, values = (part.split(",") for part in match.groups())
    if len(names) != len(values) or not all(map(is_name, names)):
        return text
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
