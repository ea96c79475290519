"""From responses to verdicts on programs: extraction, the choice of tests, real runs."""

import ast
import json
import random
from dataclasses import replace

import pytest
from raw_rows import ROWS

from klearlib.data.sources import read_source
from klearlib.errors import KlearError
from klearlib.records import Problem, TestCase, TestReport, Verdict
from klearlib.verify import code_answers
from klearlib.verify.code_answers import (
    USUAL_IMPORTS,
    chosen_tests,
    read_programs,
    verify_programs,
)
from klearlib.verify.rewards import hard_code_reward, soft_code_reward

LIMITS = {"timeout_s": 5.0, "memory_mb": 256}


def answer(program: str, label: str = "python") -> str:
    return f"<think>Let me see.</think>\nSo:\n```{label}\n{program}\n```\n"


def doubling(num_tests: int = 4, id: str = "double") -> Problem:
    tests = tuple(TestCase(stdin=f"{n}\n", expected=f"{2 * n}\n") for n in range(num_tests))
    return Problem(id=id, prompt="Double it.", tests=tests)


DOUBLE = "print(2 * int(input()))"
HALF_RIGHT = "n = int(input())\nprint(2 * n if n < 2 else 0)"


# reading


@pytest.mark.parametrize(
    ("response", "prompt", "reason", "tags"),
    [
        (answer(DOUBLE), "", None, (True, True)),
        (answer(DOUBLE).removeprefix("<think>"), "", "bad_format", (False, True)),
        (answer(DOUBLE).removeprefix("<think>"), "<|assistant|><think>\n", None, (True, True)),
        (answer(DOUBLE).replace("</think>", ""), "", "bad_format", (True, False)),
        ("<think></think>print(1)", "", "no_answer", (True, True)),
        (answer(DOUBLE, "cpp"), "", "no_answer", (True, True)),
        (answer(DOUBLE)[:-5], "", "no_answer", (True, True)),
        ("<think>\n```python\nx\n```\n</think>None.", "", "no_answer", (True, True)),
        ("", "", "bad_format", (False, False)),
    ],
)
def test_reading(response, prompt, reason, tags):
    (reading,) = read_programs([response], prompts=[prompt])
    assert reading.reason == reason
    assert reading.source == (DOUBLE if reason is None else None)
    assert (reading.has_think_open, reading.has_think_close) == tags


def test_other_formats_are_read_without_tags():
    (reading,) = read_programs([f"```py\n{DOUBLE}\n```"], require_think=False)
    assert (reading.source, reading.reason, reading.has_think_open) == (DOUBLE, None, False)


# the choice of tests


def test_chosen_tests_depend_on_seed_and_id_alone():
    problem = doubling(40)
    chosen = chosen_tests(problem, max_tests=16, seed=3)
    assert len(chosen) == 16
    places = [problem.tests.index(test) for test in chosen]
    assert places == sorted(set(places))
    random.seed(0)
    assert chosen_tests(replace(problem, prompt="Other."), max_tests=16, seed=3) == chosen
    assert chosen_tests(problem, max_tests=16, seed=4) != chosen
    assert chosen_tests(replace(problem, id="other"), max_tests=16, seed=3) != chosen


def test_chosen_tests_reach_all_tests():
    problem = doubling(6)
    seen = {t for seed in range(40) for t in chosen_tests(problem, max_tests=2, seed=seed)}
    assert seen == set(problem.tests)


def test_all_tests_where_there_are_few():
    problem = doubling(4)
    for max_tests in (None, 4, 100):
        assert chosen_tests(problem, max_tests=max_tests, seed=1) == problem.tests


def test_problems_without_tests_and_bad_numbers_are_errors():
    with pytest.raises(KlearError, match="'empty' has no tests"):
        chosen_tests(Problem(id="empty", prompt=""))
    with pytest.raises(KlearError, match="'empty' has no tests"):
        verify_programs([answer(DOUBLE)], [Problem(id="empty", prompt="")], **LIMITS)
    with pytest.raises(KlearError, match="max_tests"):
        chosen_tests(doubling(), max_tests=0)


@pytest.mark.parametrize(
    ("responses", "problems", "prompts", "named"),
    [
        (["a", "b"], [doubling()], None, "problems"),
        (["a"], [doubling()], [], "prompts"),
        ("a", [doubling()], None, "responses"),
        (["a"], [doubling()], "p", "prompts"),
    ],
)
def test_lengths_that_differ_are_errors(responses, problems, prompts, named):
    with pytest.raises(KlearError, match=named):
        verify_programs(responses, problems, prompts=prompts, **LIMITS)


# verdicts of real runs


def test_verdicts():
    programs = [DOUBLE, HALF_RIGHT, "raise ValueError", "print("]
    responses = [answer(program) for program in programs]
    responses += ["<think></think>I cannot.", answer(DOUBLE).replace("<think>", "")]
    verdicts = verify_programs(responses, [doubling(4)] * 6, **LIMITS)
    reasons = ["correct", "wrong", "wrong", "wrong", "no_answer", "bad_format"]
    assert [v.reason for v in verdicts] == reasons
    assert [v.correct for v in verdicts] == [reason == "correct" for reason in reasons]
    assert [v.extracted for v in verdicts] == [*programs, None, None]
    assert verdicts[0].report.outcomes == ("passed",) * 4
    assert verdicts[1].report.outcomes == ("passed", "passed", "wrong_answer", "wrong_answer")
    assert set(verdicts[2].report.outcomes) == {"runtime_error"}
    assert set(verdicts[3].report.outcomes) == {"compile_error"}
    assert verdicts[4].report is None and verdicts[5].report is None
    assert verdicts[5].has_think_close and not verdicts[5].has_think_open
    assert [soft_code_reward(v) for v in verdicts] == [1, 0.5, 0, 0, 0, 0]
    assert [hard_code_reward(v) for v in verdicts] == [1, 0, 0, 0, 0, 0]


def test_a_time_limit_is_the_programs_own_failure():
    (verdict,) = verify_programs(
        [answer("while True: pass")], [doubling(1)], timeout_s=0.2, memory_mb=256
    )
    assert verdict.report.outcomes == ("time_limit",)
    assert (verdict.reason, verdict.correct) == ("wrong", False)


def test_a_program_without_tags_is_not_run(monkeypatch):
    jobs = []
    monkeypatch.setattr(code_answers, "run_many", lambda given, **_: jobs.extend(given) or [])
    (verdict,) = verify_programs([f"```python\n{DOUBLE}\n```"], [doubling()], **LIMITS)
    assert verdict.reason == "bad_format" and jobs == []
    (reading,) = read_programs([f"```python\n{DOUBLE}\n```"], require_think=False)
    assert reading.source == DOUBLE


def test_one_judge_error_is_the_judges_even_where_all_else_passed(monkeypatch):
    outcomes = [("passed", "judge_error"), ("wrong_answer", "judge_error"), ("passed", "passed")]
    monkeypatch.setattr(
        code_answers,
        "run_many",
        lambda jobs, **_: [TestReport.of(o) for o, _ in zip(outcomes, jobs, strict=True)],
    )
    verdicts = verify_programs([answer(DOUBLE)] * 3, [doubling(2)] * 3, **LIMITS)
    assert [(v.reason, v.correct) for v in verdicts] == [
        ("judge_error", False),
        ("judge_error", False),
        ("correct", True),
    ]


def test_a_group_meets_the_same_tests():
    problem = doubling(30)
    program = "n = int(input())\nprint(2 * n if n % 2 else 0)"
    verdicts = verify_programs(
        [answer(program), answer(program + "\n# again"), answer(program)],
        [problem, replace(problem, prompt="asked otherwise"), problem],
        max_tests=8,
        tests_seed=5,
        **LIMITS,
    )
    expected = tuple(
        "passed" if int(test.stdin) % 2 or int(test.stdin) == 0 else "wrong_answer"
        for test in chosen_tests(problem, max_tests=8, seed=5)
    )
    assert [v.report.outcomes for v in verdicts] == [expected] * 3


def test_functions_and_methods():
    tests = (TestCase(call="[[2, 1]]", expected="[1, 2]"), TestCase(call="[[]]", expected="[]"))
    problem = Problem(id="order", prompt="Sort.", tests=tests, entry_point="order")
    programs = [
        "def order(xs):\n    return sorted(xs)",
        "class Solution:\n    def order(self, xs):\n        return sorted(xs)",
        "def order(xs):\n    return xs",
        "def sort(xs):\n    return sorted(xs)",
    ]
    verdicts = verify_programs([answer(p) for p in programs], [problem] * 4, **LIMITS)
    assert [v.report.pass_rate for v in verdicts] == [1.0, 1.0, 0.5, 0.0]


def test_asserts_with_functions_of_the_tests_own():
    row = {
        "task_id": "HumanEval/900",
        "prompt": "def poly(x):\n    return x * x\n\n\ndef find(x):\n    '''Find poly(x).'''\n",
        "entry_point": "find",
        "test": "def check(candidate):\n    assert candidate(3) == poly(3) == find(3)\n",
    }
    programs = {
        "def find(x):\n    return x * x": True,
        row["prompt"] + "    return poly(x)\n": True,
        "def poly(x):\n    return 7\ndef find(x):\n    return 7": False,
        "def check(f):\n    pass\ndef find(x):\n    return 7": False,
    }
    (given,) = read_source("humaneval", [row])
    verdicts = verify_programs([answer(p) for p in programs], [given.problem] * 4, **LIMITS)
    assert [v.correct for v in verdicts] == list(programs.values())


# the prelude


def test_the_prelude_defines_what_programs_forget_to_import():
    tests = (TestCase(call="[[1, 1]]", expected="1"),)
    problem = Problem(id="most", prompt="", tests=tests, entry_point="most")
    body = "def most(xs: List[int]) -> int:\n    return Counter(xs).most_common()[0][0]"
    programs = [
        body,
        f'"""Most."""\nfrom __future__ import annotations\n{body}',
        f"# from __future__ import x\n{body}",
        "def most(:",
        "from __future__ import annotations\ndef most(:",
    ]
    responses = [answer(program) for program in programs]
    without = verify_programs(responses, [problem] * 5, **LIMITS)
    verdicts = verify_programs(responses, [problem] * 5, prelude=USUAL_IMPORTS, **LIMITS)
    assert not any(v.correct for v in without)
    assert [v.correct for v in verdicts] == [True, True, True, False, False]
    assert [v.report.outcomes[0] for v in verdicts[3:]] == ["compile_error"] * 2
    assert [v.extracted for v in verdicts] == programs


def test_the_usual_imports_are_imports():
    names: dict = {}
    exec(USUAL_IMPORTS, names)
    assert all(isinstance(n, ast.Import | ast.ImportFrom) for n in ast.parse(USUAL_IMPORTS).body)
    assert {"List", "Optional", "defaultdict", "heappush", "math", "inf", "cache"} <= set(names)


def test_nothing_to_judge():
    assert verify_programs([], [], **LIMITS) == []
    (verdict,) = verify_programs(["<think></think>"], [doubling()], **LIMITS)
    assert verdict == Verdict(correct=False, reason="no_answer")


# rows of the data sets, from loading to the verdict

TWICE = "def twice(x):\n    return 2 * x"
METHOD = "class Solution:\n    def twice(self, x):\n        return 2 * x"
FROM_ROWS = {
    "apps stdin": (
        "apps",
        {"input_output": '{"inputs": ["2\\n", ["3"]], "outputs": ["4\\n", ["6"]]}'},
        DOUBLE,
        "print(4)",
    ),
    "apps wrapped": (
        "apps",
        {"input_output": '{"fn_name": "twice", "inputs": [[2], ["a"]], "outputs": [[4], ["aa"]]}'},
        TWICE,
        "def twice(x):\n    return [2 * x]",
    ),
    "livecodebench functional": (
        "livecodebench",
        {
            "public_test_cases": '[{"input": "[2]", "output": "[2, 2]", "testtype": "functional"}]',
            "metadata": '{"func_name": "twice"}',
        },
        METHOD,
        METHOD.replace("2 * x", "x"),
    ),
    "deepcoder primeintellect": (
        "deepcoder",
        {"tests": '[{"type": "function_call", "fn_name": "twice", "input": [2], "output": [4]}]'},
        TWICE,
        "def double(x):\n    return 2 * x",
    ),
    "klear functional": (
        "klear_code",
        {"functional": "def check(f):\n    assert f(x=2) == 4\n\ncheck(Solution().twice)"},
        METHOD,
        METHOD.replace("2 * x", "2 + 2 * x"),
    ),
    "klear pytest": (
        "klear_code",
        {"pytest": "from solution import twice as t\n\ndef test_it():\n    assert t(2) == 4"},
        TWICE,
        "def twice(x):\n    return x",
    ),
    "mbpp": (
        "mbpp",
        {"code": TWICE, "test_list": ["assert twice(2) == 4", "assert math.isclose(twice(1), 2)"]},
        TWICE,
        "def twice(x):\n    return 4",
    ),
    "mbpp with a class": (
        "mbpp",
        {
            "code": "class P:\n    pass\ndef count(xs):\n    return len(xs)",
            "test_list": ["assert count([P(), P()]) == 2"],
        },
        "class P:\n    pass\ndef count(xs):\n    return len(xs)",
        "class P:\n    pass\ndef count(xs):\n    return 3",
    ),
}
COLUMNS = {
    "apps": {"problem_id": 1, "question": "Twice.", "starter_code": ""},
    "livecodebench": {
        "question_id": "1",
        "question_content": "Twice.",
        "starter_code": METHOD.partition("    return")[0],
        "contest_date": "2025-02-01T00:00:00",
        "private_test_cases": "[]",
    },
    "deepcoder": {"problem": "Twice."},
    "klear_code": {"prompt": [{"role": "user", "content": "Twice."}]},
    "mbpp": {"task_id": 1, "text": "Twice."},
}


@pytest.mark.parametrize("name", FROM_ROWS)
def test_rows_are_judged(name):
    format, columns, right, wrong = FROM_ROWS[name]
    if format == "klear_code":
        columns = {"reward_model": {"ground_truth": json.dumps(columns)}}
    (given,) = read_source(format, [ROWS[format] | COLUMNS[format] | columns])
    verdicts = verify_programs([answer(right), answer(wrong)], [given.problem] * 2, **LIMITS)
    assert [v.reason for v in verdicts] == ["correct", "wrong"], verdicts
