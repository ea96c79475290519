"""The method cell of notebook 07: programs, what the judge says of them and what they are paid."""

from __future__ import annotations

from collections import Counter
from functools import cache

from klearlib.records import TestCase
from klearlib.verify.programs import ProgramJob, run_many
from klearlib.verify.rewards import hard_code_reward, soft_code_reward

_RIGHT = """n = int(input())
if n % 3 == 1:
    n = n + 4
    n = n * 2
else:
    n = n - 7
print(n)
"""
_ENDLESS = "one branch never ends"
# What each program does -> its source, for "n mod 3 is 1: n + 4, then times 2; else n - 7".
PROGRAMS = {
    "right": _RIGHT,
    "one branch wrong": _RIGHT.replace("n - 7", "n - 6"),
    "condition never true": _RIGHT.replace("% 3 == 1", "% 3 == 3"),
    "no Python": _RIGHT.replace("else:", "else"),
    "fails on odd numbers": "n = int(input())\nassert n % 2 == 0\n" + _RIGHT.split("\n", 1)[1],
    _ENDLESS: _RIGHT.replace("    n = n + 4\n", "    while n:\n        pass\n"),
    "exits early, claims success": "import os\nos._exit(0)\n",
    "looks for the expected output": "import gc\nprint(max(map(str, gc.get_objects()), key=len))\n",
}
_NUM_TESTS = 16


def _expected(n: int) -> int:
    return (n + 4) * 2 if n % 3 == 1 else n - 7


TESTS = tuple(TestCase(stdin=f"{n}\n", expected=str(_expected(n))) for n in range(_NUM_TESTS))


@cache
def judged_programs(timeout_s: float, memory_mb: int) -> list[dict]:
    """Eight programs for one specification, really run against 16 tests: outcomes and rewards.

    Run once in a Python process, since a section is published many times while it fills.
    """
    jobs = [
        # Five of its tests run into their limit, which has nothing to show by lasting.
        ProgramJob(source, TESTS, 0.1 if name == _ENDLESS else timeout_s, memory_mb)
        for name, source in PROGRAMS.items()
    ]
    return [
        {
            "program": name,
            "outcomes of 16 tests": ", ".join(
                f"{n} {word}" for word, n in Counter(report.outcomes).items()
            ),
            "soft": soft_code_reward(report),
            "hard": hard_code_reward(report),
            "soft, released": soft_code_reward(report, scores="released"),
            "hard, released": hard_code_reward(report, scores="released"),
        }
        for name, report in zip(PROGRAMS, run_many(jobs), strict=True)
    ]
