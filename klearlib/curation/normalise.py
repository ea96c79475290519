r"""What counts as the same text: the words that overlap is searched in, the key of a duplicate.

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
_ANY_CJK = re.compile("[\u3005-\U0003fffd]")
_EACH_CJK = re.compile(f"([{_CJK}])")
_OTHER_SIGN = re.compile(r"[^\w\x00-\x7f]+")
_NO_WIDTH = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]+"
)
# Only known tags, and attributes that have values: "a <b and c> d" may be mathematics. Inline tags
# stand inside words.
_TAG = r"</?(?:%s)(?:\s+[a-z-]+\s*=[^<>]*)?\s*/?>"
_INLINE = "b|i|u|em|strong|span|font|tt|var"
_OTHER = (
    "a|blockquote|br|center|code|dd|div|dl|dt|h[1-6]|hr|img|li|ol|p|pre|section|sub|sup|"
    "table|tbody|td|th|thead|tr|ul"
)
_INLINE_TAG = re.compile(_TAG % _INLINE, re.IGNORECASE)
_OTHER_TAG = re.compile(_TAG % _OTHER, re.IGNORECASE)
_OPENING = re.compile(rf"<({_INLINE}|{_OTHER})\s*>", re.IGNORECASE)
_CLOSING = re.compile(rf"</({_INLINE}|{_OTHER})\s*>", re.IGNORECASE)
_NEVER_CLOSED = {"br", "hr", "img"}
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][\da-z]{1,31});", re.IGNORECASE)
_LATEX_BLANK = re.compile(
    r"\\(?:(?:q?quad|enskip|enspace|nobreakspace|(?:neg)?(?:thin|med|thick)space)(?![A-Za-z])"
    r"|[hv]space\*?\s*\{[^{}]*\})"
)
_LATEX_SIGN_BLANK = re.compile(r"\\[,;:!> ]")  # to words it is no more than any other sign
# Two backslashes end a row, and the second of them begins no blank.
_LATEX_SIGN_BLANK_OR_ROW = re.compile(rf"(\\\\)|{_LATEX_SIGN_BLANK.pattern}")

_ASCII = bytes(range(128))
_WORD_BYTES = {ord(c) for c in "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_LOWER = bytes(ord(chr(c).lower()) if c < 128 else c for c in range(256))
_ONLY_WORDS = bytes(_LOWER[c] if c in _WORD_BYTES or c > 127 else 32 for c in range(256))
# Not seen in print, so two texts are the same without them; "$" only says that mathematics begins.
_UNSEEN = bytes([*range(33), 127, ord("$")])
# The signs that keyboards do not have, and the blanks and controls beyond ASCII that NFKC keeps.
_PLAIN = dict(zip("‘’“”‐‑‒–—−。", "''\"\"------.", strict=True))
_FOLDED = re.compile(f"[{''.join(_PLAIN)}\x80-\x9f\u1680\u2028\u2029]")

# Raised and lowered characters, which NFKC puts on the line, and the tags that raise and lower.
_RAISED = (
    "\u00aa\u00b2\u00b3\u00b9\u00ba\u02b0-\u02b8\u02e0-\u02e4\u1d2c-\u1d61\u1d78\u1d9b-\u1dbf"
    "\u2070-\u207f\u2c7d"
)
_LOWERED = "\u1d62-\u1d6a\u2080-\u209c\u2c7c"
_SHIFTED = re.compile(f"[{_RAISED}]+|[{_LOWERED}]+")
_IS_RAISED = re.compile(f"[{_RAISED}]")
_SHIFT_TAG = re.compile(r"<(su[pb])(?:\s[^<>]*)?>([^<>]*)</\1\s*>", re.IGNORECASE)
# Lines of Python that a block follows, and signs of no script for where blocks begin and end.
_HEADER = re.compile(
    r"(?:\A|\n)[ \t]*"
    r"(?:async|case|class|def|elif|else|except|finally|for|if|match|try|while|with)\b([^\n]*)"
)
_INDENT, _DEDENT = "\ue000", "\ue001"


def spread(text: str) -> str:
    r"""The words of `text` with blanks between them: NFKC, lower case, ``\w+``.

    A Chinese or Japanese character is a word by itself. Every other sign parts words.

    >>> spread("Find \uff21\u00a0+ b_1, x=3.5").split()
    ['find', 'a', 'b_1', 'x', '3', '5']
    >>> spread("求x的值").split()
    ['求', 'x', '的', '值']
    """
    return _spread(text if text.isascii() else unicodedata.normalize("NFKC", text).lower())


def _beyond_ascii(text: str) -> str:
    """The characters of `text` that are not ASCII: few, so patterns search them quickly."""
    if text.isascii():
        return ""
    encoded = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return encoded.decode("utf-8", "surrogatepass")


def _spread(text: str) -> str:
    """`spread` of a text that is ASCII, or NFKC in lower case.

    Signs of ASCII fall to a table of bytes, which is three times as fast as a pattern. In UTF-8 it
    leaves the other characters alone: these are letters and digits when their turn comes.
    """
    beyond = _beyond_ascii(text)
    if beyond and not beyond.isalnum():
        text = _OTHER_SIGN.sub(" ", text)
    if _ANY_CJK.search(beyond):
        text = parted_cjk(text)
    return text.encode().translate(_ONLY_WORDS).decode()


def parted_cjk(text: str) -> str:
    """`text` with blanks around each Chinese or Japanese character."""
    return _EACH_CJK.sub(r" \1 ", text)


def seen_text(text: str) -> str:
    r"""`text` as a reader sees it: no zero-width characters, tags or entities of HTML, or LaTeX
    commands for blanks. Text without any of them comes back as it is.

    >>> seen_text("<p>Let x &lt; 2,\\quad y</p>").split()
    ['Let', 'x', '<', '2,', 'y']
    """
    if "<" in text:
        text = _OTHER_TAG.sub(" ", _INLINE_TAG.sub("", text))
    return _without_unseen(text)


def _without_unseen(text: str) -> str:
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    # Substrings are found far quicker than patterns.
    if "\\" in text and ("quad" in text or "space" in text or "enskip" in text):
        text = _LATEX_BLANK.sub(" ", text)
    return _NO_WIDTH.sub("", text) if _NO_WIDTH.search(_beyond_ascii(text)) else text


def readings(text: str) -> tuple[str, ...]:
    r"""`spread` of the text as it is, and of `seen_text` where its words differ.

    >>> readings("the pri\u00adme p")
    ('the pri me p', 'the prime p')
    """
    literal = spread(text)
    seen = seen_text(text)
    if seen == text:
        return (literal,)
    seen = spread(seen)
    return (literal,) if seen.split() == literal.split() else (literal, seen)


def duplicate_key(text: str) -> bytes:
    r"""Equal for two texts that are the same prompt, so far as their characters tell.

    The key is made of the letters, digits and signs of the text as a reader sees it (`seen_text`),
    in NFKC and lower case, and of the borders of its words. So case, the number and kind of blanks,
    the Unicode form, the shape of quotation marks and dashes, ``$`` and the punctuation at the end
    do not count. All other signs do: prompts that differ in an operator are two prompts.

    Where NFKC and `seen_text` would make one of two texts, the key goes by more than they leave:

    - what is raised or lowered, by Unicode or by ``<sup>`` and ``<sub>``, is marked as in LaTeX;
    - ``<p>`` and the like are tags only in a text that has ``</p>``: else they may be a bra-ket or
      the type in ``vector<p>``;
    - in a text with a line that opens a block of Python, deeper and less deep lines are told apart,
      by order of depth and not by number of blanks.

    >>> duplicate_key("What is  2+2 ?") == duplicate_key("what is 2 + 2")
    True
    >>> duplicate_key("3\u00b2"), duplicate_key("3<sup>2</sup>"), duplicate_key("32")
    (b'3 2\x003^2', b'3 2\x003^2', b'32\x0032')
    """
    text = _without_unseen(_without_tags(text) if "<" in text else text)
    if "\n" in text and ":" in text and any(map(_opens_block, _HEADER.finditer(text))):
        text = _with_blocks(text)
    normal = text if text.isascii() else unicodedata.normalize("NFKC", text)
    if normal != text and _SHIFTED.search(text):
        normal = unicodedata.normalize("NFKC", _SHIFTED.sub(_shifted, text))
    signs = text = normal if normal.isascii() else normal.lower()
    if "\\" in text:
        if "\\\\" in text:
            signs = _LATEX_SIGN_BLANK_OR_ROW.sub(r"\1", text)
        else:  # twice as fast
            signs = _LATEX_SIGN_BLANK.sub("", text)
    if _FOLDED.search(_beyond_ascii(text)):
        signs = _FOLDED.sub(lambda match: _PLAIN.get(match[0], ""), signs)
    words = " ".join(_spread(text).split()).encode()
    signs = signs.encode("utf-8", "surrogatepass").translate(_LOWER, _UNSEEN).rstrip(b".,:;?")
    # All signs without blanks, and where the words part: together they give the text back.
    return words + b"\0" + signs


def _without_tags(text: str) -> str:
    """As in `seen_text`, but what is raised or lowered is marked, and opening tags that nothing
    closes stay in the text."""
    closes = "</" in text  # a search for what is not there would take longer than this look
    closed = _NEVER_CLOSED.union(map(str.lower, _CLOSING.findall(text) if closes else ()))

    def cut(match: re.Match, blank: str = "") -> str:
        tag = match[0].lower()
        opening = _OPENING.fullmatch(tag)
        if opening and opening[1] not in closed:
            return match[0]
        if tag[:4] in ("<sup", "<sub"):  # around other tags
            return "^{" if tag[3] == "p" else "_{"
        if tag[:5] in ("</sup", "</sub"):
            return "}"
        return "\n" if tag.startswith("<br") else blank

    text = _INLINE_TAG.sub(cut, text)
    if closes:
        text = _SHIFT_TAG.sub(_shifted, text)
    return _OTHER_TAG.sub(lambda match: cut(match, " "), text)


def with_shifts_marked(text: str) -> str:
    """`text` with what is raised or lowered, by Unicode or by tags, written as in LaTeX.

    >>> with_shifts_marked("3\u00b2 is 3<sup>2</sup>")
    '3^² is 3^2'
    """
    return _SHIFT_TAG.sub(_shifted, _SHIFTED.sub(_shifted, text))


def _shifted(match: re.Match) -> str:
    """What is raised or lowered, with the sign of LaTeX, and with braces where its end would else
    be unclear."""
    if match.re is _SHIFT_TAG:
        body, is_raised = match[2].strip(), match[1].lower() == "sup"
    else:
        body, is_raised = match[0], bool(_IS_RAISED.match(match[0]))
    behind = match.string[match.end() : match.end() + 1]
    body = body if body.isalnum() and not behind.isalnum() else f"{{{body}}}"
    return ("^" if is_raised else "_") + body


def _opens_block(header: re.Match) -> bool:
    line = header[1]
    return any(part.rstrip().endswith(":") for part in (line, line.partition("#")[0]))


def _with_blocks(text: str) -> str:
    """The lines of `text`, with signs before those that are deeper or less deep than the last."""
    depths, lines = [0], []
    for line in text.split("\n"):
        if content := line.lstrip():
            depth, signs = len(line[: -len(content)].expandtabs(8)), ""
            while depth < depths[-1]:
                depths.pop()
                signs += _DEDENT
            if depth > depths[-1]:
                depths.append(depth)
                signs += _INDENT
            line = signs + content
        lines.append(line)
    return "\n".join(lines)
