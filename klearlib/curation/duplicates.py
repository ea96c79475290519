"""Exact duplicates among prompts, of which the first is kept."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b

from klearlib.curation.normalise import printed, with_shifts_marked, words
from klearlib.errors import KlearError

# Two backslashes end a row, and the second of them begins no blank.
_LATEX_SIGN_BLANK = re.compile(r"(\\\\)|\\[,;:!> ]")
# The signs that keyboards do not have, and the blanks and controls beyond ASCII that NFKC keeps.
_PLAIN = dict(zip("‘’“”‐‑‒–—−。", "''\"\"------.", strict=True))
_FOLDED = re.compile(f"[{''.join(_PLAIN)}\x80-\x9f\u1680\u2028\u2029]")
_UNSEEN = bytes([*range(33), 127, ord("$")])  # "$" only says that mathematics begins


def duplicate_key(text: str) -> bytes:
    r"""Equal for two texts that are the same prompt, so far as their characters tell.

    The key holds the words of the text as it is printed (`normalise.printed`) and its signs without
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


def texts_of(texts: Iterable[str], name: str) -> Iterable[str]:
    """The texts one by one. KlearError where `texts` is a single text or no list, at once, and for
    one that is no text, when its turn comes."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        kind = type(texts).__name__
        raise KlearError(f"{name} must be a list of texts, got {kind}: put it into a list")
    return map(_text, texts)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise KlearError(f"a prompt must be a text, got {type(value).__name__}")
    return value
