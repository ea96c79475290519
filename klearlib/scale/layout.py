"""The mini-batches of a step as verl deals them out: in one batch, equal parts for all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from klearlib.rl.mismatch import Mismatch, corrected, observe
from klearlib.rl.rollouts import Row, num_positive_tokens


@dataclass(frozen=True)
class Layout:
    """The rows of one step's mini-batches in the order in which verl takes them.

    verl gives each rank an equal run of rows and cuts each run into mini-batches of equal size. So
    every mini-batch is filled up, with None, to the same multiple of the ranks; rows that fill up
    have no token of the loss. parts: the index of each row's mini-batch. mini_batch_rows: rows of
    one mini-batch over all ranks.
    """

    rows: tuple[Row | None, ...]
    parts: tuple[int, ...]
    mini_batch_rows: int


def lay_out(mini_batches: Sequence[Sequence[Row]], *, num_ranks: int) -> Layout:
    """The layout of mini-batches of any sizes for `num_ranks` data-parallel ranks.

    In each mini-batch the longest rows are dealt out first, back and forth, so that the ranks get
    about as many tokens.

    >>> row = Row(ids=(1, 2), num_prompt=1, logp_old=(0.0,), advantage=1.0, is_correct=True)
    >>> layout = lay_out([[row, row, row], [row]], num_ranks=2)
    >>> layout.mini_batch_rows, layout.rows.count(None), layout.parts
    (4, 4, (0, 0, 1, 1, 0, 0, 1, 1))
    """
    share = -(-max(map(len, mini_batches)) // num_ranks)  # rows of a mini-batch on one rank
    dealt: list[list[tuple[int, Row | None]]] = [[] for _ in range(num_ranks)]
    for part, rows in enumerate(mini_batches):
        longest_first = sorted(rows, key=lambda row: -len(row.ids))
        filled = [*longest_first, *[None] * (share * num_ranks - len(rows))]
        for place in range(share):
            turn = filled[place * num_ranks : (place + 1) * num_ranks]
            for rank, row in enumerate(turn if place % 2 == 0 else reversed(turn)):
                dealt[rank].append((part, row))
    flat = [each for run in dealt for each in run]
    return Layout(tuple(row for _, row in flat), tuple(part for part, _ in flat), share * num_ranks)


def with_trainer_logprobs(
    layout: Layout,
    parts: Sequence[Sequence[Row]],
    logprobs: Sequence[Sequence[float]],
    *,
    cap: float | None,
    mismatch: Mismatch,
) -> list[list[Row]]:
    """The mini-batches `parts` of `layout` with `logp_old` by the trainer, and with the sampler's
    correction where there is a `cap` (docs/deviations.md, D14 and D15). logprobs: of each row of
    the layout. mismatch: counts that between sampler and trainer."""
    found = {
        row.place: tuple(logp)
        for row, logp in zip(layout.rows, logprobs, strict=True)
        if row is not None
    }
    renewed = [[replace(row, logp_old=found[row.place]) for row in rows] for rows in parts]
    for rows, before in zip(renewed, parts, strict=True):
        observe(mismatch, rows, before)
    if cap is None:
        return renewed
    return [
        corrected(rows, before, cap=cap, mismatch=mismatch)
        for rows, before in zip(renewed, parts, strict=True)
    ]


def row_fields(
    layout: Layout, mini_batches: Sequence[Sequence[Row]], *, count_mismatch: bool
) -> dict[str, torch.Tensor]:
    """What the loss needs of each row, beside its tokens and mask.

    count_mismatch: ``logp_old`` is the sampler's, so that the first mini-batch shows the mismatch
    between sampler and trainer.

    Returns:
        Jagged [N, response tokens], of one token where a row fills up: ``old_log_probs``,
        ``advantages`` and, where rows have corrections, ``rollout_is_weights``. [N]:
        ``is_correct``, ``num_rollouts`` and ``num_positive_tokens`` of the row's mini-batch,
        ``first_of_step``.
    """
    rows, parts = layout.rows, layout.parts
    fields = {
        "old_log_probs": _jagged([(0.0,) if row is None else row.logp_old for row in rows]),
        "advantages": _jagged(
            [(0.0,) if row is None else (row.advantage,) * len(row.logp_old) for row in rows]
        ),
    }
    if any(row is not None and row.correction is not None for row in rows):
        fields["rollout_is_weights"] = _jagged(
            [
                (1.0,) if row is None else row.correction or (1.0,) * len(row.logp_old)
                for row in rows
            ]
        )
    rollouts = [len(each) for each in mini_batches]
    positives = [num_positive_tokens(each) for each in mini_batches]
    return fields | {
        "is_correct": torch.tensor([row is not None and row.is_correct for row in rows]),
        "num_rollouts": torch.tensor([rollouts[part] for part in parts]),
        "num_positive_tokens": torch.tensor([positives[part] for part in parts]),
        "first_of_step": torch.tensor([count_mismatch and part == 0 for part in parts]),
    }


def update_words(layout: Layout, *, temperature: float) -> dict:
    """What verl's worker is told beside the rows: one pass over the mini-batches, in their order,
    with the entropy that the metrics need."""
    return {
        "calculate_entropy": True,
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": layout.mini_batch_rows,
        "mini_batch_size": layout.mini_batch_rows,
        "epochs": 1,
        "seed": 0,
        "dataloader_kwargs": {"shuffle": False},
        "temperature": temperature,
    }


def _jagged(values: Sequence[Sequence[float]]) -> torch.Tensor:
    tensors = [torch.tensor(each, dtype=torch.float32) for each in values]
    return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)
