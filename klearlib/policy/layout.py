"""How sequences of prompt and response are cut into micro-batches, and laid out for a model.

`Decoder` reads a line: all tokens of a micro-batch in one row, each different prompt once, behind
it its responses, and no padding. Other models read rows that are padded on the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


class Tokens(Protocol):
    """Token ids of a prompt and its response, a sequence or a tensor [T]; those from `num_prompt`
    >= 1 on are the response."""

    ids: Sequence[int] | torch.Tensor
    num_prompt: int


def cut_by_tokens(lengths: Sequence[int], *, max_tokens: int) -> list[list[int]]:
    """Rows by rising length, cut so that rows x longest row of a part stays within `max_tokens`.

    A row longer than the budget makes a part of its own: nothing is dropped.

    >>> cut_by_tokens([5, 2, 9, 3], max_tokens=8)
    [[1, 3], [0], [2]]
    """
    parts: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if parts and (len(parts[-1]) + 1) * lengths[index] <= max_tokens:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts


@dataclass(frozen=True)
class TokenLine:
    """M tokens of N sequences. The last token of a sequence predicts nothing and is left out.

    ids, positions: long [M]. rows: long [N, T], the place in the line of each token of a sequence,
    0 in the padding. places: long [M], the place in the flattened rows where each token of the line
    first stands. before: long [K], the places in the line that predict the K response tokens.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor
    before: torch.Tensor


def token_line(sequences: Sequence[Tokens], *, device: torch.device | str) -> TokenLine:
    """The line of these sequences, prompts that are equal once.

    >>> from types import SimpleNamespace as Made
    >>> made = [Made(ids=(5, 6, 7), num_prompt=2), Made(ids=(5, 6, 8, 9), num_prompt=2)]
    >>> line = token_line(made, device="cpu")
    >>> line.ids.tolist(), line.rows.tolist(), line.before.tolist()
    ([5, 6, 8], [[0, 1, 0], [0, 1, 2]], [1, 1, 2])
    """
    width = max(len(each.ids) for each in sequences) - 1
    rows = torch.zeros((len(sequences), width), dtype=torch.long)
    starts: dict[bytes, int] = {}  # of a prompt's tokens -> where they start in the line
    ids, positions, places, before, length = [], [], [], [], 0
    for number, each in enumerate(sequences):
        tokens = torch.as_tensor(each.ids, dtype=torch.long)
        split, end = each.num_prompt, len(tokens) - 1
        prompt = tokens[:split].numpy().tobytes()
        begin = split if prompt in starts else 0  # what of the sequence is new to the line
        start = starts.setdefault(prompt, length)
        span = torch.arange(begin, end)
        ids.append(tokens[begin:end])
        positions.append(span)
        places.append(number * width + span)
        rows[number, :split] = torch.arange(start, start + split)
        rows[number, begin:end] = torch.arange(length, length + end - begin)
        before.append(rows[number, split - 1 : end])
        length += end - begin
    ids, positions, places, before = map(torch.cat, (ids, positions, places, before))
    return TokenLine(*(each.to(device) for each in (ids, positions, rows, places, before)))


def padded_rows(
    sequences: Sequence[Tokens], *, pad_id: int, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """ids, long [N, T], and before, bool [N, T], True on the token before each response token."""
    width = max(len(each.ids) for each in sequences)
    ids = torch.full((len(sequences), width), pad_id)  # [N, T]
    before = torch.zeros_like(ids, dtype=torch.bool)
    for row, each in enumerate(sequences):
        length = len(each.ids)
        ids[row, :length] = torch.as_tensor(each.ids, dtype=torch.long)
        before[row, each.num_prompt - 1 : length - 1] = True
    return ids.to(device), before.to(device)
