"""Truncation that rises with the score, a clip range that no token leaves, steps that train
nothing: what counts, and how often it is said."""

import json

import pytest
import torch
from printed_equations import SPECS
from tiny_runs import lines, run, weights

from klearlib.rl.alarms import Alarms, truncation_rose, untrained, why_idle


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


INSIDE = {
    "train/grad_norm": 0.5,
    "train/num_updates": 8,
    "train/num_tokens": 100,
    "train/token_share_low_negative": 0.0,
    "train/token_share_high_positive": 0.0,
}


@pytest.mark.parametrize(
    ("changed", "has_range", "is_said"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"train/num_updates": 1}, True, False),  # every ratio is 1
        ({"train/token_share_high_positive": 1e-4}, True, False),
        (
            {name: None for name in INSIDE if "share" in name} | {"train/num_updates": 0},
            True,
            False,
        ),
    ],
)
def test_a_clip_range_that_no_token_leaves_is_said_once_after_three_steps(
    changed, has_range, is_said
):
    alarms = Alarms([], num_steps=6, has_range=has_range)
    lines = [INSIDE | changed | {"step": step} for step in range(1, 7)]
    said = [[each for each in alarms.see(line) if "clip range" in each] for line in lines]
    assert [len(each) for each in said] == [0, 0, int(is_said), 0, 0, 0]
    assert not is_said or "raise the learning rate" in said[2][0]
    resumed = Alarms(lines[:3], num_steps=6, has_range=has_range)
    assert not [each for line in lines[3:] for each in resumed.see(line) if "clip range" in each]


@pytest.mark.parametrize(("rule", "is_said"), [("gppo", True), ("unclipped", False)])
def test_a_run_at_a_rate_that_moves_nothing_says_so(inputs, tmp_path, rule, is_said):
    run(tmp_path, inputs, rule=SPECS[rule], num_steps=3, learning_rate=1e-9, mini_batch_problems=1)
    log = tmp_path / "log.txt"  # of warnings alone
    said = log.read_text() if log.exists() else ""
    assert ("step 3: no token has left the clip range" in said) == is_said


IDLE = {
    "step": 1,
    "train/grad_norm": None,
    "train/skipped_updates": 0,
    "rollout/advantage_abs_mean": 0.0,
    "rollout/correct_rate": 0.5,
    "rollout/bad_format_rate": 0.0,
    "rollout/truncated_rate": 0.0,
    "rollout/no_answer_rate": 0.0,
    "rollout/groups_all_correct": 0.5,
    "rollout/groups_all_wrong": 0.5,
}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, "the rewards of each group are equal"),
        ({"rollout/groups_all_correct": 1}, "every response is right"),
        ({"rollout/groups_all_wrong": 1}, "every response is wrong"),
        ({"rollout/groups_all_wrong": 1, "rollout/bad_format_rate": 1}, "both think tags"),
        ({"rollout/groups_all_wrong": 1, "rollout/no_answer_rate": 1}, "no answer was found"),
        ({"rollout/groups_all_wrong": 1, "rollout/truncated_rate": 1}, "token budget"),
        (
            {"rollout/groups_all_wrong": 1, "rollout/not_worked_out_rate": 1},
            "an unevaluated expression",
        ),
        ({"rollout/advantage_abs_mean": 0.3}, "the filters removed every group"),
        ({"train/skipped_updates": 2}, "no update had a finite gradient"),
        ({"train/grad_norm": 0.0}, "the rewards of each group are equal"),
        ({"train/grad_norm": 0.5}, None),
    ],
)
def test_the_likely_reason(changed, why):
    found = why_idle(IDLE | changed)
    assert why in found if why else found == ""


def test_an_arm_is_untrained_where_no_step_trained():
    trained = IDLE | {"train/grad_norm": 0.1}
    assert untrained([IDLE, IDLE | {"rollout/groups_all_wrong": 1}]).startswith("every response")
    assert untrained([IDLE, trained]) == untrained([]) == untrained([{"sft/loss": 1.0}]) == ""


def test_idle_is_said_once_and_again_where_all_were():
    alarms = Alarms([], num_steps=3)
    said = [alarms.see(IDLE | {"step": step}) for step in (1, 2, 3)]
    assert said[0][0].startswith("step 1 trained nothing: ") and said[1] == []
    assert said[2][0].startswith("no step trained: ")
    resumed = Alarms([IDLE], num_steps=3)
    trained = IDLE | {"train/grad_norm": 0.1}
    assert [resumed.see(line | {"step": n}) for n, line in ((2, IDLE), (3, trained))] == [[], []]


def test_run_that_trains_nothing_ends_and_says_so(inputs, tmp_path):
    # No room for an answer.
    for line in run(tmp_path, inputs, num_steps=2, max_new_tokens=2, alpha=0.5):
        assert line["rollout/correct_rate"] == 0 and line["rollout/groups_trained"] == 0
        assert line["train/num_updates"] == 0 and line["train/num_tokens"] == 0
        assert line["train/entropy"] is None and line["train/grad_norm"] is None
    assert torch.equal(weights(tmp_path), weights(inputs["sft"]))
    why = "no response has both think tags"
    assert untrained(lines(tmp_path)) == why
    warnings = [line for line in (tmp_path / "log.txt").read_text().splitlines() if "WARN" in line]
    told = [line.partition("WARNING: ")[2] for line in warnings]
    assert told == [f"step 1 trained nothing: {why}", f"no step trained: {why}"]
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert progress["warning"] == told[1]
    assert progress["note"].startswith("reward -1.50, validation 0.00")
