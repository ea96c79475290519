"""What marks a response: the tags around its thought, the box around its answer."""

from __future__ import annotations

import re

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"

_BRACES = re.compile(r"(?P<box>\\{1,2}boxed\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)


def last_boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}`` whose braces balance, None where there is none.

    Escaped braces (``\{``) do not count, an empty box is passed over, and of nested boxes the
    innermost is taken. One pass, so a hostile text costs no more than its length. math-verify joins
    neighbouring boxes into a list; here only the last box counts, so that no answer can be hedged.
    A doubled backslash, as JSON has it, is read as one.

    >>> last_boxed(r"\boxed{1}, then \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    if "\\boxed" not in text:
        return None
    open_braces: list[int | None] = []
    last_start, last_content = -1, None
    for token in _BRACES.finditer(text):
        if token["box"]:
            open_braces.append(token.end())
        elif token["open"]:
            open_braces.append(None)
        elif token["close"] and open_braces:
            start = open_braces.pop()
            if start is not None and start > last_start:
                content = text[start : token.start()].strip()
                if content:
                    last_start, last_content = start, content
    return last_content
