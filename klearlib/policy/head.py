"""Log-probabilities and entropy of tokens from the states before them: linear map and softmax.

With z = W h, p = softmax(z / T) and y the target, the gradient of log p_y is
(onehot(y) - p) / T with respect to z; so it needs nothing but p and what arrives for log p_y.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


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
        dtype: of the product, default: that of the weights; the softmax is in float32, or float64
            for float64.

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
        logits = F.linear(*low).to(torch.promote_types(dtype, torch.float32))  # [C, V]
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
