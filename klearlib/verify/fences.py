"""Code blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

# A fence may stand on the line of a list item; a line of inline code (backticks later on) is none.
_OPEN_FENCE = re.compile(
    r"(?P<indent>[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)"
    r"(?P<fence>`{3,}(?!`)(?=[^`]*\Z)|~{3,}(?!~))[ \t]*(?P<label>.*)"
)
_PYTHON_LABEL = re.compile(r"(?:\{?\.)?(?:python|py)[0-9.]*(?![\w+#./-])", re.IGNORECASE)
_MAX_FENCE_SHIFT = 3  # CommonMark: a fence farther to the right than this is code


class _Fence(NamedTuple):
    """The opening fence of a code block."""

    char: str
    length: int
    indent: int  # its width
    label: str
    line: int


def last_code_block(text: str) -> str | None:
    r"""The last closed Python block of `text` (`Reading.text`), None where there is none.

    Blocks are fenced as in CommonMark: three or more backticks or tildes, closed by as many or more
    of the same character, so a longer fence may hold a shorter one. A block labelled ``python``,
    ``py`` or ``python3`` (in any case) is preferred; without such a block the last one without a
    label is taken, and a block labelled as another language never is. Blocks of blanks are passed
    over.

    Where models leave CommonMark, the likely reading is taken: a closing fence may end the line of
    the last statement, a labelled fence of at least the same length begins a new block where the
    one before was not closed, and a block whose every line is indented is dedented. An unclosed
    block at the end is a program that ran out of tokens, so it does not count. The time is linear
    in the length of the text.

    Differences: LiveCodeBench and DeepCoder take the last block whatever its label; the released
    code asks for ``python`` and for a line end before the closing fence.

    >>> last_code_block("First:\n```python\nprint(1)\n```\nBetter:\n```py\nprint(2)\n```\nBye")
    'print(2)'
    >>> last_code_block("```cpp\nint x;\n```") is None
    True
    """
    lines = text.replace("\r\n", "\n").split("\n")
    labelled = unlabelled = None
    for fence, end, last_line in _closed_blocks(lines):
        is_python = bool(_PYTHON_LABEL.match(fence.label))
        if not is_python and fence.label:
            continue
        body = [*lines[fence.line + 1 : end], *([] if last_line is None else [last_line])]
        body = [line[min(fence.indent, _indent(line)) :] for line in body]
        if not any(line.strip() for line in body):
            continue
        if is_python:
            labelled = body
        else:
            unlabelled = body
    body = labelled or unlabelled
    if body is None:
        return None
    first = next(line for line in body if line.strip())
    code = "\n".join(body)
    return textwrap.dedent(code) if first[0] in " \t" else code


def _closed_blocks(lines: list[str]) -> Iterator[tuple[_Fence, int, str | None]]:
    """Each closed block: its opening fence, the line after its body, and, where the closing fence
    stands behind code, that line's code."""
    block: _Fence | None = None
    glued: int | None = None  # the first line of the open block that ends with a closing fence
    for number, line in enumerate(lines):
        if block is None:
            block = _opening(line, number)
            continue
        stripped = line.rstrip(" \t")
        run = len(stripped) - len(stripped.rstrip(block.char))
        if run >= block.length and run == len(stripped.lstrip(" \t")):
            if _indent(line) <= block.indent + _MAX_FENCE_SHIFT:
                yield block, number, None
                block, glued = None, None
        elif run >= block.length and glued is None:
            glued = number
        elif (
            (opening := _opening(line, number))
            and opening.label
            and opening.char == block.char
            and opening.length >= block.length
            and opening.indent <= block.indent + _MAX_FENCE_SHIFT
        ):
            if glued is not None:
                yield block, glued, lines[glued].rstrip(" \t").rstrip(block.char)
            block, glued = opening, None
    if block is not None and glued is not None:
        yield block, glued, lines[glued].rstrip(" \t").rstrip(block.char)


def _opening(line: str, number: int) -> _Fence | None:
    match = _OPEN_FENCE.match(line)
    if match is None:
        return None
    fence = match["fence"]
    return _Fence(fence[0], len(fence), len(match["indent"]), match["label"].strip(), number)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
