"""Several examples in one row of tokens, none of which sees another.

A row of a padded batch is one example and padding. A packed row is several examples one after the
other, each with positions of its own from 0 on. Where a model gets position ids and no attention
mask, transformers takes each restart for the beginning of a sequence: it makes the attention
block-diagonal (eager, sdpa), or hands the lengths to the varlen kernel (flash attention, which
wants a single row for this). `require_separate` measures that a model really does so.

Eager and sdpa attention pay for the square of a row's length, masked or not: for a small model on
long rows, padded micro-batches of like lengths can be faster (benchmarks/sft_packing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from klearlib.errors import KlearError
from klearlib.policy.load import autocast
from klearlib.policy.passes import wants_one_row
from klearlib.sft.batches import Example, cut_by_tokens, pad_rows, token_mask

_PROBE_TOKENS = 12
# Of the norm of the states. Measured without a leak: 0, and with experts, whose groups of tokens
# depend on the neighbours, up to 3e-7 in float32 and 2e-3 in bf16. A small untrained model that
# ignores position ids: 3e-3.
_LEAK, _LEAK_BF16 = 1e-4, 1e-2


@dataclass(frozen=True)
class SupervisedBatch:
    """Rows of tokens that go through the model together. Position t of the [R, T] fields belongs to
    the prediction of ``input_ids[:, t + 1]``.

    input_ids long [R, T+1]; loss_mask bool [R, T], True on response tokens. Where a row holds more
    than one example, position_ids long [R, T+1] count from 0 in each of them (0 in the padding),
    and response_tokens float [R, T] is the number of response tokens of the example that the
    predicted token belongs to (1 in the padding); else both are None. num_held counts the tokens
    that are no padding.
    """

    input_ids: torch.Tensor
    loss_mask: torch.Tensor
    num_held: int
    position_ids: torch.Tensor | None = None
    response_tokens: torch.Tensor | None = None

    def to(self, device: torch.device | str) -> SupervisedBatch:
        """The same batch on a device."""
        ids, tokens = self.position_ids, self.response_tokens
        return SupervisedBatch(
            self.input_ids.to(device),
            self.loss_mask.to(device),
            self.num_held,
            None if ids is None else ids.to(device),
            None if tokens is None else tokens.to(device),
        )


def pack(lengths: Sequence[int], *, row_tokens: int) -> list[list[int]]:
    """Indices of the examples of each row, by first fit from the longest down.

    Each index comes once; a row holds at most `row_tokens` tokens; no more than 11/9 of the fewest
    possible rows (and 6/9 of one) are made. Equal lengths go in their order.

    Raises:
        KlearError: an example longer than a row.

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


def padded_batch(examples: Sequence[Example], *, pad_id: int) -> SupervisedBatch:
    """One example a row, padded on the right to the longest."""
    input_ids = pad_rows([example.ids for example in examples], pad_id=pad_id)
    lengths = [len(example.ids) for example in examples]
    mask = token_mask([example.num_prompt for example in examples], lengths, input_ids.shape[1])
    return SupervisedBatch(input_ids, mask, sum(lengths))


def packed_batch(rows: Sequence[Sequence[Example]], *, pad_id: int) -> SupervisedBatch:
    """The examples of each row one after the other, padded on the right to the longest row."""
    if all(len(row) == 1 for row in rows):  # plain causal attention needs no mask and is faster
        return padded_batch([row[0] for row in rows], pad_id=pad_id)
    ids = [[token for example in row for token in example.ids] for row in rows]
    input_ids = pad_rows(ids, pad_id=pad_id)
    position_ids = torch.zeros_like(input_ids)
    loss_mask = torch.zeros(input_ids.shape, dtype=torch.bool)
    response_tokens = torch.ones(input_ids.shape)
    for index, row in enumerate(rows):
        starts = accumulate((len(example.ids) for example in row), initial=0)
        for start, example in zip(starts, row, strict=False):
            stop, first = start + len(example.ids), start + example.num_prompt
            position_ids[index, start:stop] = torch.arange(len(example.ids))
            loss_mask[index, first:stop] = True
            response_tokens[index, start:stop] = stop - first
    return SupervisedBatch(
        input_ids,
        loss_mask[:, 1:],
        sum(map(len, ids)),
        position_ids,
        response_tokens[:, 1:],
    )


def cut_rows(
    lengths: Sequence[int],
    *,
    pack_tokens: int | None,
    micro_batch_tokens: int | None,
    one_row: bool = False,
) -> list[list[list[int]]]:
    """Micro-batches of rows of indices; each index is in exactly one row.

    Args:
        pack_tokens: length of a packed row; None puts each sequence into a row of its own.
        micro_batch_tokens: rows x longest row of a micro-batch stays within it, but for a row that
            alone is longer; None puts all rows into one, in their order.
        one_row: join the rows of a packed micro-batch into one without padding, as the varlen
            kernels want them.

    Raises:
        KlearError: a sequence longer than a packed row.

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


def row_loads(lengths: Sequence[int], *, pack_tokens: int | None) -> list[int]:
    """Tokens of each row that `cut_rows` puts together."""
    rows = cut_rows(lengths, pack_tokens=pack_tokens, micro_batch_tokens=None)[0]
    return [sum(lengths[index] for index in row) for row in rows]


def require_separate(model, *, precision: str) -> None:
    """Check that the second example of a packed row is computed without a look at the first.

    Two rows that differ in the first example alone go through the model; the states of the second
    example must agree. A recurrent layer or an attention that does not look at the position ids
    fails. The check runs as training does, and where that is in bf16 once more in float32, whose
    rounding hides less; the varlen kernels have no float32.

    Raises:
        KlearError: the states differ.
    """
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


@torch.no_grad()
def _sees_neighbour(model) -> bool:
    ids = torch.arange(2 * _PROBE_TOKENS)[None] % model.config.vocab_size
    other = ids.clone()
    other[:, :_PROBE_TOKENS] = (ids[:, :_PROBE_TOKENS] * 7 + 3) % model.config.vocab_size
    positions = torch.arange(_PROBE_TOKENS).repeat(2)[None].to(model.device)
    states = []
    for row in (ids, other):
        output = model.base_model(
            input_ids=row.to(model.device), position_ids=positions, use_cache=False
        )
        states.append(output.last_hidden_state[:, _PROBE_TOKENS:].float())
    leak = _LEAK_BF16 if _is_low(model) else _LEAK
    return not (states[0] - states[1]).norm() <= leak * states[0].norm()


def _is_low(model) -> bool:
    """Whether a forward pass here and now is in bf16 or float16."""
    autocasts = torch.is_autocast_enabled(model.device.type)
    return autocasts or torch.finfo(model.dtype).bits < 32
