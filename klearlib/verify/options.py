"""Options of a multiple-choice question: their letters, and what stands beside a letter."""

from __future__ import annotations

import re

from klearlib.verify.plain import TEXT_MACRO

_LETTERS = re.compile(r"[A-J]+")
_BETWEEN = re.compile(r"\band\b|[\s,;()]")  # the letters of a list
_OPTION = re.compile(
    r"(?:option|choice|answer)?[ :]*(?:\(([A-J])\)|([A-J])(?=\Z|[).:]|  \d))(.*)", re.I
)
_ANOTHER = re.compile(
    r"(?:[(,/]|\b(?:or|and)\b) ?[A-J](?![A-Za-z])|(?<![A-Za-z])[A-J] ?[).:]"
    r"|\A[).: ]*[A-J][).:]?\Z"
)
_DENIED = re.compile(  # an option may be called false, or "none of these"
    r"\A[).: ]*(?:(?:is |isn't )+(?:not\b|wrong|false|incorrect)|(?:not|wrong|incorrect)[. ]*\Z"
    r"|: ?(?:false|none)[. ]*\Z)",
    re.I,
)
_VALUED = re.compile(
    r"(?:\\text\{\(?([A-E])[).:]\)? ?\}|\\text\{\(?([A-E])[).:] ?(?=\d)|\(([A-E])\)|([A-E])[).:])"
    r" ?(?=[-+\d\\(\[\0])"
)


def bare(text: str) -> str:
    """A plain text whose words stand in no macro."""
    return TEXT_MACRO.sub(r" \1 ", text).strip()


def with_letter(text: str) -> tuple[str, str] | None:
    r"""The letter of an option and its value, as in ``(C) 12``; None for another text.

    >>> with_letter(r"\text{(C)}12"), with_letter("C"), with_letter("12")
    (('C', '12'), None, None)
    """
    match = _VALUED.match(text)
    if match is None:
        return None
    value = text[match.end() :].strip(" .:")
    if _VALUED.match(value):  # of another option
        return None
    if match[2]:  # the letter and its value stand in one text
        value = bare(r"\text{" + value)
    return next(filter(None, match.groups())), value


def is_same_option(gold: str, answer: str) -> bool | None:
    """Whether two texts name the same options; None where the gold is neither one nor several."""
    letters = _BETWEEN.sub("", bare(gold))
    if not _LETTERS.fullmatch(letters) or list(letters) != sorted(set(letters)):
        return None
    if len(letters) > 1:
        found = _BETWEEN.sub("", bare(answer))
        return bool(_LETTERS.fullmatch(found)) and sorted(found) == list(letters)
    answer = answer.upper() if re.fullmatch(r"\(?[a-d]\)?", answer) else answer
    option = _OPTION.fullmatch(bare(answer))
    if not option or (option[1] or option[2]) != letters:
        return False
    return not (_ANOTHER.search(option[3]) or _DENIED.match(option[3]))
