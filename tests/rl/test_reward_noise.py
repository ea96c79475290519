"""Rewards compared on the same rollouts: what a run of RL sees in its first step, and resuming."""

from dataclasses import asdict

import pytest
from rollout_fakes import SETTINGS
from tiny_runs import lines, run

from klearlib.errors import Stopped
from klearlib.policy.compute import local_compute
from klearlib.rl.reward_noise import compare_rewards
from klearlib.run.folder import RunFolder

HOW = {"rewards": ["soft", "hard"], "seed": 3}


def compared(path, inputs, *, stop_at=None, **changes):
    def stop_requested() -> bool:
        return stop_at is not None and len(lines(path)) >= stop_at

    compare_rewards(
        RunFolder(path, stop_requested=stop_requested),
        inputs,
        settings=SETTINGS | changes,
        compute=asdict(local_compute(micro_batch_tokens=400)),
        **HOW,
    )
    return lines(path)


def test_the_first_batch_is_that_of_the_run_of_rl_and_all_rewards_see_it(inputs, tmp_path):
    found = compared(tmp_path / "noise", inputs, num_steps=1)
    (line,) = run(tmp_path / "rl", inputs, seed=3, num_steps=1)
    (noise,) = found
    for reward in HOW["rewards"]:  # of mathematics, which has one reward
        assert noise[f"reward_std/{reward}"] == pytest.approx(line["rollout/reward_std"])
        assert noise[f"groups_trained/{reward}"] == line["rollout/groups_trained"]
    assert noise["half_cosine/soft"] == noise["half_cosine/hard"]


def test_a_stopped_comparison_goes_on_with_the_next_batch(inputs, tmp_path):
    whole = compared(tmp_path / "whole", inputs, num_steps=3)
    with pytest.raises(Stopped, match="after batch 2 of 3"):
        compared(tmp_path / "part", inputs, stop_at=2, num_steps=3)
    assert compared(tmp_path / "part", inputs, num_steps=3) == whole
    assert len(whole) == 3
