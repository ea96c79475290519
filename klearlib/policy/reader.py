"""The trainer's forward and backward pass over a micro-batch, by the decoder or transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from klearlib.policy.decoder import Decoder, Tokens, can_decode, token_line
from klearlib.policy.head import head_logprobs, wide_head
from klearlib.policy.load import autocast
from klearlib.policy.memory import head_chunk_tokens


@dataclass(frozen=True)
class Reader:
    """A model at the weights that it has now.

    states: what the model makes of the sequences of a micro-batch for the token before each
    response token, with a graph: the last hidden states [K, d], or, without a `head`, the logits
    [K, V]. dtype: of the head's product. num_words: V, which `in_chunks` cuts by.
    """

    states: Callable[[Sequence[Tokens]], torch.Tensor]
    head: nn.Linear | None
    dtype: torch.dtype
    num_words: int

    def logprobs(
        self, states: torch.Tensor, targets: torch.Tensor, temperature: float, with_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """logp [C] of the targets, float32 with a graph, and entropy [C] or None."""
        if self.head is None:
            states = states.to(torch.promote_types(states.dtype, torch.float32))
            spread = torch.log_softmax(states / temperature, dim=-1)  # [C, V]
            logp = spread.gather(1, targets[:, None]).squeeze(1)
            entropy = -(spread.exp() * spread).sum(-1).detach() if with_entropy else None
        else:
            how = {"temperature": temperature, "with_entropy": with_entropy, "dtype": self.dtype}
            logp, entropy = head_logprobs(states, self.head.weight, targets, **how)
        return logp.float(), None if entropy is None else entropy.float()


def reader_of(model, *, precision: str, recompute: bool = False) -> Reader:
    """`model` as it is read at the weights that it has now: by the decoder where that computes the
    same, else by its own forward pass over padded rows, of which all logits are held.

    recompute: the activations of a layer are computed again in the backward pass.
    """
    num_words = model.get_output_embeddings().weight.shape[0]
    if can_decode(model):
        decoder = Decoder(model, precision=precision, recompute=recompute)

        def states(rows: Sequence[Tokens]) -> torch.Tensor:
            return decoder.line_states(token_line(rows, device=model.device))

        return Reader(states, model.lm_head, decoder.dtype, num_words)

    def logits(rows: Sequence[Tokens]) -> torch.Tensor:
        ids = [torch.as_tensor(each.ids).long() for each in rows]
        ids = pad_sequence(ids, batch_first=True)  # [N, T]
        before = torch.zeros_like(ids, dtype=torch.bool)  # of each response token, the one before
        for row, each in enumerate(rows):
            before[row, each.num_prompt - 1 : len(each.ids) - 1] = True
        # A causal model never looks to the right: padding there needs no mask.
        again = _recomputed(model) if recompute else nullcontext()
        with autocast(model.device, precision), wide_head(model), again:
            output = model(input_ids=ids.to(model.device), use_cache=False)
        return output.logits[before.to(model.device)]

    return Reader(logits, None, model.dtype, num_words)


@contextmanager
def _recomputed(model) -> Iterator[None]:
    """Each layer's forward pass within a checkpoint. transformers has its own, which a model in
    evaluation mode, as that of RL is, passes over."""
    layers = [each for each in model.modules() if isinstance(each, GradientCheckpointingLayer)]
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def in_chunks(
    reader: Reader,
    rows: Sequence[Tokens],
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor | None]]:
    """The K response tokens of a micro-batch, some at a time: (which of them, logp, entropy).

    Where gradients are on, the caller makes a loss of each `logp` and calls its ``backward`` before
    it takes the next: so no more than a chunk's logits have a graph, and none is computed twice.
    After the last the gradient goes on through the model.

    rows: the sequences of the micro-batch. temperature: the logits are divided by it, as at
    sampling. with_entropy: False gives None for it, and saves time.
    """
    states = reader.states(rows)  # [K, d] or [K, V]
    targets = torch.cat(
        [torch.as_tensor(each.ids[each.num_prompt :], dtype=torch.long) for each in rows]
    ).to(states.device)
    size = head_chunk_tokens(reader.num_words, device=states.device.type)
    leaves = []
    for start in range(0, len(states), size):
        chunk = slice(start, start + size)
        leaf = states[chunk].detach()
        leaves.append(leaf.requires_grad_(states.requires_grad))
        yield chunk, *reader.logprobs(leaf, targets[chunk], temperature, with_entropy)
    if states.requires_grad:
        states.backward(torch.cat([leaf.grad for leaf in leaves]))
