"""What marks a response: the tags around its thought, the box around its answer."""

from __future__ import annotations

import re

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"

# templates open, or skip, thinking in the prompt
_PREFILL = re.compile(r"<think>\s*(?P<closed></think>\s*)?\Z")
_BRACES = re.compile(r"(?P<box>\\{1,2}boxed\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)

_BOX = r"\\{1,2}boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
_TWO_BOXES = re.compile(  # overlapping, so that three are two pairs
    rf"(?={_BOX}[\s$]*(?:(?:,|\band\b|\bor\b|\\q?quad\b|\\text\{{ *(?:and|or) *\}})[\s$]*)+"
    rf"(?:[A-Za-z]\w*\s*=\s*)?{_BOX})"
)


def prefilled(prompt: str) -> re.Match | None:
    """The opening think tag at the end of a prompt, or the empty pair, whose closing tag is the
    group ``closed``; None if a prompt ends with neither.

    >>> prefilled("<|assistant|><think>\\n")["closed"] is None
    True
    """
    return _PREFILL.search(prompt[-200:])


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


def last_boxes(text: str) -> str | None:
    r"""The last box, with those before it that only "and", "or", a comma or a left side parts from
    it: they are one list, and no answer can be hedged by a second box.

    >>> last_boxes(r"$x = \boxed{2}$ or $x = \boxed{5}$"), last_boxes(r"\boxed{2}, so \boxed{5}")
    ('2, 5', '5')
    """
    last = last_boxed(text)
    if last is None:
        return None
    found, place = [last], text.rfind("boxed")
    # not all of the text: a hostile one has a thousand boxes that never end
    for pair in reversed([*_TWO_BOXES.finditer(text[max(0, place - 1000) : place + 1000])]):
        first, second = pair[1].strip(), pair[2].strip()
        if second != found[0] or first == second:
            break
        found.insert(0, first)
    return ", ".join(found)
