"""The LM head in chunks of tokens, forward and backward: linear map, softmax, log-probability.

With z = W h + b, p = softmax(z / T) and y the target, the gradient of log p_y is
(onehot(y) - p) / T with respect to z; so a chunk's gradients need nothing but p and the gradient of
the loss with respect to the chunk's log-probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F


def head_logprobs(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    *,
    chunk_size: int,
    temperature: float,
    with_entropy: bool,
    loss: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """log softmax((W h + b) / T)[y] of K tokens, and the entropy of each softmax in nats.

    The product is computed in the autocast's precision where there is one, the softmax in float32
    (float64 for float64 weights). No more than the logits of `chunk_size` tokens are held, twice
    with the entropy. A single chunk is kept for the backward pass; several are computed again
    there, unless `loss` foresaw the gradient.

    Args:
        states: [K, width]; weight: [V, width]; bias: [V] or None; targets: long [K].
        loss: see `klearlib.policy.logprobs.state_logprobs`.

    Returns:
        logp [K] with a graph, entropy [K] without one, or None without `with_entropy`.
    """
    device = states.device.type
    low = torch.is_autocast_enabled(device) and weight.dtype == torch.float32
    how = _How(
        chunk_size=chunk_size,
        temperature=temperature,
        with_entropy=with_entropy,
        dtype=torch.get_autocast_dtype(device) if low else weight.dtype,
        loss=loss,
    )
    with torch.autocast(device, enabled=False):
        logp, entropy = _Head.apply(states, weight, bias, targets, how)
    return logp, entropy if with_entropy else None


@dataclass(frozen=True)
class _How:
    chunk_size: int
    temperature: float
    with_entropy: bool
    dtype: torch.dtype
    loss: Callable[[torch.Tensor], torch.Tensor] | None


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states, weight, bias, targets, how: _How):
        inputs = _Inputs(states, weight, bias, targets, how)
        wide = torch.promote_types(how.dtype, torch.float32)
        logp = torch.zeros(len(targets), dtype=wide, device=states.device)
        entropy = torch.zeros_like(logp) if how.with_entropy else logp.new_empty(0)
        chunks = inputs.chunks()
        ctx.kept = ctx.foreseen = None
        gradients = None
        if any(ctx.needs_input_grad) and len(chunks) > 1 and how.loss is not None:
            gradients, pulls = _Gradients(inputs, ctx.needs_input_grad), torch.zeros_like(logp)
        for chunk in chunks:
            logits = inputs.logits(chunk)
            logp[chunk], spread, powers = _softmax(logits, targets[chunk], how.with_entropy)
            del logits  # before the gradients take memory; `powers` before the next chunk does
            if how.with_entropy:
                entropy[chunk] = spread
            if gradients is not None:
                pulls[chunk] = _gradient(how.loss, logp)[chunk]
                gradients.add(chunk, powers, pulls[chunk])
            elif len(chunks) == 1 and any(ctx.needs_input_grad):
                ctx.kept = powers
            del powers
        if gradients is not None:
            ctx.foreseen = pulls, gradients.values()
        ctx.save_for_backward(states, weight, bias, targets)
        ctx.how = how
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, pulls, _):
        foreseen, ctx.foreseen = ctx.foreseen, None  # given away: autograd may add to it in place
        if foreseen is not None and torch.equal(foreseen[0], pulls):
            return *foreseen[1], None, None
        states, weight, bias, targets = ctx.saved_tensors
        inputs = _Inputs(states, weight, bias, targets, ctx.how)
        gradients = _Gradients(inputs, ctx.needs_input_grad)
        for chunk in inputs.chunks():
            powers, ctx.kept = ctx.kept, None  # `add` overwrites them
            if powers is None:
                powers = _softmax(inputs.logits(chunk), targets[chunk], with_entropy=False)[2]
            gradients.add(chunk, powers, pulls[chunk])
        return *gradients.values(), None, None


class _Inputs:
    """What the head is given, in the precision of its product."""

    def __init__(self, states, weight, bias, targets, how: _How):
        self.how, self.targets = how, targets
        self.dtypes = [None if x is None else x.dtype for x in (states, weight, bias)]
        self.states, self.weight = states.to(how.dtype), weight.to(how.dtype)
        self.bias = None if bias is None else bias.to(how.dtype)

    def chunks(self) -> list[slice]:
        size = self.how.chunk_size
        return [slice(start, start + size) for start in range(0, len(self.targets), size)]

    def logits(self, chunk: slice) -> torch.Tensor:
        """[C, V] of the temperature's distribution, a buffer of its own."""
        logits = F.linear(self.states[chunk], self.weight, self.bias)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits if self.how.temperature == 1 else logits.div_(self.how.temperature)


class _Gradients:
    """Those with respect to states, weight and bias, None where they are not needed, summed over
    the chunks in float32 or wider."""

    def __init__(self, inputs: _Inputs, needed: tuple[bool, ...]):
        self._inputs = inputs
        shapes = [inputs.states, inputs.weight, inputs.bias]
        self._sums = [
            torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) if need else None
            for x, need in zip(shapes, needed, strict=False)
        ]

    def add(self, chunk: slice, powers: tuple[torch.Tensor, torch.Tensor], pull) -> None:
        """The gradients of a chunk; `powers` (see `_softmax`) are overwritten."""
        inputs, (of_states, of_weight, of_bias) = self._inputs, self._sums
        power, total = powers
        pull = (pull / inputs.how.temperature)[:, None]
        of_logits = power.mul_(-pull / total[:, None])
        of_logits.scatter_add_(1, inputs.targets[chunk, None], pull)
        if of_bias is not None:
            of_bias += of_logits.sum(dim=0)
        of_logits = of_logits.to(inputs.how.dtype)
        if of_states is not None:
            of_states[chunk] = of_logits @ inputs.weight
        if of_weight is not None and of_weight.dtype == of_logits.dtype:
            of_weight.addmm_(of_logits.t(), inputs.states[chunk])
        elif of_weight is not None:
            of_weight += of_logits.t() @ inputs.states[chunk]

    def values(self) -> list[torch.Tensor | None]:
        return [
            None if x is None else x.to(dtype)
            for x, dtype in zip(self._sums, self._inputs.dtypes, strict=True)
        ]


def _softmax(logits: torch.Tensor, targets: torch.Tensor, with_entropy: bool):
    """logp [C], entropy [C] or None, and the softmax as (e^(z - max) [C, V], its sum [C]), which
    takes the place of the logits where the entropy does not need both."""
    logits -= logits.amax(dim=-1, keepdim=True)
    chosen = logits.gather(1, targets[:, None]).squeeze(1)
    power = logits.exp() if with_entropy else logits.exp_()
    total = power.sum(dim=-1)
    log_z = total.log()
    entropy = None
    if with_entropy:  # log Z - sum of p z; the row-wise dot product holds no third [C, V]
        dot = torch.bmm(power[:, None, :], logits[:, :, None]).flatten()
        entropy = log_z - dot / total
    return chosen - log_z, entropy, (power, total)


def _gradient(loss: Callable[[torch.Tensor], torch.Tensor], logp: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        known = logp.detach().clone().requires_grad_()
        return torch.autograd.grad(loss(known), known)[0]
