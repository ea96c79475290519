"""The gradient of a batch is that of Eq. 8, however it is packed, cut and read."""

import random

import pytest
import torch
from small_models import small_model
from transformers import AttentionInterface, masking_utils

from klearlib.errors import KlearError
from klearlib.policy import reader
from klearlib.policy.batch_plan import BatchPlan
from klearlib.policy.reader import reading, require_separate, wants_one_row
from klearlib.sft.batches import Example
from klearlib.sft.train import batch_gradient

PAD = 0
_DRAWS = random.Random(2)
# Prompt and response lengths: from the shortest example possible to one that fills a row of 40.
LENGTHS = [(1, 1), (3, 9), (12, 28), (2, 1), (7, 7), (1, 20), (5, 5), (5, 5), (9, 2), (4, 13)]
EXAMPLES = [
    Example(ids=tuple(_DRAWS.randrange(280) for _ in range(a + b)), num_prompt=a)
    for a, b in LENGTHS
]
WHOLE = {"pack_tokens": None, "micro_batch_tokens": None}
LAYOUTS = [
    {"pack_tokens": pack_tokens, "micro_batch_tokens": micro_batch_tokens}
    for pack_tokens in (None, 40, 64, 1000)
    for micro_batch_tokens in (None, 1, 50, 90)
]


def gradient(policy, *, normalizer: str, layout: dict, examples=EXAMPLES):
    """Loss and gradient of a batch, and its sums."""
    how = {"precision": "fp32", "one_row": wants_one_row(policy), "pad_id": PAD, "plain_head": True}
    sums = batch_gradient(
        policy, examples, normalizer=normalizer, plan=BatchPlan(**how | layout), seed=0
    )
    return sums.loss, torch.cat([p.grad.flatten() for p in policy.parameters()]), sums


def by_equation(policy, normalizer: str, examples=EXAMPLES):
    """The normalisers' sums, one example at a time, by the dense softmax in float64."""
    policy.zero_grad()
    lengths = [len(example.ids) - example.num_prompt for example in examples]
    count, loss = len(examples), 0.0
    for example, length in zip(examples, lengths, strict=True):
        ids = torch.tensor(example.ids)
        logp = torch.log_softmax(policy(input_ids=ids[None]).logits[0, :-1], -1)
        mine = logp.gather(1, ids[1:, None])[example.num_prompt - 1 :].sum()
        total = {"token": sum(lengths), "sequence": length * count, "sequence_sum": count}
        loss = loss - mine / total[normalizer]
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in policy.parameters()])


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("normalizer", ["token", "sequence", "sequence_sum"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_layout_has_the_loss_and_the_gradient_of_the_equation(
    new_policy, normalizer, attention
):
    exact = new_policy(3, dtype=torch.float64)
    expected_loss, expected = by_equation(exact, normalizer)
    _, other = by_equation(exact, "token" if normalizer == "sequence" else "sequence")
    assert apart(other, expected) > 0.05, "the test can tell the normalisers"
    policy = new_policy(3)
    policy.set_attn_implementation(attention)
    num_parts = set()
    for layout in LAYOUTS:
        loss, found, sums = gradient(policy, normalizer=normalizer, layout=layout)
        assert loss == pytest.approx(expected_loss, rel=1e-5), layout
        assert apart(found.double(), expected) < 1e-5, layout
        assert sums.num_tokens == sum(b for _, b in LENGTHS)
        assert sums.num_held == sum(a + b for a, b in LENGTHS) <= sums.num_positions
        num_parts.add(sums.num_micro_batches)
    assert min(num_parts) == 1 and max(num_parts) == 10


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_rows_that_see_their_neighbours_would_be_noticed(new_policy, monkeypatch, attention):
    monkeypatch.setattr(reader, "can_decode", lambda model: False)
    policy = new_policy(3)
    policy.set_attn_implementation(attention)
    layout = {"pack_tokens": 64, "micro_batch_tokens": None}
    _, expected, _ = gradient(policy, normalizer="token", layout=WHOLE)
    require_separate(policy, precision="fp32")
    monkeypatch.setattr(masking_utils, "find_packed_sequence_indices", lambda ids: None)
    _, found, _ = gradient(policy, normalizer="token", layout=layout)
    assert apart(found, expected) > 0.05
    with pytest.raises(KlearError, match=f"{attention} attention sees other examples"):
        require_separate(policy, precision="fp32")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_small_leak_is_noticed_in_training_of_any_precision(monkeypatch, precision):
    """Attention with linear biases has no position ids to look at; untrained, it hardly looks at
    anything."""
    model = small_model("Bloom", initializer_range=0.02).train()
    with pytest.raises(KlearError, match="sees other examples"):
        require_separate(model, precision=precision)
    assert model.training
    monkeypatch.setattr(reader, "_LEAK", 1e-2)
    require_separate(model, precision=precision)


def test_rounding_of_bf16_is_no_leak(new_policy, monkeypatch):
    """As of experts, whose sums of a group of tokens depend on which others are in it."""
    monkeypatch.setattr(reader, "can_decode", lambda model: False)
    policy = new_policy(3)
    draws = torch.Generator().manual_seed(0)

    def round_off(module, inputs, output):
        is_low = torch.is_autocast_enabled("cpu")
        noise = torch.randn(output.shape, generator=draws)
        return output * (1 + (1e-3 if is_low else 1e-7) * noise)

    policy.model.norm.register_forward_hook(round_off)
    require_separate(policy, precision="fp32")
    require_separate(policy, precision="bf16")
    monkeypatch.setattr(reader, "_LEAK_BF16", 1e-4)
    with pytest.raises(KlearError, match="sees other examples"):
        require_separate(policy, precision="bf16")
    require_separate(new_policy(3, dtype=torch.bfloat16), precision="fp32")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_values_of_an_example_do_not_depend_on_its_neighbours(new_policy, attention):
    policy = new_policy(3)
    policy.set_attn_implementation(attention)
    first, second, third = EXAMPLES[1], EXAMPLES[4], EXAMPLES[9]
    other = Example(tuple((7 * t + 3) % 280 for t in first.ids), first.num_prompt)
    with reading(policy, precision="fp32", pad_id=PAD) as reader:
        values = [
            reader.states([[neighbour, second, third]])[len(first.ids) - first.num_prompt :]
            for neighbour in (first, other)
        ]
        alone = reader.states([[second]])
    assert torch.equal(*values)
    torch.testing.assert_close(values[0][: len(alone)], alone, rtol=1e-5, atol=1e-5)


def varlen_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    """What a varlen kernel does, by plain softmax: one row, cut where the positions restart."""
    positions = kwargs["position_ids"]
    assert attention_mask is None and query.shape[0] == 1 == positions.shape[0]
    starts = (positions[0] == 0).nonzero()[:, 0].tolist()
    heads = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(heads, dim=1) for x in (key, value))
    pieces = []
    for start, stop in zip(starts, [*starts[1:], query.shape[2]], strict=True):
        q, k, v = (x[:, :, start:stop] for x in (query, key, value))
        future = torch.ones(stop - start, stop - start).triu(1).bool()
        scores = (q @ k.transpose(-1, -2) * scaling).masked_fill(future, -torch.inf)
        pieces.append(torch.softmax(scores, -1) @ v)
    return torch.cat(pieces, dim=2).transpose(1, 2), None


@pytest.mark.parametrize(("normalizer", "micro_batch_tokens"), [("token", None), ("sequence", 90)])
def test_varlen_attention_gets_one_row_and_position_ids(new_policy, normalizer, micro_batch_tokens):
    """Flash attention needs a GPU: here a stand-in checks what it would be handed."""
    policy = new_policy(3)
    _, expected, _ = gradient(policy, normalizer=normalizer, layout=WHOLE)
    AttentionInterface.register("flash_stand_in", varlen_attention)
    policy.config._attn_implementation = "flash_stand_in"
    require_separate(policy, precision="fp32")
    layout = {"pack_tokens": 40, "micro_batch_tokens": micro_batch_tokens}
    _, found, sums = gradient(policy, normalizer=normalizer, layout=layout)
    assert apart(found, expected) < 1e-5
    assert sums.num_held == sums.num_positions, "no padding"


@pytest.mark.parametrize("layout", [WHOLE, {"pack_tokens": 64, "micro_batch_tokens": 90}])
def test_gradient_checkpointing_changes_nothing(new_policy, layout):
    policy = new_policy(3).train()
    policy.set_attn_implementation("eager")
    loss, expected, _ = gradient(policy, normalizer="sequence", layout=layout)
    policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    calls = []
    policy.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    again, found, sums = gradient(policy, normalizer="sequence", layout=layout)
    assert len(calls) == 2 * sums.num_micro_batches, "each layer is computed a second time"
    assert again == loss and torch.equal(found, expected)


def test_bf16_agrees_within_its_precision(new_policy):
    """What a GPU does, on a CPU: autocast, packed rows and checkpointing together."""
    policy = new_policy(3).train()
    loss, expected, _ = gradient(policy, normalizer="sequence", layout=WHOLE)
    layout = {"pack_tokens": 64, "micro_batch_tokens": 90, "precision": "bf16"}
    low_loss, low, _ = gradient(policy, normalizer="sequence", layout=layout)
    assert loss != low_loss == pytest.approx(loss, rel=2e-2)
    assert apart(low, expected) < 0.1 and low.dtype == torch.float32
    layout["recompute"] = True
    assert torch.equal(gradient(policy, normalizer="sequence", layout=layout)[1], low)
