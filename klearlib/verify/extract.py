"""Where the answer stands in a response: think tags first, then the last box."""

from __future__ import annotations

import re
from dataclasses import dataclass

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
MAX_ANSWER_CHARS = 2000  # some ten times the longest gold answer of the benchmarks

_PREFILL = re.compile(r"<think>\s*(?P<closed></think>\s*)?\Z")
_BRACES = re.compile(r"(?P<box>\\boxed\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_WHOLE_BOX = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)
# Neither `\right.` nor an ellipsis ends a sentence: their point is part of the formula.
_FULL_STOP = re.compile(r"(?<![.\\])(?<!\\right)\.\Z")


@dataclass(frozen=True)
class Reading:
    """A response split by its think tags: `text` is what stands after the last closing tag.

    A response without a closing tag has its whole text in `text`.
    """

    text: str
    has_think_open: bool
    has_think_close: bool


def read_response(response: str, prompt: str = "") -> Reading:
    """Find the think tags of a response and the text that follows them.

    The opening tag must stand before the last closing one. A prompt whose end is an opening tag
    (a chat template that pre-fills it) counts as if the response began with it; the same holds
    for the pre-filled empty pair of the templates' modes without thinking.

    >>> read_response("<think>2 + 2</think>4")
    Reading(text='4', has_think_open=True, has_think_close=True)
    >>> read_response("2 + 2</think>4", prompt="<|assistant|><think>\\n").has_think_open
    True
    """
    prefill = _PREFILL.search(prompt[-200:])
    thought, close, text = response.rpartition(THINK_CLOSE)
    has_close = bool(close) or bool(prefill and prefill["closed"])
    has_open = prefill is not None or THINK_OPEN in (thought if close else response)
    return Reading(text=text, has_think_open=has_open, has_think_close=has_close)


def last_boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}`` whose braces balance, None where there is none.

    Escaped braces (``\{``) do not count, an empty box is passed over, and of nested boxes the
    innermost is taken. One pass, so a hostile text costs no more than its length. math-verify joins
    neighbouring boxes into a list; here only the last box counts, so that no answer can be hedged.

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


def trim(answer: str) -> str:
    r"""An answer without what carries no meaning: blanks, enclosing dollars, one full stop.

    >>> trim(" $385.$ ")
    '385'
    """
    for _ in range(2):  # the full stop may stand inside or outside of the dollars
        answer = _FULL_STOP.sub("", answer.strip()).strip()
        inner = answer.strip("$")
        if not inner:
            return ""
        num_before = len(answer) - len(answer.lstrip("$"))
        num_after = len(answer) - len(answer.rstrip("$")) - inner.endswith("\\")
        num_pairs = min(num_before, num_after)
        answer = answer[num_pairs : len(answer) - num_pairs].strip()
    return answer


def unboxed(gold: str) -> str:
    r"""A gold answer without the one ``\boxed{}`` that some data sets leave around it.

    >>> unboxed(r"\boxed{7}"), unboxed(r"\boxed{3}, \boxed{7}")
    ('7', '\\boxed{3}, \\boxed{7}')
    """
    box = _WHOLE_BOX.fullmatch(gold.strip())
    return box[1].strip() if box and last_boxed(gold) == box[1].strip() else gold
