"""BatchPlan of training: each row once, checkpointing changes nothing, some parts cannot shrink."""

from types import SimpleNamespace

import pytest
import torch
from small_models import small_model

from klearlib.errors import KlearError
from klearlib.policy.batch_plan import BatchPlan, plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.reader import in_chunks
from klearlib.sft.batches import Example

SEQUENCES = [Example(tuple(range(length)), 1) for length in (10, 20)]


@pytest.fixture
def dropping():
    """A model that calls dropout in the layer itself, as the layer's mode says."""
    return small_model("OPT", ffn_dim=64, word_embed_proj_dim=32, dropout=0.5)


def gradient(model, plan: BatchPlan) -> tuple[torch.Tensor, int]:
    """Of the log-probabilities of one row, twice, and how often the first layer was computed."""
    part = [Example(tuple(range(3, 15)), num_prompt=3)]
    calls = []
    first = model.model.decoder.layers[0].self_attn
    counter = first.register_forward_pre_hook(lambda *_: calls.append(1))
    model.zero_grad()
    reader = plan.reader(model)
    for _ in range(2):
        for _, logp, _ in in_chunks(reader, part):
            logp.sum().backward()
    counter.remove()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(gradients), len(calls)


def passes_of(model, *, checkpointing: bool) -> BatchPlan:
    return plan_batches(model, local_compute(gradient_checkpointing=checkpointing))


def test_checkpointing_switches_no_dropout_on(dropping):
    expected, num_calls = gradient(dropping, passes_of(dropping, checkpointing=False))
    assert num_calls == 2
    plan = passes_of(dropping, checkpointing=True)
    for _ in range(2):
        found, num_calls = gradient(dropping, plan)
        assert torch.equal(found, expected) and num_calls == 4
    assert not any(module.training for module in dropping.modules())


def test_checkpointing_keeps_the_dropout_of_training(dropping):
    found = []
    for checkpointing in (False, True):
        plan = passes_of(dropping.train(), checkpointing=checkpointing)
        torch.manual_seed(3)
        found.append(gradient(dropping, plan)[0])
        assert all(module.training for module in dropping.modules())
    assert torch.equal(*found)
    assert not torch.equal(found[0], gradient(dropping.eval(), plan)[0])


FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    MemoryError(),
    # Outside of torch's allocator.
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_out_of_memory_halves_but_not_parts_that_count(error):
    def attempt() -> int:
        if plan.micro_batch_tokens > 50:
            raise error
        return plan.micro_batch_tokens

    plan = BatchPlan(100, "fp32")
    assert plan.fitting(attempt, sequences=SEQUENCES) == 50
    plan = BatchPlan(100, "fp32", parts_count=True)
    with pytest.raises(KlearError, match=r"out of memory .*mini_batch, or lower") as caught:
        plan.fitting(attempt, sequences=SEQUENCES)
    assert "\n" not in str(caught.value)
    assert (plan.micro_batch_tokens, plan.num_halvings) == (100, 0)


def test_other_errors_are_not_taken_for_a_full_memory():
    def attempt():
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        BatchPlan(100, "fp32").fitting(attempt, sequences=SEQUENCES)


@pytest.mark.parametrize("max_tokens", [1, 7, 20, 33, 1000])
def test_parts_hold_each_row_once_within_the_budget(max_tokens):
    lengths = [4, 9, 1, 9, 30, 2, 2, 7, 16, 5]
    rows = [SimpleNamespace(ids=(0,) * length, num_prompt=1) for length in lengths]
    parts = BatchPlan(max_tokens, "fp32").cut(rows)
    found = [row for part in parts for row in part]
    assert sorted(map(id, found)) == sorted(map(id, rows))
    assert [len(row.ids) for row in found] == sorted(lengths)
    for part in parts:
        assert len(part) == 1 or len(part) * max(len(row.ids) for row in part) <= max_tokens
    assert len(parts) == {1: 10, 7: 8, 20: 5, 33: 4, 1000: 1}[max_tokens]
    assert BatchPlan(None, "fp32").cut(rows) == [rows]
