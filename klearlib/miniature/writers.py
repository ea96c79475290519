"""Who writes a source's responses, and how well: wrong steps, steps left out, needless steps, and a
notation of their own. The same four dials grade writers of mathematics and of code."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from klearlib.miniature import code_problems, problems
from klearlib.miniature.problems import Slips
from klearlib.miniature.source_plan import SourcePlan

NOTATIONS = ("plain", "spaced", "swapped")
"""How a line of thinking looks: ``3*9=7``, ``3 * 9 = 7``, ``7=9*3``. In code the second writes
``n = n * 2`` for ``n *= 2``, the third a case behind its operations."""


def maths_response(
    draft: problems.Draft, plan: SourcePlan, slips: Slips, *, modulus: int, random: Random
) -> tuple[str, int]:
    """A response to a maths problem as `plan` has it written, with `slips`, think tags and box
    included, and the answer in it.

    >>> draft, plan = problems.chain(Random(0), 2, 10), SourcePlan("a", "gsm8k", "math", 1)
    >>> exact = plan.slips(habits=0, slip_rate=0.0)
    >>> maths_response(draft, plan, exact, modulus=10, random=Random(0))[0].splitlines()[-1]
    '\\\\boxed{6}'
    """
    lines, answer = problems.work_out(draft, modulus=modulus, slips=slips, random=random)
    written = [_maths_line(line, plan.notation) for line in _kept(lines, plan, random)]
    return problems.response_text(written, answer), answer


def code_response(
    draft: code_problems.Draft, plan: SourcePlan, slips: Slips, *, random: Random
) -> str:
    """As `maths_response` to a code problem, think tags and a closed Python block included.

    Gaps and repeats are those of the thinking. As often as a line of thinking is repeated, two
    needless lines follow an operation of the program, of which the second undoes the first.
    """
    branches = code_problems.misread(draft, slips=slips, random=random)
    thinking = _kept([_code_line(branch, plan.notation) for branch in branches], plan, random)
    program = draft.program(branches)
    return code_problems.response_text(thinking, _program(program, plan, random))


def _kept(lines: Sequence[str], plan: SourcePlan, random: Random) -> list[str]:
    """The lines that are written down: the last always, others but for gaps, some of them twice."""
    kept: list[str] = []
    for index, line in enumerate(lines):
        is_last = index == len(lines) - 1
        is_gap, is_repeated = random.random() < plan.gaps, random.random() < plan.repeats
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


def _program(program: str, plan: SourcePlan, random: Random) -> str:
    lines: list[str] = []
    for line in program.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(line)
        if indent and line.lstrip().startswith("n ") and random.random() < plan.repeats:
            lines += [f"{indent}n += 1", f"{indent}n -= 1"]
    if plan.notation == "spaced":
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
