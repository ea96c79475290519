"""verl's reward function against `judge_groups`, whose verdicts and rewards it must give."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rollout_fakes import settings

import klearlib
from klearlib.errors import KlearError, MissingAsset
from klearlib.records import Problem, Response, TestCase, TestReport, Verdict
from klearlib.rl.schedule import judging
from klearlib.scale import problems
from klearlib.scale.problems import compute_score, ground_truth, verdict_of
from klearlib.verify.groups import judge_groups
from klearlib.verify.pool import close_pool

SEED = 5
MATHS = Problem("m", "What is the square root of a half?", answer=r"\frac{\sqrt{2}}{2}")
EITHER = Problem("e", "Name a root of x^2 = 4.", answer=("2", "-2"))
SCRIPT = Problem(
    "s",
    "Square.",
    tests=tuple(TestCase(stdin=str(n), expected=str(n * n)) for n in range(12)),
)
CALLED = Problem(
    "f", "Double.", tests=(TestCase(call="[[1, 2]]", expected="[2, 4]"),) * 2, entry_point="f"
)


def boxed(answer):
    return f"<think>so</think> \\boxed{{{answer}}}"


def program(source):
    return f"<think>so</think>\n```python\n{source}\n```"


RESPONSES = {
    MATHS: [
        boxed(r"1/\sqrt{2}"),
        boxed("0.7"),
        boxed(r"\frac{\sqrt{2}}{2}"),
        "<think>so</think> nothing",
        r"\boxed{\frac{\sqrt{2}}{2}}",
        "so</think> " + boxed(r"\sqrt{1/2}").removeprefix("<think>so</think>"),
        boxed("\ud800"),
    ],
    EITHER: [boxed("-2"), boxed("2.0"), boxed("4"), ""],
    SCRIPT: [
        program("print(int(input()) ** 2)"),
        program("n = int(input())\nprint(n * n if n < 5 else 0)"),
        program("print(int(input()) ** 2"),
        program("raise SystemExit(3)"),
        "<think>so</think> no program",
        "no tags\n```python\nprint(int(input()) ** 2)\n```",
    ],
    CALLED: [program("def f(a: List[int]):\n    return [2 * x for x in a]"), program("f = None")],
}


@pytest.fixture(scope="module", autouse=True)
def no_judge_survives():
    yield
    close_pool()


def score(problem, text, chosen, *, prompt="", ended=False):
    truth = ground_truth(problem, max_tests=chosen["max_tests"], tests_seed=chosen["tests_seed"])
    row = {"index": 0, "problem": 0, "problem_id": problem.id}
    row |= {"prompt_text": prompt, "budget_ended": ended}
    return compute_score("klear", text, truth, row, **chosen)


def grouped(problem, texts, chosen, *, prompt="", ended=False):
    responses = [Response(problem.id, prompt, (), (), (), text, ended) for text in texts]
    return judge_groups([problem], [responses], **chosen)[0]


@pytest.mark.parametrize("problem", RESPONSES, ids=lambda problem: problem.id)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_tests": 4, "format_penalty": 0.25},
        {"code_reward": "hard", "hard_failure": -0.25},
        {
            **{"format_scores": "released", "code_scores": "released", "code_reward": "hard"},
            "format_penalty": 0.0,
        },
    ],
    ids=["paper", "few tests and a penalty", "hard", "released"],
)
def test_verdicts_and_rewards_are_those_of_the_local_run(problem, changes):
    chosen = judging(settings(**changes), seed=SEED)
    texts = RESPONSES[problem]
    group = grouped(problem, texts, chosen)
    with ThreadPoolExecutor(4) as threads:  # as verl calls it
        found = list(threads.map(lambda text: score(problem, text, chosen), texts))
    assert [each["score"] for each in found] == list(group.rewards)
    assert [verdict_of(each["verdict"]) for each in found] == list(group.verdicts)
    if problem.tests and changes.get("max_tests"):
        assert {len(v.report.outcomes) for v in group.verdicts if v.report} == {
            min(4, len(problem.tests))
        }


def test_the_prompt_may_hold_the_opening_tag():
    chosen = judging(settings(), seed=SEED)
    text = r"so</think> \boxed{2}"
    assert score(EITHER, text, chosen)["score"] == -1.5
    opened = score(EITHER, text, chosen, prompt="user\n?\nassistant\n<think>\n")
    assert opened["score"] == 1.0
    assert verdict_of(opened["verdict"]).has_think_open


@pytest.mark.parametrize("problem", RESPONSES, ids=lambda problem: problem.id)
@pytest.mark.parametrize("how", ["wrong", "as_text"])
def test_the_flag_of_truncation_is_judged_as_in_the_local_run(problem, how):
    chosen = judging(settings(truncated=how), seed=SEED)
    texts = RESPONSES[problem]
    group = grouped(problem, texts, chosen, ended=True)
    found = [score(problem, text, chosen, ended=True) for text in texts]
    assert [each["score"] for each in found] == list(group.rewards)
    reasons = {verdict_of(each["verdict"]).reason for each in found}
    assert reasons == {"truncated"} if how == "wrong" else "correct" in reasons


HANDED_ON = {"problem_id": "m", "prompt_text": "", "budget_ended": False}


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        ({"prompt_text": 7}, "'prompt_text'"),
        ({"budget_ended": None}, "'budget_ended'"),
        ({"budget_ended": 0}, "'budget_ended'"),
        (None, "'prompt_text' and 'budget_ended'"),
    ],
)
def test_without_what_the_agent_loop_hands_on_nothing_is_judged(told, lacks):
    chosen = judging(settings(), seed=SEED)
    truth = ground_truth(MATHS, max_tests=None, tests_seed=0)
    words = f"lacks {lacks}, which .*default_agent_loop=klear"
    with pytest.raises(KlearError, match=words):
        compute_score("klear", boxed("1"), truth, told and HANDED_ON | told, **chosen)


@pytest.mark.parametrize(
    "truth",
    [
        *("4", "{}", "[]", "no JSON", None, '{"answer": 4}', '{"answer": {"4": 1}}'),
        *('{"answer": []}', '{"answer": [4]}', '{"answer": "4", "tests": []}', '{"tests": 3}'),
        '{"tests": [{"stdin": 3, "expected": "1"}], "entry_point": null}',
    ],
)
def test_what_is_no_ground_truth_is_raised_and_never_paid(truth):
    with pytest.raises(KlearError, match="ground_truth of problem 'm'"):
        problems.problem_of(truth, problem_id="m")


def test_what_hinders_the_judge_is_raised_and_never_paid(monkeypatch):
    def hindered(*_, **__):
        raise MissingAsset("answers need math-verify")

    monkeypatch.setattr(problems, "judge_groups", hindered)
    with pytest.raises(MissingAsset, match="math-verify"):
        score(MATHS, boxed("1"), judging(settings(), seed=SEED))


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(False, "no_answer", has_think_open=False),
        Verdict(True, "correct", "\ud800 \u2028", has_think_close=False),
        Verdict(
            False, "wrong", "print()", report=TestReport(("passed", "wrong_answer"), 0.5, ("", "é"))
        ),
        Verdict(True, "correct", "x", report=TestReport.of(["passed"] * 3)),
    ],
)
def test_a_verdict_survives_as_text(verdict, monkeypatch):
    group = dataclasses.replace(grouped(EITHER, [""], judging(settings(), seed=0)))
    group = dataclasses.replace(group, verdicts=(verdict,), rewards=(0.1 + 0.2,))
    monkeypatch.setattr(problems, "judge_groups", lambda *_, **__: (group,))
    found = score(EITHER, "", judging(settings(), seed=0))
    assert found["score"] == 0.1 + 0.2
    assert verdict_of(found["verdict"]) == verdict


NAP = 1.5  # seconds


@pytest.mark.slow
def test_responses_of_several_threads_are_judged_side_by_side():
    """Programs that sleep: one judge alone would need four times as long."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    chosen = judging(settings(), seed=SEED)
    asleep = f"import time\ntime.sleep({NAP})\nprint(1) #"
    problem = Problem("z", "?", tests=(TestCase(stdin="", expected="1"),))

    def judge(number):
        return score(problem, program(f"{asleep} {number}"), chosen)["score"]

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(judge, range(4))) == {1.0}  # the judges start
        begun = time.monotonic()
        assert set(threads.map(judge, range(4, 8))) == {1.0}
    assert time.monotonic() - begun < 4 * NAP


WORKER = """
import sys, threading, time
sys.path.insert(0, {tests!r})
import test_reward_function as made
from klearlib.rl.schedule import judging
from klearlib.verify import pool
chosen = judging(made.settings(), seed=0)
def call():  # a thread that ends, as those of an executor may
    made.score(made.MATHS, made.boxed("1/3"), chosen)
    made.score(made.SCRIPT, made.program("print(1)"), chosen)
thread = threading.Thread(target=call)
thread.start()
thread.join()
print(*[pid for each in pool._pools.values() for pid in each.worker_pids()], flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_judges_of_a_killed_worker_end_with_it():
    here = Path(__file__).parent
    script = WORKER.format(tests=str(here))
    root = str(Path(klearlib.__file__).parents[1])
    path = os.pathsep.join([root, str(here), str(here.parent / "rl")])
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    ) as worker:
        judges = [int(pid) for pid in worker.stdout.readline().split()]
        assert len(judges) >= 2 and all(map(is_running, judges))
        worker.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(map(is_running, judges)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, judges))
