"""The RL loop with vLLM as its sampler: it learns, and a run whose engine was killed resumes."""

import os
import signal

import pytest
from tiny_runs import ONE_PROBLEM, gain, lines, run, weights, with_one_problem

from klearlib.errors import KlearError
from klearlib.policy.vllm_engine import VLLMEngine

NUM_STEPS = 15
VLLM = {"engine": "vllm", "batch_rows": 256, "micro_batch_tokens": 8000}


@pytest.fixture(scope="session")
def inputs(tiny_stages, tmp_path_factory):
    """The upstream folders of an RL run on a single problem."""
    both = {"world": tiny_stages.world, "sft": tiny_stages.sft}
    return with_one_problem(both, tmp_path_factory.mktemp("one") / "world")


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """The folder of a run that nothing disturbed, and its metrics."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder, inputs, num_steps=NUM_STEPS, compute=VLLM, **ONE_PROBLEM)


def test_training_makes_right_answers_likelier(whole):
    """Weights that were not handed over, or not in time, would be off policy and learn nothing."""
    folder, metrics = whole
    assert gain(folder) > 0.15
    for line in metrics:
        if line["train/num_updates"]:
            assert line["train/mismatch_max"] < 1e-3, "the sampler's weights are the trainer's"


def test_by_the_trainers_log_probabilities_the_first_update_is_on_policy(inputs, tmp_path):
    """One update a step, so that no other ratio is counted. Passes with and without a graph round
    differently: a single token by up to 6e-6, the mean of all by 1e-7."""
    how = {"num_steps": 2, "logp_old": "trainer", "compute": VLLM} | ONE_PROBLEM
    updated = [line for line in run(tmp_path, inputs, **how) if line["train/num_updates"]]
    assert updated
    for line in updated:
        assert line["train/num_updates"] == 1
        assert line["train/ratio_min"] == pytest.approx(1, abs=1e-5)
        assert line["train/ratio_max"] == pytest.approx(1, abs=1e-5)
        for sign in ("positive", "negative"):
            assert abs(line[f"train/log_ratio_{sign}"]) < 1e-6
        assert line["train/mismatch_max"] > 0  # what the sampler's own would have brought


def test_a_run_whose_engine_was_killed_resumes_and_equals_the_unbroken_one(
    whole, inputs, tmp_path, monkeypatch
):
    folder, expected = whole
    original, calls = VLLMEngine.sample_groups, []

    def killed(self, problems, **how):
        calls.append(how)
        if len(calls) == 3:  # after the first evaluation and the first step
            os.kill(self._process.pid, signal.SIGKILL)
        return original(self, problems, **how)

    how = {"num_steps": NUM_STEPS, "checkpoint_every": 1, "compute": VLLM} | ONE_PROBLEM
    with monkeypatch.context() as once:
        once.setattr(VLLMEngine, "sample_groups", killed)
        with pytest.raises(KlearError, match=r"vLLM failed .*: run again to resume"):
            run(tmp_path, inputs, **how)
    assert len(lines(tmp_path)) == 1
    assert run(tmp_path, inputs, **how) == expected
    assert weights(tmp_path).equal(weights(folder))
