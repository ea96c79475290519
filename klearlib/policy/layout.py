"""How sequences of prompt and response are cut into micro-batches, and laid out for a model.

`Decoder` reads a line: all tokens of a micro-batch in one row, each different prompt once, behind
it its responses, and no padding. transformers reads rows: padded on the right, one sequence a row
or several of them packed, told apart by position ids that start again at 0, from which it builds a
block-diagonal mask (eager, sdpa) or hands the lengths to the varlen kernel (flash attention, which
wants a single row for this).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch

from klearlib.errors import KlearError


class Tokens(Protocol):
    """Token ids of a prompt and its response; those from `num_prompt` >= 1 on are the response."""

    ids: Sequence[int]
    num_prompt: int


def pack(lengths: Sequence[int], *, row_tokens: int) -> list[list[int]]:
    """Indices of the sequences of each row, by first fit from the longest down.

    Each index comes once; a row holds at most `row_tokens` tokens, and a longer sequence is a
    KlearError; at most 11/9 of the fewest possible rows (and 6/9 of one) are made. Equal lengths go
    in their order.

    >>> pack([3, 7, 5, 2], row_tokens=10)
    [[1, 0], [2, 3]]
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        if length > row_tokens:
            raise KlearError(
                f"an example has {length} tokens, a packed row {row_tokens}: raise pack_tokens, or "
                "set drop_longer"
            )
        row = next((row for row, left in enumerate(free) if left >= length), None)
        if row is None:
            rows.append([])
            free.append(row_tokens)
            row = -1
        rows[row].append(index)
        free[row] -= length
    return rows


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


def cut_rows(
    lengths: Sequence[int],
    *,
    pack_tokens: int | None,
    micro_batch_tokens: int | None,
    one_row: bool = False,
) -> list[list[list[int]]]:
    """Micro-batches of rows of indices; each index is in exactly one row.

    Args:
        pack_tokens: length of a packed row, see `pack`; None puts each sequence into a row of its
            own.
        micro_batch_tokens: see `cut_by_tokens`; None puts all rows into one, in their order.
        one_row: join the rows of a packed micro-batch into one, as the varlen kernels want them.

    >>> cut_rows([5, 2, 9, 3], pack_tokens=10, micro_batch_tokens=10)
    [[[2]], [[0, 3, 1]]]
    """
    rows = [[index] for index in range(len(lengths))]
    if pack_tokens is not None:
        rows = pack(lengths, row_tokens=pack_tokens)
    parts = [list(range(len(rows)))]
    if micro_batch_tokens is not None:
        loads = [sum(lengths[index] for index in row) for row in rows]
        parts = cut_by_tokens(loads, max_tokens=micro_batch_tokens)
    cut = [[rows[row] for row in part] for part in parts]
    if one_row and pack_tokens is not None:
        cut = [[[index for row in part for index in row]] for part in cut]
    return cut


@dataclass(frozen=True)
class TokenLine:
    """M tokens of N sequences. The last token of a sequence predicts nothing and is left out.

    ids, positions: long [M]. rows: long [N, T], where in the line the tokens of each sequence
    stand, 0 in the padding on the right. places: long [M], where in the flattened `rows` each token
    stands (its first place). before: long [K], where the token before each response token stands.
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
    starts: dict[tuple[int, ...], int] = {}
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    before: list[int] = []
    rows = torch.zeros((len(sequences), width), dtype=torch.long)
    for number, each in enumerate(sequences):
        split, end = each.num_prompt, len(each.ids) - 1
        prompt = tuple(each.ids[:split])
        if prompt not in starts:
            starts[prompt] = len(ids)
            ids += prompt
            positions += range(split)
            places += range(number * width, number * width + split)
        start, first = starts[prompt], len(ids)
        ids += each.ids[split:end]
        positions += range(split, end)
        places += range(number * width + split, number * width + end)
        rows[number, :split] = torch.arange(start, start + split)
        rows[number, split:end] = torch.arange(first, len(ids))
        before += [start + split - 1, *range(first, len(ids))]
    made = (torch.tensor(ids), torch.tensor(positions), rows)
    made += (torch.tensor(places), torch.tensor(before))
    return TokenLine(*(each.to(device) for each in made))


@dataclass(frozen=True)
class TokenRows:
    """R rows of tokens, padded on the right.

    ids: long [R, T]. before: bool [R, T], True on the token before each response token; read row by
    row, they stand in the order of the sequences. positions: long [R, T] where a row holds several
    sequences, counting from 0 in each of them (0 in the padding); else None.
    """

    ids: torch.Tensor
    before: torch.Tensor
    positions: torch.Tensor | None


def token_rows(rows: Sequence[Sequence[Tokens]], *, pad_id: int, device) -> TokenRows:
    """The sequences of each row one after the other, padded to the longest row."""
    lengths = [sum(len(each.ids) for each in row) for row in rows]
    ids = torch.full((len(rows), max(lengths)), pad_id)
    before, positions = torch.zeros_like(ids, dtype=torch.bool), torch.zeros_like(ids)
    for index, row in enumerate(rows):
        starts = accumulate((len(each.ids) for each in row), initial=0)
        for start, each in zip(starts, row, strict=False):
            stop = start + len(each.ids)
            ids[index, start:stop] = torch.tensor(each.ids)
            before[index, start + each.num_prompt - 1 : stop - 1] = True
            positions[index, start:stop] = torch.arange(len(each.ids))
    # Plain causal attention needs no mask and is faster.
    packed = any(len(row) > 1 for row in rows)
    return TokenRows(ids.to(device), before.to(device), positions.to(device) if packed else None)
