r"""What counts as the same text: the words that overlap is searched in, what a reader does not see.

A text is read literally (NFKC, lower case, words by ``\w+``), and a second time without what a
reader does not see: characters of no width, tags and entities of HTML, blanks of LaTeX. A match in
either reading counts, so ``pri<soft hyphen>me`` is found, and so are words that only a zero-width
blank parts.
"""

from __future__ import annotations

import html
import re
import unicodedata

# Chinese and Japanese put no blanks between words: each of their characters is a word of its own.
_CJK = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
)
_EACH_CJK = re.compile(f"([{_CJK}])")
_OTHER_SIGN = re.compile(r"[^\w\x00-\x7f]+")
# Signs of ASCII to blanks; three times as fast as a pattern. The other bytes of UTF-8 stay.
_PARTED = bytes(ord(chr(c).lower()) if chr(c).isalnum() or c == 95 else 32 for c in range(128))
_PARTED += bytes(range(128, 256))
_NO_WIDTH = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]+"
)
# Only known tags, and attributes that have values: "a <b and c> d" may be mathematics. Inline tags
# stand inside words.
_TAG = r"</?(?:%s)(?:\s+[a-z-]+\s*=[^<>]*)?\s*/?>"
_INLINE_TAG = re.compile(_TAG % "b|i|u|em|strong|span|font|tt|var", re.IGNORECASE)
_OTHER_TAG = re.compile(
    _TAG % "a|blockquote|br|center|code|dd|div|dl|dt|h[1-6]|hr|img|li|ol|p|pre|section|sub|sup|"
    "table|tbody|td|th|thead|tr|ul",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][\da-z]{1,31});", re.IGNORECASE)
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
_SHIFTED = re.compile(f"[{_RAISED}]+|[{_LOWERED}]+")
_IS_RAISED = re.compile(f"[{_RAISED}]")


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
        text = parted_cjk(_OTHER_SIGN.sub(" ", text))
    return text.encode().translate(_PARTED).decode().split()


def parted_cjk(text: str) -> str:
    """`text` with blanks around each Chinese or Japanese character."""
    return _EACH_CJK.sub(r" \1 ", text)


def printed(text: str) -> str:
    """`text` without zero-width characters and LaTeX commands for blanks."""
    if "\\" in text:
        text = _LATEX_BLANK.sub(" ", text)
    return text if text.isascii() else _NO_WIDTH.sub("", text)


def seen_text(text: str) -> str:
    r"""`text` as a reader sees it: `printed`, and without tags and entities of HTML. Text without
    any of them comes back as it is.

    >>> seen_text("<p>Let x &lt; 2,\\quad y</p>").split()
    ['Let', 'x', '<', '2,', 'y']
    """
    if "<" in text:
        text = _OTHER_TAG.sub(" ", _INLINE_TAG.sub("", text))
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    return printed(text)


def readings(text: str) -> list[list[str]]:
    r"""`words` of the text as it is, and of `seen_text` where they differ.

    >>> readings("the pri\u00adme p")
    [['the', 'pri', 'me', 'p'], ['the', 'prime', 'p']]
    """
    literal, seen = words(text), seen_text(text)
    if seen == text or (seen := words(seen)) == literal:
        return [literal]
    return [literal, seen]


def with_shifts_marked(text: str) -> str:
    """`text` with raised and lowered characters written as in LaTeX.

    >>> with_shifts_marked("3\u00b2 and x\u2081\u2082y")
    '3^2 and x_{12}y'
    """
    return text if text.isascii() else _SHIFTED.sub(_shifted, text)


def _shifted(match: re.Match) -> str:
    return shifted(match, match[0], is_raised=bool(_IS_RAISED.match(match[0])))


def shifted(match: re.Match, body: str, *, is_raised: bool) -> str:
    """`body` with the sign of LaTeX, and with braces where its end would else be unclear."""
    behind = match.string[match.end() : match.end() + 1]
    body = body if body.isalnum() and not behind.isalnum() else f"{{{body}}}"
    return ("^" if is_raised else "_") + body
