"""Rollout batches: judged groups -> advantages -> the rows that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from klearlib.records import Group
from klearlib.rl.advantages import group_advantages, mixed_accuracy_groups, nonzero_groups
from klearlib.rl.settings import RLSettings


@dataclass(frozen=True)
class Row:
    """One rollout as the trainer sees it; `logp_old`, `correction` and the loss are on the tokens
    from `num_prompt` on.

    correction: a constant factor of each token's policy gradient, None for 1; see
    `klearlib.rl.mismatch.corrected`. place: the group's index in its batch, and the rollout's in
    its group.
    """

    ids: tuple[int, ...]
    num_prompt: int
    logp_old: tuple[float, ...]
    advantage: float
    is_correct: bool
    correction: tuple[float, ...] | None = None
    place: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class RolloutBatch:
    """The groups of one step with their advantages [P, G], and which groups [P] and rollouts [P, G]
    train."""

    groups: tuple[Group, ...]
    advantages: torch.Tensor
    kept_groups: torch.Tensor
    kept_rollouts: torch.Tensor


def form_batch(groups: Sequence[Group], settings: RLSettings) -> RolloutBatch:
    """Advantages (Eq. 4) and the filters (5.2.5, semantics.md D8, D11). Nothing is refilled."""
    rewards = torch.tensor([group.rewards for group in groups], dtype=torch.float64)
    truncated = torch.tensor([[r.truncated for r in group.responses] for group in groups])
    kept = ~truncated if settings.drop_truncated else torch.ones_like(truncated)
    advantages = group_advantages(
        rewards, std=settings.group_std, epsilon=settings.group_epsilon, keep=kept
    )
    if settings.zero_advantage_filter == "advantage":
        kept_groups = nonzero_groups(advantages)
    elif settings.zero_advantage_filter == "accuracy":
        correct = torch.tensor([[v.correct for v in group.verdicts] for group in groups])
        kept_groups = mixed_accuracy_groups(correct, keep=kept)
    else:
        kept_groups = torch.ones(len(groups), dtype=torch.bool)
    return RolloutBatch(tuple(groups), advantages, kept_groups, kept)


def mini_batches(
    batch: RolloutBatch, *, mini_batch_problems: int, positives: str
) -> list[list[Row]]:
    """The rows of each optimiser mini-batch, in the order in which the problems were drawn.

    The K groups that survive are cut into ceil(K / mini_batch_problems) parts of sizes that differ
    by one group at most: a short last part would weigh its few tokens as much as a full one.
    """
    kept = batch.kept_groups.nonzero().squeeze(1).tolist()
    if not kept:
        return []
    parts = -(-len(kept) // mini_batch_problems)
    bounds = [round(len(kept) * part / parts) for part in range(parts + 1)]
    result = []
    for start, stop in pairwise(bounds):
        rows = [row for index in kept[start:stop] for row in _rows(batch, index, positives)]
        if rows:
            result.append(rows)
    return result


def _rows(batch: RolloutBatch, index: int, positives: str) -> list[Row]:
    group = batch.groups[index]
    return [
        Row(
            ids=response.prompt_ids + response.token_ids,
            num_prompt=len(response.prompt_ids),
            logp_old=response.logp,
            advantage=advantage,
            is_correct=verdict.correct if positives == "verdict" else reward == 1.0,
            place=(index, rollout),
        )
        for rollout, (response, verdict, reward, advantage, keep) in enumerate(
            zip(
                group.responses,
                group.verdicts,
                group.rewards,
                batch.advantages[index].tolist(),
                batch.kept_rollouts[index].tolist(),
                strict=True,
            )
        )
        if keep
    ]
