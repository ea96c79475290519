r"""What counts as the same text: its words and, where it is short, its signs; and duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from klearlib.errors import KlearError

# Chinese and Japanese put no blanks between words: each of their characters is a word of its own.
_CJK = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
)
_EACH_CJK = re.compile(f"([{_CJK}])")
_ANY_CJK = re.compile("[\u3005-\U0003fffd]")  # most texts have none: one quick look
_OTHER_SIGN = re.compile(r"[^\w\x00-\x7f]+")
# Signs of ASCII to blanks; three times as fast as a pattern. The other bytes of UTF-8 stay.
_PARTED = bytes(ord(chr(c).lower()) if chr(c).isalnum() or c == 95 else 32 for c in range(128))
_PARTED += bytes(range(128, 256))
_NO_WIDTH = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]+"
)
_LATEX_BLANK = re.compile(
    r"\\(?:(?:q?quad|enskip|enspace|nobreakspace|(?:neg)?(?:thin|med|thick)space)(?![A-Za-z])"
    r"|[hv]space\*?\s*\{[^{}]*\})"
)
# Raised and lowered characters, which NFKC puts on the line.
_RAISED = (
    "\u00aa\u00b2\u00b3\u00b9\u00ba\u02b0-\u02b8\u02e0-\u02e4\u1d2c-\u1d61\u1d78\u1d9b-\u1dbf"
    "\u2070-\u207f\u2c7d"
)
_LOWERED = "\u1d62-\u1d6a\u2080-\u209c\u2c7c"
_SHIFTED = re.compile(f"([{_RAISED}]+)|[{_LOWERED}]+")

# Sign -> the characters and the commands of LaTeX that are the same sign.
_SAME = {
    "*": "× ✕ ✖ ⋅ · ∙ ∗ times cdot ast",
    "/": "÷ ➗ ⁄ ∕ div",
    "+": "➕",
    "-": "‐ ‑ ‒ – − ➖",
    "<": "lt",
    ">": "gt",
    "≤": "<= ⩽ ≦ le leq leqslant",
    "≥": ">= ⩾ ≧ ge geq geqslant",
    "≠": "!= ne neq",
    "|": "∣ mid vert lvert rvert",
    "^": "**",
    " sqrt ": "√",
}
_SPELLINGS = {
    rf"\{name}" if name.isalpha() and name.isascii() else name: sign
    for sign, names in _SAME.items()
    for name in names.split()
}
_SPELLING = re.compile(r"\\[a-z]+|" + "|".join(re.escape(s) for s in _SPELLINGS if s[0] != "\\"))
_ONE_IN_BRACKETS = re.compile(r"[(\[{]\s*(\w*)\s*[)\]}]")
# "!" only where a sign or the end of a bracket follows: else it may end a sentence.
_TOKEN = re.compile(
    r"(?<![\w.])\.\d\w*|\w+(?:(?<=\d)\.\d\w*)*|(?<=[\w)\]}])!(?=\s*[-+*/^=<>≤≥≠%|)\]}!])|[^\w\s!]"
)
_SIGNS = dict(zip("+-*/^=<>%|!([{)]}", "+-*/^=<>%|!((()))", strict=True))

# Two backslashes end a row, and the second of them begins no blank.
_LATEX_SIGN_BLANK = re.compile(r"(\\\\)|\\[,;:!> ]")
# The signs that keyboards do not have, and the blanks and controls beyond ASCII that NFKC keeps.
_PLAIN = dict(zip("‘’“”‐‑‒–—−。", "''\"\"------.", strict=True))
_FOLDED = re.compile(f"[{''.join(_PLAIN)}\x80-\x9f\u1680\u2028\u2029]")
_UNSEEN = bytes([*range(33), 127, ord("$")])  # "$" only says that mathematics begins


def words(text: str) -> list[str]:
    r"""The words of `text`: NFKC, lower case, ``\w+``.

    A Chinese or Japanese character is a word by itself. Every other sign parts words.

    >>> words("Find \uff21\u00a0+ b_1, x=3.5")
    ['find', 'a', 'b_1', 'x', '3', '5']
    >>> words("求x的值")
    ['求', 'x', '的', '值']
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).lower()
        text = _parted_cjk(_OTHER_SIGN.sub(" ", text))
    return text.encode().translate(_PARTED).decode().split()


def _parted_cjk(text: str) -> str:
    return _EACH_CJK.sub(r" \1 ", text) if _ANY_CJK.search(text) else text


def printed(text: str) -> str:
    r"""`text` without what a reader does not see: characters of no width, LaTeX's blanks.

    >>> printed("Let\\quad the pri\u00adme y").split()
    ['Let', 'the', 'prime', 'y']
    """
    if "\\" in text:
        text = _LATEX_BLANK.sub(" ", text)
    return text if text.isascii() else _NO_WIDTH.sub("", text)


def with_shifts_marked(text: str) -> str:
    """`text` with raised and lowered characters written as in LaTeX, several of them in braces.

    >>> with_shifts_marked("3\u00b2 and x\u2081\u2082y")
    '3^\u00b2 and x_{\u2081\u2082}y'
    """
    return text if text.isascii() else _SHIFTED.sub(_marked, text)


def _marked(match: re.Match) -> str:
    body = match[0] if len(match[0]) == 1 else f"{{{match[0]}}}"
    return ("^" if match[1] else "_") + body


def signed(text: str) -> str:
    r"""The words of `text` and its signs, with blanks between them, in NFKC and lower case: nine
    words in a row tell texts apart without their signs, in a shorter text these are half of it.

    Signs are ``+ - * / ^ = < > % |``, brackets around more than one word, and all that Unicode
    calls mathematical. Ways to write one sign are one (``×``, ``\times``, ``\cdot`` and ``*``), and
    so are ``**``, ``^`` and raised characters. A decimal point is part of its number, ``!`` counts
    before another sign, and ``=`` at the end asks as "?" does.

    >>> signed("What is $3 \\times (4 - x^2)$?"), signed("what is 3*(4−x²) =")
    ('what is 3 * ( 4 - x ^ 2 )', 'what is 3 * ( 4 - x ^ 2 )')
    >>> signed("Find f(3.5), {x}.")
    'find f ( 3.5 ) x'
    """
    text = unicodedata.normalize("NFKC", with_shifts_marked(printed(text))).lower()
    text = _SPELLING.sub(lambda match: _SPELLINGS.get(match[0], match[0]), _parted_cjk(text))
    tokens = _TOKEN.findall(_ONE_IN_BRACKETS.sub(r" \1 ", text))
    found = (token if is_word(token) else _sign_of(token) for token in tokens)
    return " ".join(filter(None, found)).rstrip(" =")


def is_word(token: str) -> bool:
    """Whether a token of `signed` is a word or a number."""
    return token[-1].isalnum() or token[-1] == "_"


def _sign_of(token: str) -> str:
    return _SIGNS.get(token) or (token if unicodedata.category(token) == "Sm" else "")


def duplicate_key(text: str) -> bytes:
    r"""Equal for two texts that are the same prompt, so far as their characters tell.

    The key holds the words of the text as it is printed (`printed`) and its signs without
    blanks, in NFKC and lower case: together they give the text back. So case, blanks, the Unicode
    form, the shape of quotation marks and dashes, ``$`` and the punctuation at the end do not
    count. All other signs do: prompts that differ in an operator or in a tag of HTML are two
    prompts. What is raised or lowered is marked as in LaTeX, since NFKC would make 32 of 3².

    >>> duplicate_key("What is  2+2 ?") == duplicate_key("what is 2 + 2")
    True
    >>> duplicate_key("3\u00b2"), duplicate_key("32")
    (b'3 2\x003^2', b'32\x0032')
    """
    text = printed(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", with_shifts_marked(text))
        text = _FOLDED.sub(lambda sign: _PLAIN.get(sign[0], " "), text)
    signs = _LATEX_SIGN_BLANK.sub(r"\1", text) if "\\" in text else text
    signs = signs.lower().encode("utf-8", "surrogatepass").translate(None, _UNSEEN)
    return " ".join(words(text)).encode() + b"\0" + signs.rstrip(b".,:;?")


def duplicate_digest(prompt: str) -> bytes:
    """16 bytes that two prompts share where `duplicate_key` says they are the same: two of 1.5
    million prompts meet by chance once in 10**26 runs."""
    return blake2b(duplicate_key(prompt), digest_size=16).digest()


def deduplicate(prompts: Iterable[str]) -> list[int]:
    """The indices of the prompts that are kept, ascending: of equal prompts the first.

    Case, blanks, the Unicode form, ``$`` and punctuation at the end make no difference; other signs
    and exponents do (see `duplicate_key`).

    Raises KlearError for a prompt that is no text.

    >>> deduplicate(["What is 2 + 2?", "what is 2+2", "What is 2 - 2?", "What is 2 + 2?"])
    [0, 2]
    """
    seen: dict[bytes, int] = {}
    for index, prompt in enumerate(texts_of(prompts, "prompts")):
        seen.setdefault(duplicate_digest(prompt), index)
    return [*seen.values()]


def texts_of(texts: Iterable[str], name: str) -> Iterator[str]:
    """The texts one by one; KlearError for a single text, and for an item that is no text."""
    if isinstance(texts, str):
        raise KlearError(f"{name} must be a list of texts, got str: put it into a list")
    for text in texts:
        if not isinstance(text, str):
            raise KlearError(f"each of {name} must be a text, got {type(text).__name__}")
        yield text
