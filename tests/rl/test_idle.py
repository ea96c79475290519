"""Steps that train nothing: what counts, what is said of them, and how often."""

import json

import pytest
from tiny_runs import lines, run

from klearlib.rl.alarms import Alarms, untrained, why_idle

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
        ({"rollout/groups_all_wrong": 1, "rollout/not_worked_out_rate": 1}, "to be worked out"),
        ({"rollout/advantage_abs_mean": 0.3}, "the filters left none"),
        ({"train/skipped_updates": 2}, "not finite"),
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


def test_said_once_and_again_where_all_were():
    alarms = Alarms([], num_steps=3)
    said = [alarms.see(IDLE | {"step": step}) for step in (1, 2, 3)]
    assert said[0][0].startswith("step 1 trained nothing: ") and said[1] == []
    assert said[2][0].startswith("no step trained: ")
    resumed = Alarms([IDLE], num_steps=3)
    trained = IDLE | {"train/grad_norm": 0.1}
    assert [resumed.see(line | {"step": n}) for n, line in ((2, IDLE), (3, trained))] == [[], []]


def test_run_that_trains_nothing_ends_and_says_so(inputs, tmp_path):
    run(tmp_path, inputs, num_steps=2, max_new_tokens=2)  # no room for an answer
    assert all(line["train/num_updates"] == 0 for line in lines(tmp_path))
    assert untrained(lines(tmp_path)) == "no response has both think tags"
    warnings = [line for line in (tmp_path / "log.txt").read_text().splitlines() if "WARN" in line]
    first, last = (line.partition("WARNING: ")[2] for line in warnings)
    assert first == "step 1 trained nothing: no response has both think tags"
    assert last == "no step trained: no response has both think tags"
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert progress["warning"] == last
    assert progress["note"].startswith("reward -1.50, validation 0.00")
