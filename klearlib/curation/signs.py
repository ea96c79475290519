r"""The words and signs of a short text, where "a - b" must not be "a + b".

Nine words in a row tell texts apart without the signs between them; a text of fewer is compared
whole, and there the signs are half of what it says.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable

from klearlib.curation.normalise import parted_cjk, printed, with_shifts_marked

# Sign -> the characters and the commands of LaTeX that are the same sign.
_SAME = {
    "*": ("×✕✖⋅·∙∗", "times cdot ast"),
    "/": ("÷➗⁄∕", "div"),
    "+": ("➕", ""),
    "-": ("‐‑‒–−➖", ""),
    "<": ("", "lt"),
    ">": ("", "gt"),
    "≤": ("⩽≦", "le leq leqslant"),
    "≥": ("⩾≧", "ge geq geqslant"),
    "≠": ("", "ne neq"),
    "→": ("", "to rightarrow"),
    "≈": ("", "approx"),
    "≡": ("", "equiv"),
    "±": ("", "pm"),
    "|": ("∣", "mid vert lvert rvert"),
}
_COMMANDS = {name: sign for sign, (_, names) in _SAME.items() for name in names.split()}
_COMMAND = re.compile(r"\\([a-z]+)")
_SPELLINGS = {spelling: sign for sign, (spellings, _) in _SAME.items() for spelling in spellings}
_SPELLINGS |= {"**": "^", "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "√": " sqrt "}
_SPELLING = re.compile("|".join(map(re.escape, _SPELLINGS)))
# Of Markdown: **strong** and *stressed* words, and what stands before a line of prose.
_STRESSED = re.compile(
    r"""(?<![^\s(\["'])(\*{1,3})(?=[^\s*])(.{1,100}?)(?<=[^\s*])\1(?![^\s)\]"'.,:;?!])"""
)
_LIST_MARK = re.compile(r"^[ \t]*(?:[-+*>][ \t]+)+(?=[^\W\d_]{2})", re.MULTILINE)

_CHAIN = re.compile(r"(?<![\w\\])\\?\w++(?:-\w++)+")
_FUNCTION = re.compile("(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|exp|sqrt|abs|min|max|gcd|lcm")
# "!" only where a sign or the end of a bracket follows: else it may end a sentence.
_TOKEN = re.compile(
    r"(?<![\w.])\.\d\w*|\w+(?:(?<=\d)\.\d\w*)*|(?<=[\w)\]}])!(?=\s*[-+*/^=<>≤≥≠%|)\]}!])|[^\w\s!]"
)
_ASCII_SIGNS = "+-*/^=<>%|!"
_BRACKETS = dict(zip("([{)]}", "((()))", strict=True))
_WORD = re.compile(r"\.?\w")


def signed_readings(text: str) -> tuple[str, ...]:
    r"""The words of `text` and its signs, with blanks between them, in NFKC and lower case: of the
    text as it is and, where that differs, as a reader sees it (`normalise.printed`).

    - Signs are ``+ - * / ^ = < > % |`` and all that Unicode calls mathematical. Ways to write one
      sign are one (``×``, ``\times``, ``\cdot`` and ``*``; ``−`` and ``-``), and so are ``**``,
      ``^`` and raised characters.
    - A hyphen inside a word ("well-known", "3-digit") is none, nor are marks of lists and the stars
      around stressed words.
    - A decimal point is part of its number. ``!`` counts before another sign.
    - Brackets of any kind count where a sign stands between the words in them.

    >>> signed_readings("What is $3 \\times (4 - x^2)$?"), signed_readings("what is 3*(4−x²)")
    (('what is 3 * ( 4 - x ^ 2 )',), ('what is 3 * ( 4 - x ^ 2 )',))
    >>> signed_readings("A well-known sum: 3.5 + (-2)")
    ('a well known sum 3.5 + - 2',)
    >>> signed_readings("What is 3\\quad + 4?")
    ('what is 3 quad + 4', 'what is 3 + 4')
    """
    text = with_shifts_marked(text)
    return tuple(dict.fromkeys(map(_signed, dict.fromkeys([text, printed(text)]))))


def _signed(text: str) -> str:
    # Substrings are found far quicker than patterns.
    if not text.isascii():
        text = parted_cjk(unicodedata.normalize("NFKC", text))
    text = text.lower()
    if "*" in text:
        text = _STRESSED.sub(r"\2", text)
    if "\\" in text:
        text = _COMMAND.sub(lambda match: _COMMANDS.get(match[1], match[0]), text)
    text = _SPELLING.sub(lambda match: _SPELLINGS[match[0]], text)
    text = _LIST_MARK.sub("", text)
    if "-" in text:
        text = _CHAIN.sub(_without_hyphens, text)
    return " ".join(_grouped(filter(_counts, _TOKEN.findall(text))))


def _counts(token: str) -> bool:
    return token.isalnum() or token in _BRACKETS or is_sign(token) or bool(_WORD.match(token))


def is_sign(token: str) -> bool:
    return token in _ASCII_SIGNS or (token > "\x7f" and unicodedata.category(token[0]) == "Sm")


def _without_hyphens(chain: re.Match) -> str:
    parts = chain[0].split("-")
    joined = parts[0]
    for left, right in itertools.pairwise(parts):
        joined += (" " if _is_prose(left) or _is_prose(right) else "-") + right
    return joined


def _is_prose(word: str) -> bool:
    """Whether a word is none of mathematics, such as "x", "2ab", "cos" or a command of LaTeX."""
    return len(word) > 2 and word.isalpha() and not _FUNCTION.fullmatch(word)


def _grouped(tokens: Iterable[str]) -> list[str]:
    """`tokens` without the brackets in which no sign stands behind the first of the others."""
    kept: list[str] = []
    opened: list[tuple[int, int]] = []  # place in `kept`, `count` so far
    count = last_sign = 0  # among the tokens that are no brackets
    for token in tokens:
        if token in "([{":
            opened.append((len(kept), count))
            kept.append("")
        elif token in ")]}":
            place, before = opened.pop() if opened else (0, count)
            if last_sign > before + 1:
                kept[place] = "("
                kept.append(")")
        else:
            count += 1
            last_sign = count if is_sign(token) else last_sign
            kept.append(token)
    return [token for token in kept if token]
