"""A whole update of RL at the paper's size under fake tensors, which have shapes, types and devices
and no memory. The device ``meta`` stands for a GPU: all that is not ``cpu`` goes a GPU's way."""

import dataclasses
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from live_bytes import LiveBytes
from rollout_fakes import settings as made_settings
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from transformers import Qwen3Config, Qwen3ForCausalLM

from klearlib.params import load
from klearlib.policy import decoder, memory, reader
from klearlib.policy.batch_plan import BatchPlan
from klearlib.policy.captured import CapturedDecoding
from klearlib.policy.compute import local_compute
from klearlib.policy.decoder import Decoder
from klearlib.policy.shape import shape_of
from klearlib.rl import logprobs, train
from klearlib.rl.coefficients import gppo
from klearlib.rl.rollouts import Row


class FlashAttention(torch.autograd.Function):
    """What a GPU's kernel takes and gives, and what it keeps for its backward pass: no scores.
    Which kernel torch would choose it asks the driver, which is not there."""

    @staticmethod
    def forward(ctx, q, k, v, grouped):
        assert q.device.type == "meta" and q.dtype == k.dtype == v.dtype == torch.bfloat16
        assert grouped == (q.shape[1] != k.shape[1])
        out, sums = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, sums)
        return out

    @staticmethod
    def backward(ctx, arrived):
        q, k, v, _, _ = ctx.saved_tensors
        assert arrived.dtype == q.dtype
        return *map(torch.empty_like, (q, k, v)), None


def flash(q, k, v, *, attn_mask=None, is_causal=False, scale, enable_gqa=False):
    assert attn_mask is None or not enable_gqa
    if attn_mask is not None or not is_causal:
        return torch.empty_like(q)
    return FlashAttention.apply(q, k, v, enable_gqa)


def on_gpu(made):
    """What `made` computes on a CPU with true numbers, as fake tensors there."""

    def moved(value):
        if isinstance(value, torch.Tensor):
            return torch.empty(value.shape, dtype=value.dtype, device="meta")
        if dataclasses.is_dataclass(value):
            names = [each.name for each in dataclasses.fields(value)]
            return dataclasses.replace(value, **{n: moved(getattr(value, n)) for n in names})
        return value

    def make(*args, device, **how):
        with unset_fake_temporarily():
            found = made(*args, device="cpu", **how)
        if isinstance(found, list):  # of (rows, batch)
            return [(rows, moved(batch)) for rows, batch in found]
        return moved(found)

    return make


@pytest.fixture
def no_driver(monkeypatch):
    """The few places that need a true number or a driver."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # knows no such device
    monkeypatch.setattr(F, "scaled_dot_product_attention", flash)
    monkeypatch.setattr(reader, "token_line", on_gpu(decoder.token_line))
    monkeypatch.setattr(logprobs, "micro_batches", on_gpu(logprobs.micro_batches))
    clip = torch.nn.utils.clip_grad_norm_

    def clipped(*args):
        norm = clip(*args)
        assert (norm.device.type, norm.dtype) == ("meta", torch.float32)
        return SimpleNamespace(item=lambda: 1.0)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clipped)
    monkeypatch.setattr(torch, "isfinite", lambda _: True)


def rows_of(num_rows: int, length: int, num_prompt: int) -> list[Row]:
    ids = torch.arange(length) % 1000
    logp = torch.full((length - num_prompt,), -0.5)
    return [Row(ids, num_prompt, logp, 1.0 if n % 2 else -1.0, n % 2 == 1) for n in range(num_rows)]


def new_model(profile: str, dtype: torch.dtype) -> Qwen3ForCausalLM:
    world = load(profile, "real")
    shape = {name: getattr(world, name) for name in ("hidden_size", "head_dim", "vocab_size")}
    shape |= {"intermediate_size": world.intermediate_size, "num_hidden_layers": world.num_layers}
    shape |= {"num_attention_heads": world.num_heads, "num_key_value_heads": world.num_kv_heads}
    shape |= {"max_position_embeddings": 40_960, "tie_word_embeddings": world.tie_word_embeddings}
    with unset_fake_temporarily(), torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**shape, attn_implementation="sdpa")).to(dtype)
    return model.to_empty(device="meta").eval()


@pytest.mark.parametrize(("profile", "length"), [("paper", 34_816), ("qwen", 6144)])
def test_a_whole_update_holds_no_more_than_the_plan_says(no_driver, profile, length):
    rows, precision = rows_of(2, length, 2048), "bf16"
    settings = made_settings(alpha=0.1, max_new_tokens=length - 2048)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = new_model(profile, torch.float32)
        weights = list(model.parameters())
        plan = BatchPlan(length, precision, recompute=True)
        optimizer = torch.optim.AdamW(weights, lr=1e-6, foreach=False)
        how = {"rule": gppo(eps_low=0.2, eps_high=0.28), "settings": settings, "plan": plan}
        sums = SimpleNamespace(num_positive_tokens=0, grad_norms=[], add=lambda *_, **__: None)
        with LiveBytes(weights) as live:
            train.update(model, optimizer, rows, sums, count_mismatch=False, **how)
        for weight in weights:
            moments = optimizer.state[weight]
            assert {weight.device.type, moments["exp_avg"].device.type} == {"meta"}
            assert {weight.dtype, weight.grad.dtype, moments["exp_avg_sq"].dtype} == {torch.float32}
        held = sum(weight.nbytes for weight in weights) + live.peak
        shape = shape_of(model.config)
    _, stats = sums.last
    assert {each.logp.dtype for each in stats} == {torch.float32} and sums.grad_norms == [1.0]
    compute = local_compute(precision, gradient_checkpointing=True)
    planned = memory.state_bytes(shape.num_parameters, precision=precision)
    planned += memory.activation_bytes(shape, compute=compute, tokens=length)
    assert held <= planned <= 1.6 * held, (held / 1e9, planned / 1e9)


def test_a_captured_step_of_the_papers_model(no_driver):
    """The weights are bfloat16, as nothing is trained; logits and log-probabilities are not."""

    class Replay:
        def __init__(self, advance):
            advance()
            self.replay = advance

    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model = new_model("paper", torch.bfloat16)
        with LiveBytes(model.parameters()) as live:
            ids = torch.zeros((1, 34_000), dtype=torch.long, device="meta")
            loop = CapturedDecoding.__new__(CapturedDecoding)
            mask = torch.ones_like(ids)
            mask.all = lambda: True  # a true number
            loop.__init__(Decoder(model, precision="bf16"), ids, mask, 34_816, capture=Replay)
            loop.repeat(8)
            for _ in range(2):
                loop.step(torch.zeros(8, dtype=torch.long, device="meta"))
            held = live.peak + sum(weight.nbytes for weight in model.parameters())
        assert (loop.logits.dtype, loop.logits.device.type) == (torch.float32, "meta")
        assert loop._buffers[0][0].dtype == torch.bfloat16
        shape = shape_of(model.config)
    compute = local_compute("bf16", batch_rows=8)
    planned = memory.sampling_bytes(shape, compute=compute, rows=8, row_tokens=34_816)
    assert 0.5 * planned < held < planned, (held / 1e9, planned / 1e9)
