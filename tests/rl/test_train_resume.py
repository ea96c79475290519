"""A run that was stopped or killed anywhere and goes on equals the unbroken one bit for bit."""

import pytest
import torch
from tiny_runs import PLAIN, lines, run, weights

from klearlib.errors import KlearError, Stopped
from klearlib.policy import batch_plan
from klearlib.rl import logprobs, train
from klearlib.run.folder import RunFolder

SLOW = pytest.mark.slow


def assert_same_bytes(found, expected):
    names = ["metrics.jsonl", "samples.jsonl", "model/model.safetensors"]
    names += [f"evaluations/{path.name}" for path in (expected / "evaluations").iterdir()]
    for name in names:
        assert (found / name).read_bytes() == (expected / name).read_bytes(), name
    assert len(list((found / "evaluations").iterdir())) == len(names) - 3


def test_weights_move_and_a_second_run_is_bit_identical(plain, inputs, tmp_path):
    start, end = weights(inputs["sft"]), weights(plain)
    assert 0 < (end - start).abs().max() < 0.01  # some ten AdamW steps of 2e-4
    run(tmp_path, inputs, **PLAIN)
    assert_same_bytes(tmp_path, plain)


@pytest.mark.parametrize("stops", [*(pytest.param([n], marks=SLOW) for n in (1, 2)), [1, 2]])
def test_stopped_and_resumed_run_is_bit_identical(plain, inputs, tmp_path, stops):
    for stop in stops:
        with pytest.raises(Stopped, match=f"stopped after step {stop} of 3"):
            run(tmp_path, inputs, stop_at=stop, **PLAIN)
        assert not (tmp_path / "model").exists() and len(lines(tmp_path)) == stop
    run(tmp_path, inputs, **PLAIN)
    assert_same_bytes(tmp_path, plain)
    assert [line["step"] for line in lines(tmp_path, "timings.jsonl")] == [1, 2, 3]


@pytest.mark.parametrize("num_lines", [pytest.param(0, marks=SLOW), 1, pytest.param(2, marks=SLOW)])
def test_killed_run_goes_back_to_its_last_checkpoint(
    plain, inputs, tmp_path, num_lines, monkeypatch
):
    """A kill in the middle of a step, after sampling: with a checkpoint each second step."""
    how = PLAIN | {"checkpoint_every": 2}

    class Killed(BaseException):
        pass

    def kill(*args, **kwargs):
        if len(lines(tmp_path)) >= num_lines:
            raise Killed
        return original(*args, **kwargs)

    original = train.form_batch
    monkeypatch.setattr(train, "form_batch", kill)
    with pytest.raises(Killed):
        run(tmp_path, inputs, **how)
    monkeypatch.undo()
    run(tmp_path, inputs, **how)
    assert_same_bytes(tmp_path, plain)


def test_budget_of_the_checkpoint_is_that_of_the_resumed_run(inputs, tmp_path, monkeypatch):
    how = {"num_steps": 2, "compute": {"micro_batch_tokens": 0}}
    order, budgets = [], iter([150, 150, 8192, 8192])

    def choose(*_, **__):
        order.append("plan")
        return next(budgets)

    def load(folder):
        order.append("load")
        return whole(folder)

    whole = RunFolder.load_checkpoint
    monkeypatch.setattr(batch_plan, "choose_micro_batch_tokens", choose)
    monkeypatch.setattr(RunFolder, "load_checkpoint", load)
    run(tmp_path / "unbroken", inputs, **how)
    with pytest.raises(Stopped):
        run(tmp_path / "resumed", inputs, stop_at=1, **how)
    run(tmp_path / "resumed", inputs, **how)
    run(tmp_path / "larger", inputs, **how)
    assert_same_bytes(tmp_path / "resumed", tmp_path / "unbroken")
    ends = [weights(tmp_path / name) for name in ("unbroken", "larger")]
    assert not torch.equal(*ends), "the test needs budgets that differ in their rounding"
    # What is chosen counts the state of AdamW, which must not be there yet.
    assert order == ["plan", "load"] * 4


@pytest.mark.parametrize("name", ["loss_denominator", "lm_normalizer"])
def test_parts_that_the_objective_counts_are_kept(inputs, tmp_path, monkeypatch, name):
    how = {"num_steps": 1, name: "micro_batch"}
    with pytest.raises(KlearError, match="give it a number"):
        run(tmp_path, inputs, compute={"micro_batch_tokens": 0}, **how)

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(logprobs, "in_chunks", full)
    with pytest.raises(KlearError, match=r"CUDA out of memory.*to mini_batch"):
        run(tmp_path, inputs, **how)
