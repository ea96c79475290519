"""An LM head: logits by a linear map, and the log-probabilities of tokens by softmax.

A product of bfloat16 is summed and kept in float32 everywhere: between 16 and 32 the numbers of
bfloat16 are 0.125 apart, and a log-ratio would move by as much.

With z = W h, p = softmax(z / T) and y the target, the gradient of log p_y is (onehot(y) - p) / T
with respect to z; so it needs nothing but p and what arrives for log p_y.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F

_WORDS = 1 << 12  # of which a CPU holds the weights in float32 at a time


def head_logits(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[..., d] and [V, d] of one type -> [..., V], in float32 at least. It has no gradient where
    that type is bfloat16."""
    if states.dtype != torch.bfloat16:
        return F.linear(states, weight)
    flat = states.reshape(-1, states.shape[-1])
    if states.device.type != "cpu":
        logits = torch.mm(flat, weight.t(), out_dtype=torch.float32)
    else:  # a CPU's product of bfloat16 is bfloat16
        logits = flat.new_empty((len(flat), len(weight)), dtype=torch.float32)
        for start in range(0, len(weight), _WORDS):
            some = slice(start, start + _WORDS)
            logits[:, some] = F.linear(flat.float(), weight[some].float())
    return logits.view(*states.shape[:-1], -1)


class _Logits(torch.autograd.Function):
    """`head_logits` with a gradient."""

    @staticmethod
    def forward(ctx, states, weight, dtype):
        low = states.to(dtype), weight.to(dtype)
        ctx.save_for_backward(*low)
        ctx.dtypes = states.dtype, weight.dtype
        return head_logits(*low)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, arrived):
        states, weight = ctx.saved_tensors
        arrived = arrived.to(states.dtype)
        of_states = (arrived @ weight).to(ctx.dtypes[0])
        of_weight = arrived.flatten(0, -2).t() @ states.flatten(0, -2)
        return of_states, of_weight.to(ctx.dtypes[1]), None


@contextmanager
def wide_head(model) -> Iterator[None]:
    """The head of any model of transformers computes by `head_logits` within the context, where
    autocast is on."""
    head = model.get_output_embeddings()
    plain = head.forward

    def forward(states: torch.Tensor) -> torch.Tensor:
        kind = states.device.type
        if not torch.is_autocast_enabled(kind):
            return plain(states)
        with torch.autocast(kind, enabled=False):
            logits = _Logits.apply(states, head.weight, torch.get_autocast_dtype(kind))
        return logits if head.bias is None else logits + head.bias

    head.forward = forward
    try:
        yield
    finally:
        del head.forward


def head_logprobs(
    states: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """log softmax(W h / T)[y] of C tokens, and the entropy of each softmax in nats.

    Args:
        states: [C, d]; weight: [V, d]; targets: long [C].
        with_entropy: it costs a second pass over the logits and their size in memory.
        dtype: what both are rounded to, default: that of the weights; logits and softmax are in
            float32, or float64 for float64.

    Returns:
        logp [C] with a graph that holds [C, V], entropy [C] without one or None.
    """
    with torch.autocast(states.device.type, enabled=False):
        logp, entropy = _Head.apply(
            states, weight, targets, temperature, with_entropy, dtype or weight.dtype
        )
    return logp, entropy if with_entropy else None


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, weight, targets, temperature, with_entropy, dtype):
        low = states.to(dtype), weight.to(dtype)
        logits = head_logits(*low)  # [C, V]
        if temperature != 1:
            logits /= temperature
        logits -= logits.amax(dim=-1, keepdim=True)  # so that no exponential overflows
        chosen = logits.gather(1, targets[:, None]).squeeze(1)
        exp_logits = logits.exp() if with_entropy else logits.exp_()  # e^(z - max) [C, V]
        total = exp_logits.sum(dim=-1)
        log_z = total.log()
        if with_entropy:  # log Z - sum of p z; the row-wise dot product holds no third [C, V]
            dot = torch.bmm(exp_logits[:, None, :], logits[:, :, None]).flatten()
            entropy = log_z - dot / total
        else:
            entropy = log_z.new_empty(0)
        ctx.save_for_backward(*low, targets, total, exp_logits)
        ctx.temperature, ctx.dtypes = temperature, (states.dtype, weight.dtype)
        ctx.mark_non_differentiable(entropy)
        return chosen - log_z, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, arrived, _):
        states, weight, targets, total, exp_logits = ctx.saved_tensors
        arrived = (arrived / ctx.temperature)[:, None]
        of_logits = exp_logits * (-arrived / total[:, None])  # -p / T of each word, [C, V]
        of_logits.scatter_add_(1, targets[:, None], arrived)  # + 1 / T at the target
        of_logits = of_logits.to(states.dtype)
        of_states = (of_logits @ weight).to(ctx.dtypes[0])
        needs_weight = ctx.needs_input_grad[1]
        of_weight = (of_logits.t() @ states).to(ctx.dtypes[1]) if needs_weight else None
        return of_states, of_weight, None, None, None, None
