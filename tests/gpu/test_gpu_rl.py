"""The RL loop on a GPU or its stand-in: finite, on-policy at its first update; it learns."""

import math

import pytest
from tiny_runs import ONE_PROBLEM, gain, run, with_one_problem

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def inputs(tiny_stages, device):
    """The upstream folders of an RL run."""
    return {"world": tiny_stages.world, "sft": tiny_stages.sft}


@pytest.mark.parametrize(
    ("compute", "mismatch"),
    [
        pytest.param({"precision": "fp32"}, 1e-4, marks=pytest.mark.slow),
        pytest.param({"precision": "bf16"}, 0.05, marks=pytest.mark.slow),
        ({"precision": "bf16", "gradient_checkpointing": True}, 0.05),
        pytest.param({"precision": "bf16", "micro_batch_tokens": 0}, 0.05, marks=pytest.mark.slow),
    ],
    ids=["fp32", "bf16", "bf16 checkpointing", "bf16 by memory"],
)
def test_two_steps_are_finite_and_their_first_update_is_on_policy(
    inputs, tmp_path, compute, mismatch
):
    for line in run(tmp_path, inputs, num_steps=2, alpha=0.1, compute=compute):
        assert line["train/num_updates"] > 0 and line["train/skipped_updates"] == 0
        assert line["train/mismatch_mean"] < mismatch
        values = [value for value in line.values() if isinstance(value, float)]
        assert all(map(math.isfinite, values))


@pytest.mark.slow
def test_the_trainers_log_probabilities_and_their_correction(inputs, tmp_path):
    how = {"num_steps": 2, "logp_old": "trainer", "sampler_correction": 2.0}
    for line in run(tmp_path, inputs, compute={"precision": "bf16"}, **how):
        assert line["train/correction_mean"] == pytest.approx(1, abs=0.02)
        assert line["train/correction_capped_share"] < 0.01


@pytest.mark.slow
def test_it_learns(inputs, tmp_path):
    """As on a CPU: twenty steps on one problem more than double its reward."""
    one = with_one_problem(inputs, tmp_path / "world")
    how = {"num_steps": 20, "eval_every": 100, "compute": {"precision": "bf16"}}
    run(tmp_path / "run", one, **how, **ONE_PROBLEM)
    assert gain(tmp_path / "run") > 0.15
