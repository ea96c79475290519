"""The memory estimate against the bytes that tensors take, and the micro-batches chosen by it."""

from __future__ import annotations

import dataclasses
import gc
import itertools

import pytest
import torch
from live_bytes import LiveBytes
from small_models import small_gpt2, small_model

from klearlib.errors import KlearError
from klearlib.policy import memory
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.reader import in_chunks
from klearlib.policy.sampling import sample_groups
from klearlib.policy.shape import ModelShape, shape_of
from klearlib.records import Problem
from klearlib.sft.batches import Example

SHAPES = {
    "narrow": ModelShape(2, 64, 4, 2, 16, 128, 300, True),
    "deep": ModelShape(6, 128, 4, 2, 32, 384, 64, True),
    "all heads": ModelShape(3, 96, 8, 8, 12, 192, 1000, True),
    "wide MLP": ModelShape(3, 128, 2, 1, 64, 512, 600, False),
    "many words": ModelShape(3, 128, 2, 1, 64, 512, 4000, True),
}
ROWS, ROW_TOKENS = 4, 128
# How far the bound may be above what is needed.
FACTOR = 2.0


def model_of(shape: ModelShape, attention: str = "sdpa", **changes):
    model = small_model(
        num_hidden_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate_size,
        vocab_size=shape.vocab_size,
        tie_word_embeddings=shape.tie_word_embeddings,
        max_position_embeddings=1024,
        initializer_range=0.02,
        **changes,
    )
    model.set_attn_implementation(attention)
    return model.train()


def peak_of_a_pass(shape: ModelShape, compute) -> int:
    """Most bytes that a forward and backward pass of training holds beside weights and
    gradients."""
    model = model_of(shape, compute.attention).eval()
    plan = plan_batches(model, compute)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    ids = torch.randint(0, shape.vocab_size, (ROWS, ROW_TOKENS)).tolist()
    part = [Example(row, num_prompt=2) for row in ids]
    gc.collect()
    with LiveBytes([*model.parameters(), *(w.grad for w in model.parameters())]) as live:
        for _, logp, _ in in_chunks(plan.reader(model), part):
            (-logp.sum()).backward()
    return live.peak


LAYOUTS = [("line", 1), ("line", 5), ("padded", 5)]
WAYS = list(itertools.product(("fp32", "bf16"), LAYOUTS, (False, True)))
# Half of the ways of one shape, with all pairs of their parts, and one way of every shape.
PASSES = [
    pytest.param(
        shape,
        precision,
        *layout,
        checkpointing,
        id=f"{name}, {precision}, {layout[0]} {layout[1]}{', checkpointing' * checkpointing}",
        marks=[]
        if (name == "narrow" and (number // 8 + number // 2 + number) % 2 == 0)
        or number == 1 + index
        else pytest.mark.slow,
    )
    for index, (name, shape) in enumerate(SHAPES.items())
    for number, (precision, layout, checkpointing) in enumerate(WAYS)
]


@pytest.mark.parametrize(("shape", "precision", "layout", "chunks", "checkpointing"), PASSES)
def test_the_estimate_bounds_what_a_pass_holds(
    shape, precision, layout, chunks, checkpointing, monkeypatch
):
    """The pass of training itself, in one chunk of the head and in several."""
    compute = local_compute(
        precision=precision,
        attention="eager" if layout == "padded" else "sdpa",
        gradient_checkpointing=checkpointing,
    )
    for name in ("_CPU_LOGITS", "_GPU_LOGITS"):
        monkeypatch.setattr(memory, name, shape.vocab_size * ROWS * ROW_TOKENS // chunks)
    estimate = memory.activation_bytes(
        shape, compute=compute, tokens=ROWS * ROW_TOKENS, row_tokens=ROW_TOKENS
    )
    if precision == "bf16":
        estimate += 2 * shape.num_parameters  # autocast's copy of the weights, part of the state
    if layout == "padded":  # all logits, those of the responses, and the gradients of both
        estimate += 4 * 4 * ROWS * ROW_TOKENS * shape.vocab_size
    peak = peak_of_a_pass(shape, compute)
    assert peak <= estimate <= FACTOR * peak


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_parameters_and_states_are_counted_exactly(shape):
    model = model_of(shape)
    assert shape_of(model.config) == shape
    weights = list(model.parameters())
    assert shape.num_parameters == sum(weight.numel() for weight in weights)
    optimizer = torch.optim.AdamW(weights, lr=1e-3, foreach=False)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    moments = [t for state in optimizer.state.values() for t in state.values() if t.numel() > 1]
    held = sum(
        t.numel() * t.element_size() for t in (*weights, *(w.grad for w in weights), *moments)
    )
    assert memory.state_bytes(shape.num_parameters, precision="fp32") == held


PENALISED = {"temperature": 0.9, "repetition_penalty": 1.2, "top_p": 0.99}


@pytest.mark.parametrize("cuts", [{}, PENALISED], ids=str)
@pytest.mark.parametrize(
    ("precision", "trained"), [("fp32", True), ("bf16", True), ("bf16", False)]
)
@pytest.mark.parametrize("name", ["narrow", "deep", "many words"])
def test_the_estimate_bounds_what_sampling_holds(tiny_tokenizer, name, precision, trained, cuts):
    """The loop of sampling itself, whose rows leave it one after the other."""
    shape = dataclasses.replace(SHAPES[name], vocab_size=max(280, SHAPES[name].vocab_size))
    model = model_of(shape, eos_token_id=list(range(0, 280, 9))).eval()
    if precision == "bf16" and not trained:
        model.bfloat16()
    problems = [Problem(str(n), "2+2" * n, "1") for n in range(1, 5)]
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 40, "seed": 0}
    settings = SamplingSettings(**plain | cuts)
    gc.collect()
    with LiveBytes(model.parameters()) as live:
        how = {"group_size": 8, "settings": settings, "precision": precision}
        groups = sample_groups(model, tiny_tokenizer, problems, **how)
    row_tokens = 40 + max(len(group[0].prompt_ids) for group in groups)
    compute = local_compute(precision)
    how = {"compute": compute, "rows": 32, "row_tokens": row_tokens}
    estimate = memory.sampling_bytes(shape, **how, trained=trained)
    each = 2 if precision == "bf16" and not trained else 4
    held = each * shape.num_parameters + live.peak
    assert held <= estimate <= FACTOR * held


def test_micro_batches_are_the_largest_power_of_two_that_fits():
    model, shape = model_of(SHAPES["narrow"]), SHAPES["narrow"]
    compute = local_compute(micro_batch_tokens=0)
    states = memory.state_bytes(shape.num_parameters, precision="fp32") - 4 * shape.num_parameters

    def needed(tokens: int) -> int:
        return memory.activation_bytes(shape, compute=compute, tokens=tokens)

    def chosen(free: float, compute=compute) -> int:
        return memory.choose_micro_batch_tokens(model, compute=compute, free_bytes=int(free))

    for tokens in (512, 4096):
        exact = (needed(tokens) + states) / memory.FREE_SHARE
        assert chosen(exact + 1) == tokens
        assert chosen(exact - 2) == tokens // 2
    assert chosen(0) == memory.LEAST_TOKENS
    assert chosen(1e15) == memory.MOST_TOKENS
    packed = dataclasses.replace(compute, pack_tokens=5000)
    assert chosen(0, packed) == 5000
    # Gradients that are there already are not kept free a second time.
    exact = (needed(512) + states) / memory.FREE_SHARE
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    assert chosen(exact - states / memory.FREE_SHARE + 1) == 512


def test_a_config_without_the_shape_is_one_line():
    model = small_gpt2()
    given = plan_batches(model, local_compute(micro_batch_tokens=64))
    assert given.micro_batch_tokens == 64
    with pytest.raises(KlearError, match=r"GPT2LMHeadModel .* give micro_batch_tokens") as caught:
        plan_batches(model, local_compute(micro_batch_tokens=0))
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
def test_the_estimate_bounds_a_gpu_too():
    shape = ModelShape(8, 512, 8, 4, 64, 1536, 1024, True)
    compute = local_compute("bf16")
    model = model_of(shape).eval().to("cuda")
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    ids = torch.randint(0, shape.vocab_size, (32, 512)).tolist()
    rows, plan = [Example(row, num_prompt=2) for row in ids], plan_batches(model, compute)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    reader = plan.reader(model)
    for _, logp, _ in in_chunks(reader, rows, with_entropy=False):
        (-logp.sum()).backward()
    peak = torch.cuda.max_memory_allocated() - before
    estimate = memory.activation_bytes(shape, compute=compute, tokens=32 * 512, row_tokens=512)
    assert peak <= estimate + 2 * shape.num_parameters <= FACTOR * peak
