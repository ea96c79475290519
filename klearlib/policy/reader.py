"""The trainer's forward and backward pass over a micro-batch: the decoder, or transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from klearlib.errors import KlearError
from klearlib.policy.decoder import Decoder, can_decode, is_plain
from klearlib.policy.head import head_logprobs
from klearlib.policy.layout import Tokens, token_line, token_rows
from klearlib.policy.load import autocast
from klearlib.policy.memory import head_chunk_tokens

_PROBE_TOKENS = 12
# Two rows that differ behind their first tokens.
_IDS, _OTHERS, _NUM_EQUAL = (3, 1, 2, 4, 0, 5, 1, 6), (3, 1, 2, 4, 0, 2, 6, 3), 5
# Of the norm, between two ways to compute the same. Measured: below 1e-6 in float32, 4e-3 in bf16.
_APART, _APART_BF16 = 1e-5, 2e-2
# Of the norm of the states. Measured without a leak: 0, and with experts, whose groups of tokens
# depend on the neighbours, up to 3e-7 in float32 and 2e-3 in bf16. A small untrained model that
# ignores position ids: 3e-3.
_LEAK, _LEAK_BF16 = 1e-4, 1e-2


@dataclass(frozen=True)
class Reader:
    """A model at the weights that it has now.

    states: what the model makes of a micro-batch, rows of sequences, for the token before each
    response token: the last hidden states [K, d] with a graph, or, without a `head`, the logits [K,
    V]. dtype: of the head's product. num_words: V, which `in_chunks` cuts by.
    """

    states: Callable[[Sequence[Sequence[Tokens]]], torch.Tensor]
    head: nn.Linear | None
    dtype: torch.dtype
    num_words: int

    def logprobs(
        self, states: torch.Tensor, targets: torch.Tensor, *, temperature: float, with_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """logp [C] of the targets, float32 with a graph, and entropy [C] or None."""
        if self.head is None:
            states = states.to(torch.promote_types(states.dtype, torch.float32))
            spread = torch.log_softmax(states / temperature, dim=-1)
            logp = spread.gather(1, targets[:, None]).squeeze(1)
            entropy = -(spread.exp() * spread).sum(-1).detach() if with_entropy else None
        else:
            logp, entropy = head_logprobs(
                states,
                self.head.weight,
                self.head.bias,
                targets,
                temperature=temperature,
                with_entropy=with_entropy,
                dtype=self.dtype,
            )
        return logp.float(), None if entropy is None else entropy.float()


@contextmanager
def reading(
    model, *, precision: str, recompute: bool = False, plain_head: bool = False, pad_id: int
) -> Iterator[Reader]:
    """`model` as it is read within the context: by the decoder where that computes the same, else
    by its own forward pass.

    plain_head: see `has_plain_head`. Where it is False, all logits of a micro-batch are held.
    """
    num_words = model.get_output_embeddings().weight.shape[0]
    if can_decode(model):
        decoder = Decoder(model, precision=precision, recompute=recompute)

        def states(part: Sequence[Sequence[Tokens]]) -> torch.Tensor:
            sequences = [each for row in part for each in row]
            return decoder.line_states(token_line(sequences, device=model.device))

        yield Reader(states, model.lm_head, decoder.dtype, num_words)
        return

    def states(part: Sequence[Sequence[Tokens]]) -> torch.Tensor:
        rows = token_rows(part, pad_id=pad_id, device=model.device)
        # With a cache transformers would not look for several sequences in the position ids.
        how = {"input_ids": rows.ids, "use_cache": False}
        if rows.positions is not None:
            how["position_ids"] = rows.positions
        with autocast(model.device, precision):
            found = _last_states(model, **how) if plain_head else model(**how).logits
        return found[rows.before]

    low = precision == "bf16" and model.dtype == torch.float32
    with _checkpointing(model) if recompute else nullcontext():
        yield Reader(
            states,
            model.get_output_embeddings() if plain_head else None,
            torch.bfloat16 if low else model.dtype,
            num_words,
        )


@contextmanager
def _checkpointing(model) -> Iterator[None]:
    """The gradient checkpointing of transformers also where the model does not train its dropout:
    transformers asks a layer whether it trains before it computes it. While it is computed it does
    not."""
    layers = [x for x in model.modules() if isinstance(x, GradientCheckpointingLayer)]
    resting, hooks = [layer for layer in layers if not layer.training], []
    for layer in resting:
        layer.training = True
        hooks.append(layer.register_forward_pre_hook(lambda layer, _: _set(layer, False)))
        hooks.append(
            layer.register_forward_hook(lambda layer, *_: _set(layer, True), always_call=True)
        )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in resting:
            layer.training = False


def _set(layer, training: bool) -> None:
    layer.training = training


def in_chunks(
    reader: Reader,
    part: Sequence[Sequence[Tokens]],
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor | None]]:
    """The K response tokens of a micro-batch, some at a time: (which of them, logp, entropy).

    Where gradients are on, the caller makes a loss of each `logp` and calls its ``backward`` before
    it takes the next: so no more logits are held than those of a chunk, and none is computed twice.
    After the last the gradient goes on through the model.

    part: rows of sequences. temperature: the logits are divided by it, as at sampling.
    with_entropy: False gives None for it, and saves time.
    """
    states = reader.states(part)
    ids = [token for row in part for each in row for token in each.ids[each.num_prompt :]]
    targets = torch.tensor(ids, device=states.device)
    size = head_chunk_tokens(reader.num_words, device=states.device.type)
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


@torch.no_grad()
def has_plain_head(model, *, precision: str) -> bool:
    """Whether the logits are those of a linear map, its output embeddings, of the last hidden
    states, and not scaled, capped or transformed after it; a few tokens are tried. KlearError where
    the logits of a token depend on those after it."""
    if can_decode(model):
        return True
    with _as_in_training(model, precision):
        whole, other = (
            model(input_ids=_probe_ids(model, ids), use_cache=False).logits[0, :_NUM_EQUAL].float()
            for ids in (_IDS, _OTHERS)
        )
        apart = _APART_BF16 if _is_low(model) else _APART
        if not (other - whole).norm() <= apart * whole.norm():
            raise KlearError(
                f"{type(model).__name__} is no causal model: a token's logits change with the "
                "tokens behind it: not supported"
            )
        head = model.get_output_embeddings()
        if type(head) is not nn.Linear or not is_plain(head):
            return False
        states = _last_states(model, input_ids=_probe_ids(model, _IDS), use_cache=False)
        if states is None or states.shape[-1] != head.weight.shape[1]:
            return False
        found = head(states[0, :_NUM_EQUAL]).float()
    return found.shape == whole.shape and bool((found - whole).norm() <= apart * whole.norm())


def require_separate(model, *, precision: str) -> None:
    """KlearError unless the second sequence of a packed row is computed without a look at the
    first.

    Two rows that differ in the first sequence alone go through the model; the logits of the second
    must agree. A recurrent layer or an attention that does not look at the position ids fails. The
    check runs as training does, and where that is in bf16 once more in float32, whose rounding
    hides less; the varlen kernels have no float32.
    """
    if can_decode(model):
        return
    with _as_in_training(model, precision):
        is_low = _is_low(model)
        sees = _sees_neighbour(model)
    if is_low and not wants_one_row(model):
        with _as_in_training(model, "fp32"):
            sees = sees or _sees_neighbour(model)
    if sees:
        raise KlearError(
            f"{type(model).__name__} with {model.config._attn_implementation} attention sees other "
            "examples of a packed row: train it with pack_tokens None"
        )


def wants_one_row(model) -> bool:
    """Whether the model's attention is a varlen kernel, which takes packed sequences in one row."""
    return "flash" in (model.config._attn_implementation or "")


@contextmanager
def _as_in_training(model, precision: str) -> Iterator[None]:
    """Around forward passes that are compared: without dropout, which would differ."""
    was_training = model.training
    model.eval()
    try:
        with autocast(model.device, precision):
            yield
    finally:
        model.train(was_training)


def _last_states(model, **inputs) -> torch.Tensor | None:
    """The last hidden states [N, T, d] of the model under the head, where it gives them."""
    return getattr(model.base_model(**inputs), "last_hidden_state", None)


def _probe_ids(model, ids: tuple[int, ...]) -> torch.Tensor:
    """[1, T] on the model's device, within its words."""
    return torch.tensor([ids], device=model.device) % model.get_input_embeddings().weight.shape[0]


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
