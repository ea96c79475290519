"""Which block of a response is its program: the last closed Python block."""

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
_BEHIND_TEXT = re.compile(r"(?P<fence>`{3,})[ \t]*(?P<label>[\w+#.-]*)[ \t]*\Z")
_PYTHON_LABEL = re.compile(
    r"(?:\{?\.?(?:python|py|(?:ipython|pypy)(?=3))[-_]?[0-9.]*|\w+\.py)(?![\w+#./-])", re.IGNORECASE
)
_STATEMENT = re.compile(
    r"^\s*(?:import\s|from\s.+\simport\s|def\s|class\s|for\s.+\sin\s|while\s|with\s|if\s.+:|print\s*\()"
    r"|\binput\(|\bsys\.std|\blambda\b"
)
_LETTER = re.compile("[A-Za-z]")
_WORD_LABEL = re.compile(r"[A-Za-z][\w+#-]*[ \t]*")
_ENDS_PROSE = (":", "\uff1a", ">", "*")  # before a fence without label; "wrap it in ```" opens none
_BEHIND_CODE = tuple(" \t<.,;:!)*")  # what may follow a fence that closes; in a string a quote does
_CODE = re.compile(r"[\"'#]")
_MAX_FENCE_SHIFT = 3  # CommonMark: a fence farther to the right than this is code


class _Fence(NamedTuple):
    """The opening fence of a code block."""

    char: str
    length: int
    indent: int  # its width
    label: str
    line: int


_Block = tuple[_Fence, int, str]  # the fence, the line after the body, the code on that line


def last_code_block(text: str) -> str | None:
    r"""The last closed Python block of `text` (`extract.Reading.text`), None where there is none.

    Blocks are fenced as in CommonMark: three or more backticks or tildes, closed by as many or more
    of the same character, so a longer fence may hold a shorter one. A block labelled ``python``,
    ``py``, ``python3``, ``main.py`` or the like (in any case) is preferred; without such a block
    the last one without a label is taken, a program first (`YES` is an output), and a block
    labelled as another language never is. Blocks of blanks are passed over.

    Where models leave CommonMark, the likely reading is taken: text may stand before an opening
    fence and behind a closing one, which may end the line of the last statement; a labelled fence
    of at least the same length begins a new block where the one before was not closed; a block
    whose every line is indented is dedented. Where that finds nothing, the last two lines that hold
    a fence begin and end the block, as LiveCodeBench reads them. An unclosed block at the end is a
    program that ran out of tokens, so it does not count. The time is linear in the length of the
    text.

    Differences: LiveCodeBench and DeepCoder take the last block whatever its label; the released
    code asks for ``python`` and for a line end before the closing fence.

    >>> last_code_block("First:\n```python\nprint(1)\n```\nBetter:\n```py\nprint(2)\n```\nBye")
    'print(2)'
    >>> last_code_block("Here: ```python\nprint(1)\n``` Done.")
    'print(1)'
    >>> last_code_block("```cpp\nint x;\n```") is None
    True
    """
    lines = text.replace("\r\n", "\n").split("\n")
    found: dict[int, list[str]] = {}  # the last block of each rank
    for block in _closed_blocks(lines):
        is_python = bool(_PYTHON_LABEL.match(block[0].label))
        if body := _body(lines, block) if is_python or not block[0].label else None:
            looks = (_LETTER, _STATEMENT)
            found[3 if is_python else sum(any(map(look.search, body)) for look in looks)] = body
    body = found[max(found)] if found else _last_pair(lines)
    if body is None:
        return None
    first = next(line for line in body if line.strip())
    code = "\n".join(body)
    return textwrap.dedent(code) if first[0] in " \t" else code


def _body(lines: list[str], block: _Block) -> list[str] | None:
    """The lines of a block, None where they are blank."""
    fence, end, last = block
    body = [*lines[fence.line + 1 : end], *([last] if last.strip() else [])]
    body = [line[min(fence.indent, _indent(line)) :] for line in body]
    return body if any(line.strip() for line in body) else None


def _closed_blocks(lines: list[str]) -> Iterator[_Block]:
    block: _Fence | None = None
    glued: _Block | None = None  # the open block up to the first fence that follows its code
    for number, line in enumerate(lines):
        if block is None:
            block = _opening(line, number)
            continue
        mark = block.char * block.length
        if mark not in line:
            continue
        head, _, tail = line.rpartition(mark)
        code = head.rstrip(block.char)
        is_left = _indent(line) <= block.indent + _MAX_FENCE_SHIFT
        stripped = line.lstrip(" \t")
        behind = stripped.lstrip(block.char) if stripped.startswith(mark) else mark
        if mark not in behind and not _is_label(behind):
            if is_left:
                yield block, number, ""
                block, glued = None, None
            continue
        opening = _opening(line, number) if is_left else None
        begins = (
            opening is not None
            and opening.label
            and opening.char == block.char
            and opening.length >= block.length
            and (glued or not _CODE.search(line.partition(mark)[0]))
        )
        if begins:
            if glued is not None:
                yield glued
            block, glued = opening, None
        elif glued is None and code.strip() and (not tail or tail.startswith(_BEHIND_CODE)):
            glued = block, number, code
    if block is not None and glued is not None:
        yield glued


def _last_pair(lines: list[str]) -> list[str] | None:
    """What LiveCodeBench takes, where each line with a fence begins or ends a block."""
    held = [number for number, line in enumerate(lines) if "```" in line]
    if not held or len(held) % 2:
        return None
    begin, end = held[-2:]
    label = lines[begin].rpartition("```")[2].strip()
    code = lines[end].partition("```")[0]
    if _longest_run(lines[begin]) > _longest_run(lines[end]) or (
        label and not _PYTHON_LABEL.match(label)
    ):
        return None
    return _body(lines, (_Fence("`", 3, 0, label, begin), end, code))


def _longest_run(line: str) -> int:
    return max(map(len, re.findall("`+", line)))


def _opening(line: str, number: int) -> _Fence | None:
    if match := _OPEN_FENCE.match(line):
        indent, fence = len(match["indent"]), match["fence"]
        return _Fence(fence[0], len(fence), indent, match["label"].strip(), number)
    start = line.find("```")
    match = _BEHIND_TEXT.match(line, start) if start >= 0 else None
    if match is None or not (match["label"] or line[:start].rstrip().endswith(_ENDS_PROSE)):
        return None
    return _Fence("`", len(match["fence"]), _indent(line), match["label"], number)


def _is_label(behind: str) -> bool:
    """Whether what follows a fence names a language, so that the fence opens a block."""
    return bool(_PYTHON_LABEL.match(behind.strip()) or _WORD_LABEL.fullmatch(behind))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
