"""Token batches: rows of a mini-batch, cut into micro-batches under a token budget."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from klearlib.policy.passes import Passes
from klearlib.policy.token_line import TokenLine, token_line
from klearlib.records import TokenBatch
from klearlib.rl.rollouts import Row
from klearlib.sft.batches import pad_rows, token_mask
from klearlib.sft.packing import SupervisedBatch, cut_rows, packed_batch


def token_batch(rows: Sequence[Row], *, pad_id: int, device: torch.device | str) -> TokenBatch:
    """Rows as right-padded tensors; see `klearlib.records.TokenBatch` for shapes."""
    input_ids = pad_rows([row.ids for row in rows], pad_id=pad_id)
    lengths = [len(row.ids) for row in rows]
    loss_mask = token_mask([row.num_prompt for row in rows], lengths, input_ids.shape[1])
    logp_old = torch.zeros(loss_mask.shape)
    logp_old[loss_mask] = torch.tensor([value for row in rows for value in row.logp_old])
    correction = None
    if any(row.correction is not None for row in rows):
        factors = [row.correction or (1.0,) * len(row.logp_old) for row in rows]
        correction = torch.ones(loss_mask.shape)
        correction[loss_mask] = torch.tensor([value for row in factors for value in row])
        correction = correction.to(device)
    return TokenBatch(
        input_ids=input_ids.to(device),
        loss_mask=loss_mask.to(device),
        logp_old=logp_old.to(device),
        advantages=torch.tensor([row.advantage for row in rows], dtype=torch.float32).to(device),
        is_correct=torch.tensor([row.is_correct for row in rows]).to(device),
        correction=correction,
    )


def micro_batches(rows: Sequence[Row], *, passes: Passes) -> list[list[list[Row]]]:
    """The micro-batches, each a list of rows of tokens, each of one rollout or, packed, of several.

    See `klearlib.sft.packing.cut_rows`: a row longer than the budget makes a micro-batch of its
    own, nothing is dropped.
    """
    parts = cut_rows(
        [len(row.ids) for row in rows],
        pack_tokens=passes.pack_tokens,
        micro_batch_tokens=passes.micro_batch_tokens,
        one_row=passes.one_row,
    )
    return [[[rows[index] for index in line] for line in part] for part in parts]


def lay_out(
    part: Sequence[Sequence[Row]], *, passes: Passes, pad_id: int, device: torch.device | str
) -> tuple[TokenLine | SupervisedBatch, TokenBatch]:
    """A micro-batch as the model reads it, and its rollouts, in the same order, for the loss."""
    rows = [row for line in part for row in line]
    batch = token_batch(rows, pad_id=pad_id, device=device)
    if passes.one_line:
        return token_line(rows, device=device), batch
    return packed_batch(part, pad_id=pad_id).to(device), batch


def num_loss_tokens(rows: Sequence[Row]) -> int:
    return sum(len(row.logp_old) for row in rows)


def num_positive_tokens(rows: Sequence[Row]) -> int:
    return sum(len(row.logp_old) for row in rows if row.is_correct)
