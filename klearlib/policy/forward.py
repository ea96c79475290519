"""The trainer's forward pass over a micro-batch, in whichever way its tokens are laid out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from klearlib.policy.load import autocast
from klearlib.policy.logprobs import masked_logprobs, row_states
from klearlib.policy.memory import head_chunk_tokens
from klearlib.policy.passes import Passes
from klearlib.policy.token_line import TokenLine, line_states

if TYPE_CHECKING:
    from klearlib.sft.packing import SupervisedBatch


def response_logprobs(
    model,
    tokens: TokenLine | SupervisedBatch,
    loss_mask: torch.Tensor,
    *,
    passes: Passes,
    temperature: float = 1.0,
    with_entropy: bool = True,
    loss: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """logp [N, T] with a graph and entropy [N, T] or None, 0 where `loss_mask` is False.

    Args:
        tokens: a line of tokens (only within ``passes.computing``), or padded or packed rows.
        loss_mask: bool [N, T], True for each response token of `tokens`, in their order. [N, T] are
            the caller's and need not be the rows of `tokens`.
        passes: their precision.
        loss: of logp [N, T], see `klearlib.policy.logprobs.state_logprobs`.
    """
    num_words = model.get_output_embeddings().weight.shape[0]
    with autocast(model.device, passes.precision):
        if isinstance(tokens, TokenLine):
            states, targets = line_states(model, tokens), tokens.targets
        else:
            states = row_states(
                model, tokens.input_ids, tokens.loss_mask, position_ids=tokens.position_ids
            )
            targets = tokens.input_ids[:, 1:][tokens.loss_mask]
        return masked_logprobs(
            model,
            states,
            targets,
            loss_mask,
            chunk_size=head_chunk_tokens(num_words, device=model.device.type),
            temperature=temperature,
            with_entropy=with_entropy,
            loss=loss,
        )
