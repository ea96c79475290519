"""Log-probabilities and entropy of given tokens without ever holding [N, T, V]."""

from __future__ import annotations

from collections.abc import Callable

import torch

from klearlib.errors import KlearError
from klearlib.policy.head import head_logprobs


def token_logprobs(
    model,
    input_ids: torch.Tensor,
    *,
    chunk_size: int,
    mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = True,
    loss: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """log pi(input_ids[:, t + 1] | input_ids[:, : t + 1]) and the entropy of that distribution.

    Rows are right-padded: a causal model never looks to the right, so no attention mask is needed
    and whatever stands in the padding changes nothing on its left.

    Args:
        model: a causal language model of transformers whose logits are ``lm_head(hidden)``.
        input_ids: [N, T] long.
        chunk_size: how many tokens go through the LM head at once, see
            `klearlib.policy.memory.head_chunk_tokens`.
        mask: bool [N, T-1], True where a value is wanted; the head is skipped elsewhere and both
            results are 0 there. Default: everywhere.
        position_ids: [N, T] long where a row holds several sequences, counting from 0 in each of
            them; see `klearlib.sft.packing`. What follows across a boundary is then masked out by
            the caller. Default: one sequence a row.
        temperature: of the distribution; the logits are divided by it, as at sampling.
        with_entropy: False where nobody reads the entropy, which costs a second pass over the
            logits and their size in memory.
        loss: what the caller will make of logp [N, T-1], see `state_logprobs`.

    Returns:
        logp [N, T-1] with a graph, entropy [N, T-1] in nats without one, both float32; None for
        the entropy without `with_entropy`.

    Raises:
        ValueError: `input_ids` is not [N, T >= 2], `position_ids` has another shape, `chunk_size`
            or `temperature` is not positive, or the model says that it changes its logits
            after the head (soft-capping, scaling); `klearlib.policy.probes` finds the others.
    """
    if input_ids.ndim != 2 or input_ids.shape[1] < 2:
        raise ValueError(f"input_ids must be [N, T] with T >= 2, got {tuple(input_ids.shape)}")
    if position_ids is not None and position_ids.shape != input_ids.shape:
        raise ValueError(
            f"position_ids must be {tuple(input_ids.shape)} as input_ids, got "
            f"{tuple(position_ids.shape)}"
        )
    targets = input_ids[:, 1:]
    wanted = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
    return masked_logprobs(
        model,
        row_states(model, input_ids, wanted, position_ids=position_ids),
        targets[wanted],
        wanted,
        chunk_size=chunk_size,
        temperature=temperature,
        with_entropy=with_entropy,
        loss=loss,
    )


def row_states(
    model, input_ids: torch.Tensor, mask: torch.Tensor, *, position_ids: torch.Tensor | None
) -> torch.Tensor:
    """The last hidden states [K, width] of rows [N, T] that predict the K tokens of `mask`, see
    `token_logprobs`."""
    positions = {} if position_ids is None else {"position_ids": position_ids}
    return last_states(model, input_ids=input_ids, **positions)[:, :-1][mask]


def last_states(model, **inputs) -> torch.Tensor:
    """The last hidden states [N, T, width] of the model under the head.

    Raises KlearError where it gives none.
    """
    # With a cache transformers would not look for several sequences in the position ids.
    states = getattr(model.base_model(use_cache=False, **inputs), "last_hidden_state", None)
    if states is None:
        raise KlearError(
            f"{type(model).__name__} gives no last_hidden_state without its head: not supported"
        )
    return states


def masked_logprobs(
    model,
    states: torch.Tensor,
    targets: torch.Tensor,
    mask: torch.Tensor,
    *,
    loss: Callable[[torch.Tensor], torch.Tensor] | None,
    **how,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`state_logprobs` of the K tokens of `mask` [N, T] as [N, T], 0 where it is False.

    loss: of logp [N, T]. how: as of `state_logprobs`.
    """
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)

    def spread(values: torch.Tensor) -> torch.Tensor:
        return zeros.masked_scatter(mask, values)

    logp, entropy = state_logprobs(
        model,
        states,
        targets,
        loss=None if loss is None else lambda values: loss(spread(values)),
        **how,
    )
    return spread(logp), None if entropy is None else spread(entropy)


def state_logprobs(
    model,
    states: torch.Tensor,
    targets: torch.Tensor,
    *,
    chunk_size: int,
    temperature: float = 1.0,
    with_entropy: bool = True,
    loss: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """log pi of one target token for each of K last hidden states, and the entropy there.

    Args:
        states: [K, width], with a graph; targets: long [K].
        chunk_size, temperature, with_entropy: see `token_logprobs`.
        loss: the scalar that the caller will make of logp [K] and call ``backward`` on, for a loss
            in which the gradient of each token depends on its own logp alone. With it the gradients
            of several chunks are made in the forward pass and none is computed twice. It changes
            time and memory and nothing else: where the gradient that arrives is another one, the
            chunks are computed again, as they are without `loss`.

    Returns:
        logp [K] with a graph and entropy [K] or None, float32.

    Raises:
        ValueError: see `token_logprobs`.
    """
    if chunk_size < 1 or not temperature > 0:
        raise ValueError(
            f"chunk_size and temperature must be positive, got {chunk_size} and {temperature}"
        )
    for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
        if getattr(model.config, name, None):
            raise KlearError(f"{type(model).__name__} applies {name} after its head: not supported")
    head = model.get_output_embeddings()
    logp, entropy = head_logprobs(
        states,
        head.weight,
        getattr(head, "bias", None),
        targets,
        chunk_size=chunk_size,
        temperature=temperature,
        with_entropy=with_entropy,
        loss=None if loss is None else lambda values: loss(values.float()),
    )
    return logp.float(), None if entropy is None else entropy.float()
