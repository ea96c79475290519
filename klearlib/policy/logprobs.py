"""Log-probabilities and entropy of given tokens without ever holding [N, T, V]."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from klearlib.errors import KlearError
from klearlib.policy.head import head_logprobs

# Names in a config under which logits are not those of the head.
_AFTER_HEAD = ("final_logit_softcapping", "logits_scaling", "logit_scale")


def token_logprobs(
    model,
    input_ids: torch.Tensor,
    *,
    chunk_size: int,
    mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """log pi(input_ids[:, t + 1] | input_ids[:, : t + 1]) and the entropy of that distribution.

    Rows are right-padded: a causal model never looks to the right, so no attention mask is needed.
    Logits of no more than `chunk_size` tokens are held, twice with the entropy; several chunks are
    computed again in the backward pass.

    Args:
        model: a causal language model of transformers whose logits are ``lm_head(hidden)``.
        input_ids: [N, T] long.
        chunk_size: how many tokens go through the LM head at once, see
            `klearlib.policy.memory.head_chunk_tokens`.
        mask: bool [N, T-1], True where a value is wanted; the head is skipped elsewhere and both
            results are 0 there. Default: everywhere.
        position_ids: [N, T] long where a row holds several sequences, counting from 0 in each of
            them. What follows across a boundary is then masked out by the caller. Default: one
            sequence a row.
        temperature: of the distribution; the logits are divided by it, as at sampling.
        with_entropy: False where nobody reads the entropy.

    Returns:
        logp [N, T-1] with a graph, entropy [N, T-1] in nats without one, both float32; None for the
        entropy without `with_entropy`.

    Raises:
        ValueError: `input_ids` is not [N, T >= 2], `position_ids` has another shape, or
            `chunk_size` or `temperature` is not positive.
        KlearError: the config says that the model changes its logits after the head (soft-capping,
            scaling), or the model gives no states.
    """
    if input_ids.ndim != 2 or input_ids.shape[1] < 2:
        raise ValueError(f"input_ids must be [N, T] with T >= 2, got {tuple(input_ids.shape)}")
    if position_ids is not None and position_ids.shape != input_ids.shape:
        raise ValueError(
            f"position_ids must be {tuple(input_ids.shape)} as input_ids, got "
            f"{tuple(position_ids.shape)}"
        )
    if chunk_size < 1 or not temperature > 0:
        raise ValueError(
            f"chunk_size and temperature must be positive, got {chunk_size} and {temperature}"
        )
    for name in _AFTER_HEAD:
        if getattr(model.config, name, None):
            raise KlearError(f"{type(model).__name__} applies {name} after its head: not supported")
    targets = input_ids[:, 1:]
    mask = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
    positions = {} if position_ids is None else {"position_ids": position_ids}
    # With a cache transformers would not look for several sequences in the position ids.
    output = model.base_model(input_ids=input_ids, use_cache=False, **positions)
    if (states := getattr(output, "last_hidden_state", None)) is None:
        raise KlearError(
            f"{type(model).__name__} gives no last_hidden_state without its head: not supported"
        )
    states, wanted, head = states[:, :-1][mask], targets[mask], model.get_output_embeddings()
    device = states.device.type
    low = torch.is_autocast_enabled(device) and head.weight.dtype == torch.float32

    def of_chunk(states: torch.Tensor, targets: torch.Tensor):
        return head_logprobs(
            states,
            head.weight,
            getattr(head, "bias", None),
            targets,
            temperature=temperature,
            with_entropy=with_entropy,
            dtype=torch.get_autocast_dtype(device) if low else None,
        )

    several = len(wanted) > chunk_size and torch.is_grad_enabled()
    chunks = [
        checkpoint(of_chunk, *chunk, use_reentrant=False) if several else of_chunk(*chunk)
        for chunk in zip(states.split(chunk_size), wanted.split(chunk_size), strict=True)
    ]
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    logp, entropy = (
        None if values[0] is None else zeros.masked_scatter(mask, torch.cat(values).float())
        for values in zip(*chunks, strict=True)
    )
    return logp, entropy
