"""Who writes a source's responses, and how well: wrong steps, steps left out, needless steps, and a
notation of their own. The same four dials grade writers of mathematics and of code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from klearlib.miniature import code_problems, problems
from klearlib.miniature.problems import Slips

NOTATIONS = ("plain", "spaced", "swapped")
"""How a line of thinking looks: ``3*9=7``, ``3 * 9 = 7``, ``7=9*3``. In code the second writes
``n = n * 2`` for ``n *= 2``, the third a case behind its operations."""


@dataclass(frozen=True)
class Writer:
    """How one source's responses are written.

    `slips` is how single steps go wrong, `gaps` the share of steps that are done but not written
    down, `repeats` the share of steps that are written down again (inefficient, never wrong),
    `notation` a word of `NOTATIONS`. The last step is always written, so the answer follows from
    the last line. Only slips make answers wrong; the other dials make a response harder to learn
    from.

    >>> Writer(Slips(0, 0.0, 0.0, 0.0), gaps=0.0, repeats=0.0, notation="plain").notation
    'plain'
    """

    slips: Slips
    gaps: float
    repeats: float
    notation: str


def maths_response(
    draft: problems.Draft, writer: Writer, *, modulus: int, random: Random
) -> tuple[str, int]:
    """The writer's response to a maths problem, think tags and box included, and the answer in it.

    >>> draft = problems.chain(Random(0), 2, 10)
    >>> exact = Writer(Slips(0, 0.0, 0.0, 0.0), gaps=0.0, repeats=0.0, notation="swapped")
    >>> maths_response(draft, exact, modulus=10, random=Random(0))[0].splitlines()[-1]
    '\\\\boxed{6}'
    """
    lines, answer = problems.work_out(draft, modulus=modulus, slips=writer.slips, random=random)
    written = [_maths_line(line, writer.notation) for line in _kept(lines, writer, random)]
    return problems.response_text(written, answer), answer


def code_response(draft: code_problems.Draft, writer: Writer, *, random: Random) -> str:
    """The writer's response to a code problem, think tags and a closed Python block included.

    Gaps and repeats are those of the thinking. As often as a line of thinking is repeated, two
    needless lines follow an operation of the program, of which the second undoes the first.
    """
    branches = code_problems.misread(draft, slips=writer.slips, random=random)
    thinking = _kept([_code_line(branch, writer.notation) for branch in branches], writer, random)
    program = draft.program(branches)
    return code_problems.response_text(thinking, _program(program, writer, random))


def _kept(lines: Sequence[str], writer: Writer, random: Random) -> list[str]:
    """The lines that are written down: the last always, others but for gaps, some of them twice."""
    kept: list[str] = []
    for index, line in enumerate(lines):
        is_last = index == len(lines) - 1
        is_gap, is_repeated = random.random() < writer.gaps, random.random() < writer.repeats
        if is_last or not is_gap:
            kept += [line, line] if is_repeated else [line]
    return kept


def _maths_line(line: str, notation: str) -> str:
    left, _, result = line.partition("=")
    sign = next(sign for sign in "+-*" if sign in left[1:])
    first, _, second = left.partition(sign)
    return {
        "plain": line,
        "spaced": f"{first} {sign} {second} = {result}",
        "swapped": f"{result}={second}{sign}{first}",
    }[notation]


def _code_line(branch: code_problems.Branch, notation: str) -> str:
    if notation == "swapped":
        return f"{branch.recipe} if {branch.condition}"
    return f"{branch.condition}: {branch.recipe}"


def _program(program: str, writer: Writer, random: Random) -> str:
    lines: list[str] = []
    for line in program.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(line)
        if indent and line.lstrip().startswith("n ") and random.random() < writer.repeats:
            lines += [f"{indent}n += 1", f"{indent}n -= 1"]
    if writer.notation == "spaced":
        lines = [_spelled_out(line) for line in lines]
    return "\n".join(lines)


def _spelled_out(line: str) -> str:
    """``n *= 2`` as ``n = n * 2``; other lines as they are."""
    left, sign, right = line.partition("= ")
    for operator in ("//", "*", "+", "-"):
        if sign and left.endswith(f" {operator}"):
            name = left.removesuffix(f" {operator}")
            return f"{name} = {name.lstrip()} {operator} {right}"
    return line
