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
    every mini-batch is padded, with None, to the same multiple of the ranks; padding rows have no
    token of the loss. parts: the index of each row's mini-batch. mini_batch_rows: rows of one
    mini-batch over all ranks.
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
    logprobs: Sequence[torch.Tensor],
    *,
    cap: float | None,
    mismatch: Mismatch,
) -> list[list[Row]]:
    """The mini-batches `parts` of `layout` with `logp_old` by the trainer, and with the sampler's
    correction where there is a `cap` (docs/deviations.md, D14 and D15). logprobs: [tokens] of each
    row of the layout. mismatch: counts that between sampler and trainer."""
    rows = zip(layout.rows, logprobs, strict=True)
    by_trainer = {row.place: logp for row, logp in rows if row is not None}
    renewed = []
    for sampled in parts:
        rows = [replace(row, logp_old=by_trainer[row.place]) for row in sampled]
        observe(mismatch, rows, sampled)
        if cap is not None:
            rows = corrected(rows, sampled, cap=cap, mismatch=mismatch)
        renewed.append(rows)
    return renewed


def token_fields(layout: Layout, *, end_token: int) -> dict[str, torch.Tensor]:
    """The tokens of each row as verl's workers read them; a padding row has one prompt token and
    one response token, both `end_token`, and no token of the loss.

    Returns:
        Jagged [N, prompt tokens] ``prompts``; [N, response tokens] ``responses``,
        ``response_mask`` and ``loss_mask``; [N, both] ``input_ids`` and ``position_ids``.
    """
    fields = {name: [] for name in ("prompts", "responses", "input_ids", "position_ids")}
    masks = []
    for row in layout.rows:
        ids = torch.as_tensor((end_token, end_token) if row is None else row.ids)
        num_prompt = 1 if row is None else row.num_prompt
        fields["prompts"].append(ids[:num_prompt])
        fields["responses"].append(ids[num_prompt:])
        fields["input_ids"].append(ids)
        fields["position_ids"].append(torch.arange(len(ids)))
        masks.append(torch.full_like(ids[num_prompt:], row is not None))
    fields |= {"response_mask": masks, "loss_mask": masks}
    return {name: _jagged(rows) for name, rows in fields.items()}


def row_fields(
    layout: Layout, mini_batches: Sequence[Sequence[Row]], *, count_mismatch: bool
) -> dict[str, torch.Tensor]:
    """What the loss needs of each row, besides its tokens.

    count_mismatch: ``logp_old`` is the sampler's, so that the first mini-batch shows the mismatch
    between sampler and trainer.

    Returns:
        The first three jagged [N, response tokens], the others [N]; ``num_rollouts``,
        ``num_positive_tokens`` and ``first_of_step`` are of the row's mini-batch.
    """
    logp_old, advantages, corrections = [], [], []  # of each row [its response tokens]
    for row in layout.rows:
        logp = torch.zeros(1) if row is None else torch.as_tensor(row.logp_old).float()
        given = None if row is None else row.correction
        factor = torch.ones_like(logp) if given is None else torch.as_tensor(given).float()
        logp_old.append(logp)
        advantages.append(torch.full_like(logp, 0.0 if row is None else row.advantage))
        corrections.append(factor)
    parts = torch.tensor(layout.parts)  # [N]
    return {
        "old_log_probs": _jagged(logp_old),
        "advantages": _jagged(advantages),
        "rollout_is_weights": _jagged(corrections),
        "is_correct": torch.tensor([row is not None and row.is_correct for row in layout.rows]),
        "num_rollouts": torch.tensor([len(rows) for rows in mini_batches])[parts],
        "num_positive_tokens": torch.tensor(list(map(num_positive_tokens, mini_batches)))[parts],
        "first_of_step": (parts == 0) & count_mismatch,
    }


def _jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def update_words(layout: Layout) -> dict:
    """What verl's worker is told besides the rows: one pass over the mini-batches, in order."""
    return {
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": layout.mini_batch_rows,
        "mini_batch_size": layout.mini_batch_rows,
        "epochs": 1,
        "seed": 0,
        "dataloader_kwargs": {"shuffle": False},
    }
