import math

import pytest

from klearlib.records import Verdict
from klearlib.verify.answers import REASONS, verify_answer
from klearlib.verify.rewards import math_reward


def verdict(reason: str, *, think_open: bool = True, think_close: bool = True) -> Verdict:
    return Verdict(
        correct=reason == "correct",
        reason=reason,
        has_think_open=think_open,
        has_think_close=think_close,
    )


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


def test_only_a_correct_answer_with_both_tags_is_paid():
    for reason in REASONS:
        for think_open in (True, False):
            for think_close in (True, False):
                judged = verdict(reason, think_open=think_open, think_close=think_close)
                is_paid = reason == "correct" and think_open and think_close
                for scores in ("penalty", "released"):
                    assert (math_reward(judged, scores=scores) > 0) == is_paid


def test_truncated_thinking_beats_a_wrong_answer_only_in_the_released_scores():
    truncated = verify_answer("<think>so far so good, and then", "5")
    wrong = verify_answer("<think>so</think> \\boxed{6}", "5")
    assert math_reward(truncated, scores="released") > math_reward(wrong, scores="released")
    assert math_reward(truncated, format_penalty=0.1) < math_reward(wrong, format_penalty=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "paper"}, "scores must be"),
        ({"format_penalty": -0.5}, "format_penalty must be"),
        ({"format_penalty": math.nan}, "format_penalty must be"),
        ({"format_penalty": 0.5, "scores": "released"}, "fixes its own penalties"),
    ],
)
def test_bad_options_name_what_is_expected(options, message):
    with pytest.raises(ValueError, match=message):
        math_reward(verdict("correct"), **options)
