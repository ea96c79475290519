"""Small exact demonstrations of the judge and the rewards, without any training."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from klearlib.records import TestCase, TestReport
from klearlib.verify.programs import ProgramJob, run_many
from klearlib.verify.rewards import hard_code_reward, soft_code_reward

if TYPE_CHECKING:
    import pandas as pd

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


def group_signal() -> pd.DataFrame:
    """The advantages (Eq. 4) of one group under both rewards.

    None of its programs passes all 16 tests: the hard reward is -1 for all and teaches nothing,
    while the soft one orders them.
    """
    import pandas as pd
    import torch

    from klearlib.rl.advantages import group_advantages

    passes = (0, 4, 8, 8, 12, 12, 15, 15)  # tests, one number for each response of the group
    reports = [TestReport.of(["passed"] * n + ["wrong_answer"] * (16 - n)) for n in passes]
    columns: dict[str, list] = {"tests passed of 16": passes}
    for name, pay in (("soft", soft_code_reward), ("hard", hard_code_reward)):
        rewards = torch.tensor([[pay(report) for report in reports]], dtype=torch.float64)
        columns[f"{name} reward"] = rewards[0].tolist()
        columns[f"{name} advantage"] = group_advantages(rewards)[0].tolist()
    return pd.DataFrame(columns)


@cache
def flawed_tests() -> pd.DataFrame:
    """The same programs paid by the same tests, and by tests of which four are wrong.

    The wrong tests are those whose inputs reach the first branch. The soft reward of the right
    program falls, the hard reward no longer tells it from the others.
    """
    import pandas as pd

    wrong = list(TESTS)
    for n in (1, 4, 7, 10):
        wrong[n] = replace(TESTS[n], expected=str(_expected(n) + 1))
    sets = {"sound tests": TESTS, "4 wrong tests": tuple(wrong)}
    rows = []
    for name in ("right", "one branch wrong", "condition never true"):
        jobs = [ProgramJob(PROGRAMS[name], tests, 1.0, 256) for tests in sets.values()]
        row: dict = {"program": name}
        for label, report in zip(sets, run_many(jobs), strict=True):
            row[f"soft, {label}"] = soft_code_reward(report)
            row[f"hard, {label}"] = hard_code_reward(report)
        rows.append(row)
    return pd.DataFrame(rows)
