"""Rollouts through the model as one line of tokens: no padding, and a prompt once for its group.

Everything in a transformer but the attention works on one token at a time. So all tokens of a
micro-batch stand in one row: each different prompt once, behind it the responses. For the attention
alone, queries, keys and values of each rollout are gathered from the line into a padded row of
prompt and response, where the causal kernel needs no mask; its results go back to the tokens of the
line. The gradient of a prompt's keys and values is by itself the sum over its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface

from klearlib.errors import KlearError
from klearlib.policy.logprobs import last_states

_NAME = "klear_token_line"


class Rollout(Protocol):
    """A prompt of `num_prompt` tokens and its response."""

    ids: Sequence[int]
    num_prompt: int


@dataclass(frozen=True)
class TokenLine:
    """M tokens of N rollouts. The last token of a rollout predicts nothing and is left out.

    input_ids, position_ids: long [1, M]. rows: long [N, S], where in the line the tokens of each
    rollout stand, 0 in the padding on the right. places: long [M], where in the flattened `rows`
    each token stands (its first place). before: long [K], where in the line the token before each
    response token stands; targets: long [K], the response tokens, rollout after rollout.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor
    before: torch.Tensor
    targets: torch.Tensor


def token_line(rollouts: Sequence[Rollout], *, device: torch.device | str) -> TokenLine:
    """The line of these rollouts, prompts that are equal once.

    >>> from types import SimpleNamespace as Made
    >>> made = [Made(ids=(5, 6, 7), num_prompt=2), Made(ids=(5, 6, 8, 9), num_prompt=2)]
    >>> line = token_line(made, device="cpu")
    >>> line.input_ids.tolist(), line.rows.tolist(), line.before.tolist(), line.targets.tolist()
    ([[5, 6, 8]], [[0, 1, 0], [0, 1, 2]], [1, 1, 2], [7, 8, 9])
    """
    width = max(len(rollout.ids) for rollout in rollouts) - 1
    starts: dict[tuple[int, ...], int] = {}
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    before: list[int] = []
    targets: list[int] = []
    rows = torch.zeros((len(rollouts), width), dtype=torch.long)
    for number, rollout in enumerate(rollouts):
        split, end = rollout.num_prompt, len(rollout.ids) - 1
        prompt = tuple(rollout.ids[:split])
        if prompt not in starts:
            starts[prompt] = len(ids)
            ids += prompt
            positions += range(split)
            places += range(number * width, number * width + split)
        start, first = starts[prompt], len(ids)
        ids += rollout.ids[split:end]
        positions += range(split, end)
        places += range(number * width + split, number * width + end)
        rows[number, :split] = torch.arange(start, start + split)
        rows[number, split:end] = torch.arange(first, len(ids))
        before += [start + split - 1, *range(first, len(ids))]
        targets += rollout.ids[split:]
    return TokenLine(
        *(torch.tensor(x).to(device)[None] for x in (ids, positions)),
        rows.to(device),
        *(torch.tensor(x).to(device) for x in (places, before, targets)),
    )


def line_states(model, line: TokenLine) -> torch.Tensor:
    """The last hidden states [K, width] that predict the response tokens, inside `in_one_line`."""
    states = last_states(
        model,
        input_ids=line.input_ids,
        position_ids=line.position_ids,
        line_rows=line.rows,
        line_places=line.places,
    )
    return states[0].index_select(0, line.before)


@contextmanager
def in_one_line(model) -> Iterator[None]:
    """The model reads token lines, in forward and backward passes."""
    usual = model.config._attn_implementation
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = usual


class OtherAttention(KlearError):
    """The model's attention is more than a causal softmax."""


def _attend(
    module, query, key, value, attention_mask, *, scaling=None, dropout=0.0, **arguments
) -> tuple[torch.Tensor, None]:
    """Causal attention within each rollout for query, key and value [1, heads, M, head_dim]."""
    rows, places = arguments.get("line_rows"), arguments.get("line_places")
    terms = ("sliding_window", "softcap", "s_aux", "position_bias")
    if rows is None or any(arguments.get(name) is not None for name in terms):
        raise OtherAttention(f"{type(module).__name__} does not read token lines")
    # The CPU's kernel for bf16 takes 13 times as long in its backward pass as that for float32.
    device, dtype = value.device.type, value.dtype
    kernel = torch.float32 if (device, dtype) == ("cpu", torch.bfloat16) else dtype
    with torch.autocast(device, enabled=False):
        mixed = F.scaled_dot_product_attention(
            *(_rows_of(x.to(kernel), rows) for x in (query, key, value)),
            dropout_p=dropout,
            is_causal=True,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    heads, size = query.shape[1], mixed.shape[-1]
    flat = mixed.transpose(1, 2).reshape(-1, heads * size)
    return flat.index_select(0, places).view(1, -1, heads, size).to(dtype), None


def _rows_of(line: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """[1, heads, M, head_dim] gathered to [N, heads, S, head_dim]."""
    _, heads, tokens, size = line.shape
    flat = line[0].transpose(0, 1).reshape(tokens, heads * size)
    return flat.index_select(0, rows.flatten()).view(*rows.shape, heads, size).transpose(1, 2)


AttentionInterface.register(_NAME, _attend)
# The gathered rows need no mask.
AttentionMaskInterface.register(_NAME, lambda *_, **__: None)
