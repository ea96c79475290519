"""Truncation that rises with the score: what counts, and how often it is said."""

import pytest

from klearlib.rl.alarms import Alarms, truncation_rose


def steps(*shares, count=10):
    """`count` lines whose share of truncated and rate correct go from a first pair to a last."""
    (cut, right), (cut_end, right_end) = shares
    return [
        {
            "step": step + 1,
            "train/grad_norm": 0.5,
            "rollout/truncated_rate": cut + (cut_end - cut) * step / (count - 1),
            "rollout/correct_rate": right + (right_end - right) * step / (count - 1),
        }
        for step in range(count)
    ]


@pytest.mark.parametrize(
    ("lines", "is_said"),
    [
        (steps((0.1, 0.2), (0.6, 0.8)), True),
        (steps((0.1, 0.2), (0.31, 0.21), count=2), True),
        (steps((0.1, 0.2), (0.3, 0.8), count=2), False),  # 20 points and no more
        (steps((0.7, 0.2), (0.9, 0.8), count=2), False),  # 0.9 - 0.7 is above 0.2
        (steps((0.1, 0.2), (0.1, 0.8)), False),
        (steps((0.6, 0.2), (0.1, 0.8)), False),
        (steps((0.1, 0.8), (0.6, 0.2)), False),  # the score falls with it, as it should
        (steps((0.1, 0.5), (0.6, 0.5)), False),
        (steps((0.0, 0.2), (1.0, 0.8))[:1], False),
        ([{"step": 1, "sft/loss": 1.0}, {"step": 2, "sft/loss": 0.5}], False),
        ([], False),
    ],
)
def test_truncation_that_rises_by_more_than_20_points_while_the_score_rises(lines, is_said):
    assert bool(truncation_rose(lines)) == is_said


def test_the_words_have_the_means_over_both_ends():
    lines = steps((0.0, 0.1), (0.9, 1.0))  # a tenth more each step; a fifth is two steps
    words = truncation_rose(lines)
    assert words.startswith(
        "truncation rose from 5 % to 85 % of rollouts while the rate correct rose from 15 % to 95 %"
    )


def test_one_step_is_no_rise():
    lines = steps((0.1, 0.2), (0.1, 0.4), count=20)
    lines[-1] = lines[-1] | {"rollout/truncated_rate": 0.7}
    assert truncation_rose(lines) == ""


def test_said_when_it_is_seen_and_at_the_end():
    lines = steps((0.0, 0.1), (0.9, 1.0))
    alarms = Alarms([], num_steps=10)
    said = [alarms.see(line) for line in lines]
    assert [len(each) for each in said] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert "from 5 % to 35 %" in said[4][0] and said[9] == [truncation_rose(lines)]
    resumed = Alarms(lines[:6], num_steps=10)  # it was said before
    assert [len(resumed.see(line)) for line in lines[6:]] == [0, 0, 0, 1]


def test_not_said_at_the_end_where_it_did_not_last():
    lines = [*steps((0.0, 0.1), (0.9, 1.0), count=6), *steps((0.0, 1.0), (0.0, 1.0), count=4)]
    alarms = Alarms([], num_steps=10)
    said = [alarms.see(line | {"step": step}) for step, line in enumerate(lines, 1)]
    assert [len(each) for each in said].count(1) == 1 and said[-1] == []
