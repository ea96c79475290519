"""Supervised training: its schedule, its gradient, and a kill that changes no bit."""

import math

import pytest
import torch
from full_memory import too_large_for
from sft_runs import EPOCHS, EXAMPLES, PACKED, SCHEDULE, assert_same_bytes, lines, run
from torch.nn.utils.rnn import pad_sequence

from klearlib.errors import Stopped
from klearlib.policy.load import load_policy, save_policy
from klearlib.run.entry import CHECKPOINT
from klearlib.run.folder import RunFolder
from klearlib.sft import train
from klearlib.sft.batches import example_order
from klearlib.sft.train import cosine_learning_rate


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


METRICS = ("loss", "grad_norm", "learning_rate", "num_tokens", "skipped_updates")


@pytest.mark.parametrize("normalizer", ["token", "sequence"])
def test_unpacked_training_is_the_plain_loop(new_policy, tiny_tokenizer, tmp_path, normalizer):
    """Of 20 steps one warms up."""
    policy, trained = new_policy(6), new_policy(6)
    schedule = SCHEDULE | {"normalizer": normalizer, "num_steps": 20}
    run(tmp_path, trained, tiny_tokenizer, **schedule)
    policy.train()
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    order = example_order(len(EXAMPLES), seed=schedule["seed"])
    losses, norms, counts, rates = [], [], [], []
    for step in range(20):
        for group in optimizer.param_groups:
            group["lr"] = cosine_learning_rate(step, 20, 3e-3, 1e-3, 1)
        batch = sorted((EXAMPLES[next(order)] for _ in range(4)), key=lambda row: len(row.ids))
        ids = pad_sequence([torch.tensor(row.ids) for row in batch], batch_first=True).long()
        place, ends = torch.arange(ids.shape[1]), torch.tensor([len(row.ids) for row in batch])
        before = place >= torch.tensor([row.num_prompt - 1 for row in batch])[:, None]
        before &= place < ends[:, None] - 1
        optimizer.zero_grad(set_to_none=True)
        logits = policy(input_ids=ids, use_cache=False).logits[:, :-1]
        logp = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None])[..., 0]
        lengths = before.sum(1, keepdim=True)
        share = 1 / (len(batch) * lengths) if normalizer == "sequence" else 1 / lengths.sum()
        loss = -(share * logp * before[:, :-1]).sum()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
        counts.append(int(lengths.sum()))
        rates.append(optimizer.param_groups[0]["lr"])
    found = {name: [line[f"sft/{name}"] for line in lines(tmp_path)] for name in METRICS}
    assert found["loss"] == pytest.approx(losses, rel=1e-5)
    assert found["grad_norm"] == pytest.approx(norms, rel=1e-4)
    assert found["learning_rate"] == pytest.approx(rates)
    assert found["num_tokens"] == counts and found["skipped_updates"] == [0] * 20
    found, _ = load_policy(tmp_path / "model", device="cpu")
    for name, weights in policy.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], weights, rtol=1e-4, atol=1e-5)


def test_a_share_of_the_batches_is_read_under_yarn(new_policy, tiny_tokenizer, tmp_path):
    """All of them as a model loaded with YaRN would, none as without; of some those of the seed."""
    policies = {share: new_policy(6) for share in (None, 0.0, 0.5, 1.0)}
    for share, policy in policies.items():
        yarn = {"factor": 2.5, "original": 40, "share": share} if share is not None else None
        run(tmp_path / str(share), policy, tiny_tokenizer, yarn=yarn)
    save_policy(new_policy(6), tiny_tokenizer, tmp_path / "start")
    stretched, _ = load_policy(tmp_path / "start", device="cpu", yarn_factor=2.5, yarn_original=40)
    run(tmp_path / "stretched", stretched, tiny_tokenizer)
    losses = {
        path.name: [line["sft/loss"] for line in lines(path)]
        for path in tmp_path.iterdir()
        if path.name != "start"
    }
    assert losses["0.0"] == losses["None"] and losses["1.0"] == losses["stretched"]
    plain, scaled, some = losses["None"], losses["1.0"], losses["0.5"]
    assert plain[0] != scaled[0] and some[0] in (plain[0], scaled[0])
    assert some not in (plain, scaled)
    config = load_policy(tmp_path / "1.0" / "model", device="cpu")[0].config
    assert config.rope_parameters["rope_type"] == "default"  # what is saved is not stretched


@pytest.mark.parametrize("changes", [{}, EPOCHS | PACKED], ids=["padded", "packed epochs"])
@pytest.mark.parametrize("stops", [[2], [1, 3, 4]])
def test_stopped_and_resumed_equals_the_unbroken_run(
    new_policy, tiny_tokenizer, tmp_path, stops, changes
):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(whole, new_policy(6), tiny_tokenizer, **changes)
    for stop in stops:
        with pytest.raises(Stopped, match=f"after step {stop} of {len(lines(whole))}"):
            run(broken, new_policy(6), tiny_tokenizer, stop_at=stop, **changes)
        assert not (broken / "model").exists()
    # A resumed call starts from the weights of the checkpoint, not from those it is given.
    run(broken, new_policy(99), tiny_tokenizer, **changes)
    assert_same_bytes(broken, whole)


class Killed(BaseException):
    pass


KILLED_IN = ("append_metrics", "append_timings", "progress", "save_checkpoint")


def test_killed_at_any_operation_and_resumed_equals_the_unbroken_run(
    new_policy, tiny_tokenizer, tmp_path, monkeypatch
):
    """With dropout, whose draws a resumed run must repeat, and an epoch that ends in mid-batch."""
    changes = EPOCHS | PACKED | {"checkpoint_every": 2}
    left = [10**9]

    def counted(original):
        def operation(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return original(*args, **kwargs)

        return operation

    def with_dropout(seed):
        policy = new_policy(seed)
        policy.config.attention_dropout = 0.2
        for layer in policy.model.layers:
            layer.self_attn.attention_dropout = 0.2
        return policy

    whole = tmp_path / "whole"
    run(whole, with_dropout(6), tiny_tokenizer, **changes)
    for name in KILLED_IN:
        monkeypatch.setattr(RunFolder, name, counted(getattr(RunFolder, name)))
    monkeypatch.setattr(torch.optim.AdamW, "step", counted(torch.optim.AdamW.step))
    monkeypatch.setattr(train, "save_policy", counted(train.save_policy))
    for num_before in range(100):
        left[0] = num_before
        broken = tmp_path / str(num_before)
        torch.manual_seed(num_before)
        try:
            run(broken, with_dropout(6), tiny_tokenizer, **changes)
        except Killed:
            left[0] = 10**9
            resumes = (broken / CHECKPOINT).exists()
            run(broken, with_dropout(99 if resumes else 6), tiny_tokenizer, **changes)
            assert_same_bytes(broken, whole)
        else:
            break
    assert 20 < num_before < 99, "the kills must reach from the first operation to the last"


@pytest.mark.parametrize(("batch_size", "num_steps"), [(4, 5), (3, 7), (10, 2), (20, 1), (64, 1)])
def test_epochs_show_each_example_that_often(
    new_policy, tiny_tokenizer, tmp_path, monkeypatch, batch_size, num_steps
):
    seen = []
    original = train.batch_gradient

    def spy(model, batch, **how):
        seen.append([EXAMPLES.index(example) for example in batch])
        return original(model, batch, **how)

    monkeypatch.setattr(train, "batch_gradient", spy)
    run(tmp_path, new_policy(6), tiny_tokenizer, batch_size=batch_size, **EPOCHS)
    assert len(seen) == num_steps
    drawn = [index for batch in seen for index in batch]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(range(10)) and len(drawn) == 20
    found = lines(tmp_path)
    assert [line["sft/num_examples"] for line in found] == list(map(len, seen))
    assert sum(line["sft/num_examples"] for line in found) == 20
    assert found[-1]["sft/epoch"] == 2.0
    assert found[0]["sft/epoch"] == min(batch_size, 20) / 10
    assert found[-1]["sft/learning_rate"] == pytest.approx(1e-3 if num_steps > 2 else 3e-3, rel=0.7)


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")


def test_run_out_of_memory_goes_on_in_halves(new_policy, tiny_tokenizer, tmp_path, monkeypatch):
    """It is the run of the smaller budget from the step on at which the memory ran out."""
    small, large = tmp_path / "small", tmp_path / "large"
    run(small, new_policy(6), tiny_tokenizer, micro_batch_tokens=20)
    monkeypatch.setattr(train, "in_chunks", too_large_for(20, FULL))
    run(large, new_policy(6), tiny_tokenizer, micro_batch_tokens=80)
    assert_same_bytes(large, small)
    halvings = [line["training/memory_halvings"] for line in lines(large, "timings.jsonl")]
    assert halvings == [2, *[0] * 5]


def test_resumed_run_keeps_the_budget_that_was_halved(
    new_policy, tiny_tokenizer, tmp_path, monkeypatch
):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    how = {"micro_batch_tokens": 80}
    with monkeypatch.context() as small:
        small.setattr(train, "in_chunks", too_large_for(20, FULL))
        run(whole, new_policy(6), tiny_tokenizer, **how)
        with pytest.raises(Stopped):
            run(broken, new_policy(6), tiny_tokenizer, stop_at=2, **how)
    run(broken, new_policy(6), tiny_tokenizer, **how)
    assert_same_bytes(broken, whole)
