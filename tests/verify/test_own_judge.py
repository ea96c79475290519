"""A reward function of one's own: what it says, and what it does wrong."""

from __future__ import annotations

import pytest

from klearlib.errors import KlearError, ParameterError
from klearlib.params import RLOptions, check_values
from klearlib.records import Problem, Response
from klearlib.verify import own_judge
from klearlib.verify.groups import judge_groups

SOURCE = '''
import time, os

def judge(response, problem):
    """Half a point for an even length, right where the answer is in it."""
    return 0.5 * (len(response) % 2 == 0) - 1, problem["answer"] in response

def whole(response, problem):
    return 1.0, not problem["truncated"]

def slow(response, problem):
    time.sleep(60)

def raises(response, problem):
    return [][1]

def ends(response, problem):
    os._exit(3)

def nothing(response, problem):
    return None

def number(response, problem):
    return 1.0, 1

def huge(response, problem):
    return 1e200, True
'''
PROBLEMS = [Problem("p0", "2 + 2?", "4"), Problem("p1", "3 + 3?", "6")]


def groups(name: str, *texts: str, truncated: bool = False):
    responses = [
        [Response(p.id, "", (), (), (), text, truncated) for text in texts] for p in PROBLEMS
    ]
    return judge_groups(
        PROBLEMS,
        responses,
        think_tags="required",
        format_scores="penalty",
        format_penalty=0.5,
        code_reward="soft",
        code_scores="pass_rate",
        hard_failure=-1.0,
        test_timeout_s=2.0,
        test_memory_mb=64,
        reward_function={"name": name, "source": SOURCE},
    )


def test_it_pays_and_judges_each_response_and_no_tag_costs_anything():
    first, second = groups("judge", "so 4", "6", "<think>46</think>")
    assert first.rewards == (-0.5, -1.0, -1.0) and second.rewards == (-0.5, -1.0, -1.0)
    assert [v.correct for v in first.verdicts] == [True, False, True]
    assert [v.reason for v in second.verdicts] == ["wrong", "correct", "correct"]
    assert not any(v.has_think_close is False for v in first.verdicts)


def test_it_is_told_what_the_budget_ended_and_decides_what_is_right_of_it():
    for truncated in (False, True):
        (first, _) = groups("whole", "4", truncated=truncated)
        assert first.rewards == (1.0,) and first.verdicts[0].correct is not truncated
    (first, _) = groups("judge", "4", truncated=True)
    assert first.verdicts[0].reason == "correct"


def test_what_takes_too_long_is_wrong_and_counted(monkeypatch):
    monkeypatch.setattr(own_judge, "TIMEOUT_S", 0.5)
    for group in groups("slow", "4"):
        assert group.rewards == (0.0,)
        assert [(v.correct, v.reason) for v in group.verdicts] == [(False, "timeout")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "problem 'p0': line 15: IndexError: list index out of range"),
        ("ends", "its process ended"),
        ("nothing", "expected a finite reward and True or False, got None"),
        ("number", "got (1.0, 1)"),
        ("huge", "expected a finite reward and True or False, got (1e+200, True)"),
    ],
)
def test_a_fault_ends_the_run_in_one_line(name, words):
    with pytest.raises(KlearError) as raised:
        groups(name, "4")
    assert words in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("none.py:judge", "no file at"),
        ("mine.py:other", "no function 'other'"),
        ("mine.py", "must be FILE.py:FUNCTION"),
        ("broken.py:judge", "line 1: invalid syntax"),
        ({"name": "judge"}, "must be FILE.py:FUNCTION"),
    ],
)
def test_a_file_without_it_is_refused_before_anything_runs(tmp_path, monkeypatch, given, words):
    (tmp_path / "params").mkdir()
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def judge(:\n")
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    with pytest.raises(ParameterError, match=words):
        check_values(RLOptions, {"reward_function": given}, "options")
    kept = check_values(RLOptions, {"reward_function": "mine.py:judge"}, "options")
    assert kept.reward_function == {"name": "judge", "source": SOURCE}
    again = check_values(RLOptions, {"reward_function": kept.reward_function}, "options")
    assert again == kept  # the file is read no more
