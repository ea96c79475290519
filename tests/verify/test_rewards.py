import math
from itertools import product

import pytest

from klearlib.records import REASONS, TestReport, Verdict
from klearlib.verify.rewards import hard_code_reward, math_reward, soft_code_reward

CODE_REWARDS = (soft_code_reward, hard_code_reward)


def verdict(reason: str, *, think_open: bool = True, think_close: bool = True) -> Verdict:
    return Verdict(
        correct=reason == "correct",
        reason=reason,
        has_think_open=think_open,
        has_think_close=think_close,
    )


def report(num_passed: int, num_tests: int = 16) -> TestReport:
    return TestReport.of(["passed"] * num_passed + ["time_limit"] * (num_tests - num_passed))


# reason, opening tag, closing tag, paper's reward with a penalty of 0.5, released reward
TABLE = [
    ("correct", True, True, 1.0, 1.0),
    ("wrong", True, True, -1.0, -1.0),
    ("no_answer", True, True, -1.0, -1.0),
    ("timeout", True, True, -1.0, -1.0),
    ("judge_error", True, True, -1.0, -1.0),
    ("bad_format", True, False, -1.5, -0.5),
    ("bad_format", False, True, -1.5, -2.0),
    ("bad_format", False, False, -1.5, -0.5),
    ("correct", False, True, -1.5, -2.0),
    ("correct", True, False, -1.5, -0.5),
]


@pytest.mark.parametrize(("reason", "think_open", "think_close", "paper", "released"), TABLE)
def test_reward_table(reason, think_open, think_close, paper, released):
    judged = verdict(reason, think_open=think_open, think_close=think_close)
    assert math_reward(judged, format_penalty=0.5) == paper
    assert math_reward(judged, format_penalty=0.0) == math.copysign(1.0, paper)
    assert math_reward(judged, scores="released") == released


@pytest.mark.parametrize("scores", ["penalty", "released"])
def test_only_a_correct_answer_with_both_tags_is_paid(scores):
    for reason, think_open, think_close in product(REASONS, (True, False), (True, False)):
        judged = verdict(reason, think_open=think_open, think_close=think_close)
        is_paid = (reason, think_open, think_close) == ("correct", True, True)
        assert (math_reward(judged, scores=scores) > 0) == is_paid


@pytest.mark.parametrize(
    ("pay", "options", "message"),
    [
        (math_reward, {"scores": "paper"}, "scores must be"),
        (hard_code_reward, {"failure": 0.5}, "failure must be a number of at most 0"),
        (hard_code_reward, {"failure": 0.0, "scores": "released"}, "failure must be -1"),
        (soft_code_reward, {"scores": "penalty"}, "scores must be"),
        (soft_code_reward, {"format_penalty": -0.5}, "format_penalty must be"),
        (math_reward, {"format_penalty": 0.5, "scores": "released"}, "fixes its own penalties"),
    ],
)
def test_bad_options_name_what_is_expected(pay, options, message):
    with pytest.raises(ValueError, match=message):
        pay(verdict("correct") if pay is math_reward else report(3), **options)


# tests passed of 16, soft and hard reward as in the paper, the same in the released scores
CODE_TABLE = [
    (0, 0.0, -1.0, -1.0, -1.0),
    (4, 0.25, -1.0, -0.5, -1.0),
    (15, 0.9375, -1.0, 0.875, -1.0),
    (16, 1.0, 1.0, 1.0, 1.0),
]


@pytest.mark.parametrize(("passed", "soft", "hard", "released_soft", "released_hard"), CODE_TABLE)
def test_code_reward_table(passed, soft, hard, released_soft, released_hard):
    whole = Verdict(passed == 16, "correct" if passed == 16 else "wrong", report=report(passed))
    for judged in (report(passed), whole):
        assert soft_code_reward(judged) == soft
        assert hard_code_reward(judged) == hard
        assert hard_code_reward(judged, failure=0.0) == float(passed == 16)
        assert soft_code_reward(judged, scores="released") == released_soft
        assert hard_code_reward(judged, scores="released") == released_hard


@pytest.mark.parametrize("pay", CODE_REWARDS)
@pytest.mark.parametrize(
    ("think_open", "think_close", "released"),
    [(True, False, -0.5), (False, True, -2.0), (False, False, -0.5)],
)
def test_a_missing_tag_is_never_paid_for_passed_tests(pay, think_open, think_close, released):
    # As if it had been judged without asking for tags.
    judged = Verdict(True, "correct", None, think_open, think_close, report=report(16))
    wrong = -1.0 if pay is hard_code_reward else 0.0
    assert (pay(judged), pay(judged, format_penalty=0.5)) == (wrong, wrong - 0.5)
    assert pay(judged, scores="released") == released


def test_no_program_passes_no_test_and_one_that_was_not_judged_stays_in_the_denominator():
    nothing = Verdict(False, "no_answer")
    broken = TestReport.of(["passed"] * 12 + ["judge_error"] * 4)
    assert [pay(broken) for pay in CODE_REWARDS] == [0.75, -1.0]
    for pay, wrong in zip(CODE_REWARDS, (0.0, -1.0), strict=True):
        assert (pay(nothing, format_penalty=0.5), pay(nothing, scores="released")) == (wrong, -1.0)
