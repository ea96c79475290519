"""From responses to verdicts on programs: extraction, the choice of tests, real runs."""

import builtins
import collections
import importlib
import random
from dataclasses import replace

import pytest
from shared_data import shared_rows

from klearlib.data.sources import read_source
from klearlib.errors import KlearError
from klearlib.records import NOT_JUDGED, Problem, TestCase, TestReport
from klearlib.verify import code_answers
from klearlib.verify.code_answers import chosen_tests, verify_programs
from klearlib.verify.presets import USUAL_IMPORTS
from klearlib.verify.programs import ProgramJob, run_many
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
def test_reading(monkeypatch, response, prompt, reason, tags):
    asked = []

    def run_all(jobs, **_):
        asked.extend(jobs)
        return [TestReport.of(["passed"]) for _ in asked]

    monkeypatch.setattr(code_answers, "run_many", run_all)
    (verdict,) = verify_programs([response], [doubling()], prompts=[prompt], **LIMITS)
    assert verdict.reason == (reason or "correct")
    assert verdict.extracted == (DOUBLE if reason is None else None)
    assert (verdict.has_think_open, verdict.has_think_close) == tags
    assert len(asked) == (reason is None)


def test_tags_are_not_needed_where_none_are_asked_for():
    untagged = [f"```python\n{DOUBLE}\n```"]
    (verdict,) = verify_programs(untagged, [doubling()], require_think=False, **LIMITS)
    assert verdict.correct and verdict.extracted == DOUBLE


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
    every = {t for seed in range(200) for t in chosen_tests(problem, max_tests=2, seed=seed)}
    assert every == set(problem.tests)
    for max_tests in (None, 40, 100):
        assert chosen_tests(problem, max_tests=max_tests, seed=1) == problem.tests


EMPTY = Problem(id="empty", prompt="")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: verify_programs(["a", "b"], [doubling()], **LIMITS), "problems"),
        (lambda: verify_programs(["a"], [doubling()], prompts=[], **LIMITS), "prompts"),
        (lambda: verify_programs([answer(DOUBLE)], [EMPTY], **LIMITS), "'empty' has no tests"),
    ],
)
def test_bad_arguments_are_errors(call, named):
    with pytest.raises(KlearError, match=named):
        call()


# verdicts of real runs


def test_verdicts():
    programs = {
        DOUBLE: ["passed"] * 4,
        HALF_RIGHT: ["passed"] * 2 + ["wrong_answer"] * 2,
        "raise ValueError": ["runtime_error"] * 4,
        "print(": ["compile_error"] * 4,
        "if input() == '3':\n    while True: pass": ["wrong_answer"] * 3 + ["time_limit"],
    }
    responses = [answer(program) for program in programs]
    responses += ["<think></think>I cannot.", answer(DOUBLE).replace("<think>", "")]
    how = LIMITS | {"timeout_s": 0.5}
    verdicts = verify_programs(responses, [doubling(4)] * 7, **how)
    assert verify_programs([], [], **how) == []
    reasons = ["correct", *["wrong"] * 4, "no_answer", "bad_format"]
    assert [v.reason for v in verdicts] == reasons
    assert [v.correct for v in verdicts] == [reason == "correct" for reason in reasons]
    assert [v.extracted for v in verdicts] == [*programs, None, None]
    assert [list(v.report.outcomes) for v in verdicts[:5]] == list(programs.values())
    assert verdicts[5].report is None and verdicts[6].report is None
    assert verdicts[6].has_think_close and not verdicts[6].has_think_open
    assert [soft_code_reward(v) for v in verdicts] == [1, 0.5, 0, 0, 0, 0, 0]
    assert [hard_code_reward(v) for v in verdicts] == [1, *[-1] * 6]


@pytest.mark.parametrize(("value", "outcome"), [("1", "passed"), ("2", "wrong_answer")])
def test_a_test_that_cannot_be_put_is_no_mistake_of_the_program(value, outcome):
    """One judge error is the judge's, whatever the other tests say."""
    tests = tuple(TestCase(asserts=f"assert f({x}) == 1") for x in ("1", "lambda: 1"))
    problem = Problem("p", "", tests=tests, entry_point="f")
    program = answer(f"def f(x): return {value}")
    (verdict,) = verify_programs([program], [problem], **LIMITS)
    assert verdict.reason == "judge_error" and verdict.reason in NOT_JUDGED
    assert not verdict.correct and verdict.report.outcomes == (outcome, "judge_error")
    assert "passes a function" in verdict.report.messages[1]


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
    bare = run_many(ProgramJob(p, tests, **LIMITS, entry_point="most") for p in programs)
    verdicts = verify_programs(responses, [problem] * 5, **LIMITS)
    assert not any(report.pass_rate for report in bare)
    assert [v.correct for v in verdicts] == [True, True, True, False, False]
    assert [v.report.outcomes[0] for v in verdicts[3:]] == ["compile_error"] * 2
    assert [v.extracted for v in verdicts] == programs
    assert verdicts[4].report.messages[0].endswith("(line 2)")


_USUAL = """
    List Optional defaultdict heappush inf cache islice chain count repeat cycle starmap takewhile
    zip_longest prod log log2 log10 pi hypot heapreplace heappushpop merge deepcopy partial xor
    itemgetter randint namedtuple combinations_with_replacement insort_left maxsize Decimal Enum
    ascii_lowercase dataclass Fraction
"""
_MODULES = "collections copy datetime math operator os random re string sys time"


def test_the_usual_imports():
    names: dict = {}
    exec(USUAL_IMPORTS, names)
    assert set(_USUAL.split()) <= set(names)
    assert names["Counter"] is collections.Counter  # typing has names that are no classes
    assert all(names.get(n, v) is v for n, v in vars(builtins).items() if not n.startswith("__"))
    for name in _MODULES.split():
        assert names[name] is importlib.import_module(name)
    assert names["bisect"]([1], 1) == names["bisect"].bisect_right([1], 1) == 1


def test_programs_run_by_the_preset_of_their_problem():
    program = answer("print(gcd(4, int(input())))")
    tests = (TestCase(stdin="6", expected="2"),)
    problems = [Problem(name, "", tests=tests, preset=name) for name in ("python", "lcb")]
    verdicts = verify_programs([program] * 2, problems, **LIMITS)
    assert [verdict.reason for verdict in verdicts] == ["wrong", "correct"]  # no usual imports


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_all_reference_solutions_pass_and_programs_that_do_nothing_fail(every):
    rows = shared_rows("HumanEval.jsonl.gz")
    reader = read_source("humaneval", rows)
    rows, given = rows[::every], list(reader)[::every]
    assert (reader.num_read, reader.num_kept, len(given)) == (164, 164, len(rows))
    for body, rate in (("canonical_solution", 1.0), (None, 0.0)):
        sources = [row["prompt"] + row.get(body, "    return None\n") for row in rows]
        reports = run_many(
            ProgramJob(source, row.problem.tests, 20.0, 1024, row.problem.entry_point)
            for source, row in zip(sources, given, strict=True)
        )
        found = {row["task_id"]: report for row, report in zip(rows, reports, strict=True)}
        assert {name: r.messages for name, r in found.items() if r.pass_rate != rate} == {}
