"""The trainer's forward and backward pass over a micro-batch: the decoder, or transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch

from klearlib.errors import KlearError
from klearlib.policy.decoder import Decoder, can_decode
from klearlib.policy.head import head_logprobs
from klearlib.policy.layout import Tokens, token_line, token_rows
from klearlib.policy.load import autocast
from klearlib.policy.memory import head_chunk_tokens

_PROBE_TOKENS = 12
# Of the norm of the states. Measured without a leak: 0, and with experts, whose groups of tokens
# depend on the neighbours, up to 3e-7 in float32 and 2e-3 in bf16. A small untrained model that
# ignores position ids: 3e-3.
_LEAK, _LEAK_BF16 = 1e-4, 1e-2


class Reader(Protocol):
    """A model at the weights that it has now."""

    def states(self, part: Sequence[Sequence[Tokens]]) -> torch.Tensor:
        """What the model makes of a micro-batch, rows of sequences: [K, ...] with a graph, for the
        token before each response token, sequence after sequence."""

    def logprobs(
        self, states: torch.Tensor, targets: torch.Tensor, *, temperature: float, with_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """logp [C] of the targets, float32 with a graph, and entropy [C] or None."""


class DecoderReader:
    """By `klearlib.policy.decoder`; states are the last hidden ones [K, d]."""

    def __init__(self, model, *, precision: str, recompute: bool):
        self._head = model.lm_head
        self._decoder = Decoder(model, precision=precision, recompute=recompute)

    def states(self, part: Sequence[Sequence[Tokens]]) -> torch.Tensor:
        sequences = [each for row in part for each in row]
        return self._decoder.line_states(token_line(sequences, device=self._head.weight.device))

    def logprobs(self, states, targets, *, temperature, with_entropy):
        logp, entropy = head_logprobs(
            states,
            self._head.weight,
            self._head.bias,
            targets,
            temperature=temperature,
            with_entropy=with_entropy,
            dtype=self._decoder.dtype,
        )
        return logp.float(), None if entropy is None else entropy.float()


class TransformersReader:
    """By the model's own forward pass, whatever it is; states are its logits [K, V]."""

    def __init__(self, model, *, precision: str, pad_id: int):
        self._model, self._precision, self._pad_id = model, precision, pad_id

    def states(self, part: Sequence[Sequence[Tokens]]) -> torch.Tensor:
        rows = token_rows(part, pad_id=self._pad_id, device=self._model.device)
        positions = {} if rows.positions is None else {"position_ids": rows.positions}
        with autocast(self._model.device, self._precision):
            # With a cache transformers would not look for several sequences in the position ids.
            return self._model(input_ids=rows.ids, use_cache=False, **positions).logits[rows.before]

    def logprobs(self, states, targets, *, temperature, with_entropy):
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        logp = torch.log_softmax(wide / temperature, dim=-1)
        entropy = -(logp.exp() * logp).sum(-1).detach().float() if with_entropy else None
        return logp.gather(1, targets[:, None]).squeeze(1).float(), entropy


def reader_of(model, *, precision: str, recompute: bool = False, pad_id: int) -> Reader:
    """How `model` is read: by the decoder where that computes the same."""
    if can_decode(model):
        return DecoderReader(model, precision=precision, recompute=recompute)
    return TransformersReader(model, precision=precision, pad_id=pad_id)


def in_chunks(
    reader: Reader,
    part: Sequence[Sequence[Tokens]],
    *,
    num_words: int,
    temperature: float = 1.0,
    with_entropy: bool = True,
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor | None]]:
    """The K response tokens of a micro-batch, some at a time: (which of them, logp, entropy).

    Where gradients are on, the caller makes a loss of each `logp` and calls its ``backward`` before
    it takes the next: so no more logits are held than those of a chunk, and none is computed twice.
    After the last the gradient goes on through the model.

    Args:
        part: rows of sequences. num_words: V, by which the chunks are cut.
        temperature: of the distribution; the logits are divided by it, as at sampling.
        with_entropy: False gives None for it, and saves time.
    """
    states = reader.states(part)
    ids = [token for row in part for each in row for token in each.ids[each.num_prompt :]]
    targets = torch.tensor(ids, device=states.device)
    size = head_chunk_tokens(num_words, device=states.device.type)
    leaves = []
    for start in range(0, len(states), size):
        chunk = slice(start, start + size)
        leaf = states[chunk].detach()
        leaves.append(leaf.requires_grad_(states.requires_grad))
        yield (
            chunk,
            *reader.logprobs(
                leaf, targets[chunk], temperature=temperature, with_entropy=with_entropy
            ),
        )
    if states.requires_grad:
        states.backward(torch.cat([leaf.grad for leaf in leaves]))


def require_separate(model, *, precision: str) -> None:
    """Check that the second sequence of a packed row is computed without a look at the first.

    Two rows that differ in the first sequence alone go through the model; the logits of the second
    must agree. A recurrent layer or an attention that does not look at the position ids fails. The
    check runs as training does, and where that is in bf16 once more in float32, whose rounding
    hides less; the varlen kernels have no float32.

    Raises:
        KlearError: they differ.
    """
    if can_decode(model):
        return
    was_training = model.training
    model.eval()  # dropout would differ between the two
    with autocast(model.device, precision):
        is_low = _is_low(model)
        sees = _sees_neighbour(model)
    if is_low and not wants_one_row(model):
        sees = sees or _sees_neighbour(model)
    model.train(was_training)
    if sees:
        raise KlearError(
            f"{type(model).__name__} with {model.config._attn_implementation} attention sees other "
            "examples of a packed row: train it with pack_tokens None"
        )


def wants_one_row(model) -> bool:
    """Whether the model's attention is a varlen kernel, which takes packed sequences in one row."""
    return "flash" in (model.config._attn_implementation or "")


@torch.no_grad()
def _sees_neighbour(model) -> bool:
    ids = torch.arange(2 * _PROBE_TOKENS)[None] % model.config.vocab_size
    other = ids.clone()
    other[:, :_PROBE_TOKENS] = (ids[:, :_PROBE_TOKENS] * 7 + 3) % model.config.vocab_size
    positions = torch.arange(_PROBE_TOKENS).repeat(2)[None].to(model.device)
    found = [
        model(input_ids=row.to(model.device), position_ids=positions, use_cache=False)
        .logits[:, _PROBE_TOKENS:]
        .float()
        for row in (ids, other)
    ]
    leak = _LEAK_BF16 if _is_low(model) else _LEAK
    return not (found[0] - found[1]).norm() <= leak * found[0].norm()


def _is_low(model) -> bool:
    """Whether a forward pass here and now is in bf16 or float16."""
    autocasts = torch.is_autocast_enabled(model.device.type)
    return autocasts or torch.finfo(model.dtype).bits < 32
