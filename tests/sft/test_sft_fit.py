"""Supervised training: its schedule, its gradient, and a kill that changes no bit."""

import json
import math

import pytest
import torch

from klearlib.errors import Stopped
from klearlib.run.folder import RunFolder
from klearlib.sft.batches import Example, example_order
from klearlib.sft.train import cosine_learning_rate, fit, train_sft

EXAMPLES = [
    Example(ids=tuple((7 * i + 3 * t) % 250 for t in range(5 + i % 4)), num_prompt=2)
    for i in range(10)
]
SCHEDULE = {
    "seed": 4,
    "num_steps": 6,
    "batch_size": 4,
    "learning_rate": 3e-3,
    "final_learning_rate": 1e-3,
    "warmup_steps": 1,
    "normalizer": "sequence",
}


def run(path, policy, tokenizer, *, stop_at=None, **changes):
    """One call of `fit`; with `stop_at` a stop is asked for once that many steps are logged."""

    def stop_requested() -> bool:
        return stop_at is not None and len(lines(path)) >= stop_at

    folder = RunFolder(path, stop_requested=stop_requested)
    fit(folder, policy, tokenizer, EXAMPLES, **SCHEDULE | changes)


def lines(path):
    file = path / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_schedule_warms_up_and_ends_at_the_final_learning_rate():
    rates = [cosine_learning_rate(step, 101, 8e-5, 4e-5, 10) for step in range(101)]
    assert rates[:10] == pytest.approx([8e-6 * (step + 1) for step in range(10)])
    assert rates[10] == pytest.approx(8e-5) and rates[-1] == pytest.approx(4e-5)
    assert rates[55] == pytest.approx(6e-5)  # half way between
    for step in range(10, 101):
        expected = 4e-5 + 4e-5 * math.cos(math.pi / 2 * (step - 10) / 90) ** 2
        assert rates[step] == pytest.approx(expected)


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_shortest_schedules_stay_within_their_ends(num_steps):
    rates = [cosine_learning_rate(step, num_steps, 2.0, 1.0, 0) for step in range(num_steps)]
    assert rates[0] == 2.0 and all(1.0 <= rate <= 2.0 for rate in rates)
    if num_steps > 1:
        assert rates[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("normalizer", ["token", "sequence"])
def test_first_loss_and_gradient_norm_are_those_of_equation_8(
    new_policy, tiny_tokenizer, tmp_path, normalizer
):
    policy = new_policy(6)
    order = example_order(len(EXAMPLES), seed=SCHEDULE["seed"])
    batch = [EXAMPLES[next(order)] for _ in range(4)]
    sums = []
    for example in batch:
        ids = torch.tensor(example.ids)
        logits = policy(input_ids=ids[None]).logits[0, :-1]
        logp = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
        sums.append((logp[example.num_prompt - 1 :].sum(), len(ids) - example.num_prompt))
    if normalizer == "sequence":
        loss = -sum(total / count for total, count in sums) / 4
    else:
        loss = -sum(total for total, _ in sums) / sum(count for _, count in sums)
    loss.backward()
    norm = torch.cat([p.grad.flatten() for p in policy.parameters()]).norm()
    run(tmp_path, new_policy(6), tiny_tokenizer, normalizer=normalizer, num_steps=1)
    (line,) = lines(tmp_path)
    assert line["sft/loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert line["sft/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert line["sft/num_tokens"] == sum(count for _, count in sums)
    assert line["sft/skipped_updates"] == 0


def test_training_learns_its_examples(new_policy, tiny_tokenizer, tmp_path):
    run(tmp_path, new_policy(6), tiny_tokenizer, num_steps=60, learning_rate=2e-2)
    losses = [line["sft/loss"] for line in lines(tmp_path)]
    assert len(losses) == 60 and losses[-1] < 0.5 * losses[0]
    rates = [line["sft/learning_rate"] for line in lines(tmp_path)]
    assert rates[0] == pytest.approx(2e-2) and rates[-1] == pytest.approx(1e-3)


@pytest.mark.parametrize("stops", [[2], [1, 3, 5]])
def test_stopped_and_resumed_equals_the_unbroken_run(new_policy, tiny_tokenizer, tmp_path, stops):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(whole, new_policy(6), tiny_tokenizer)
    for stop in stops:
        with pytest.raises(Stopped, match=f"after step {stop} of 6"):
            run(broken, new_policy(6), tiny_tokenizer, stop_at=stop)
        assert not (broken / "model").exists()
    # A resumed call starts from the weights of the checkpoint, not from those it is given.
    run(broken, new_policy(99), tiny_tokenizer)
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


def test_kill_between_checkpoints_goes_back_to_the_last(new_policy, tiny_tokenizer, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(whole, new_policy(6), tiny_tokenizer, checkpoint_every=2)

    class Killed(Exception):
        pass

    def kill() -> bool:
        if len(lines(broken)) >= 5:
            raise Killed
        return False

    folder = RunFolder(broken, stop_requested=kill)
    with pytest.raises(Killed):
        fit(folder, new_policy(6), tiny_tokenizer, EXAMPLES, **SCHEDULE, checkpoint_every=2)
    assert len(lines(broken)) == 5
    run(broken, new_policy(99), tiny_tokenizer, checkpoint_every=2)
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


def test_example_longer_than_the_model_is_refused(new_policy, tiny_tokenizer, tmp_path):
    long = [Example(ids=(1,) * 257, num_prompt=1)]
    with pytest.raises(ValueError, match="longest example has 257 tokens"):
        fit(RunFolder(tmp_path), new_policy(0), tiny_tokenizer, long, **SCHEDULE)


def test_stage_trains_on_the_worlds_chains(tiny_stages):
    found = lines(tiny_stages.sft)
    assert [line["step"] for line in found] == list(range(1, 121))
    assert found[-1]["sft/loss"] < 0.5 * found[0]["sft/loss"]
    assert found[-1]["sft/learning_rate"] == pytest.approx(1e-3)
    assert (tiny_stages.sft / "model" / "model.safetensors").exists()


def test_stage_is_the_same_every_time(tiny_stages, tmp_path):
    inputs = {"world": tiny_stages.world, "base": tiny_stages.base}
    how = {"num_steps": 3, "batch_size": 4, "learning_rate": 1e-3, "final_learning_rate": 5e-4}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_sft(RunFolder(tmp_path / name), inputs, seed=seed, normalizer="token", **how)
    a, b, c = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in "abc")
    assert a == b != c
