"""Judged groups -> advantages -> mini-batches of rows -> micro-batches of tokens."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from klearlib.records import Group, TokenBatch
from klearlib.rl.advantages import group_advantages, mixed_accuracy_groups, nonzero_groups
from klearlib.rl.settings import RLSettings
from klearlib.sft.objective import shares

if TYPE_CHECKING:
    from klearlib.policy.batch_plan import BatchPlan


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
    """Advantages (Eq. 4) and the filters (5.2.5; docs/deviations.md, D8, D11). No refill."""
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


def micro_batches(
    rows: Sequence[Row], settings: RLSettings, plan: BatchPlan, *, device
) -> list[tuple[list[Row], TokenBatch]]:
    """The micro-batches of a mini-batch: rows as the model reads them, and their response tokens.

    A token's share in either mean is that in the whole mini-batch, so that the gradient does not
    depend on the cut. ``"micro_batch"`` takes the mean of each micro-batch and the mean of these
    means, as the released code does.
    """
    made = []
    parts = plan.cut(rows)
    for part in parts:
        lengths = torch.tensor([len(row.logp_old) for row in part])
        of_policy = part if settings.loss_denominator == "micro_batch" else rows
        of_lm = part if settings.lm_normalizer == "micro_batch" else rows
        weight = policy_shares(part, of_policy, normalizer=settings.normalizer)
        lm_weight = torch.tensor([float(row.is_correct) for row in part]).repeat_interleave(lengths)
        lm_weight /= max(1, num_positive_tokens(of_lm))
        batch = TokenBatch(
            logp_old=torch.tensor([value for row in part for value in row.logp_old]),
            advantage=torch.tensor([row.advantage for row in part]).repeat_interleave(lengths),
            place=torch.cat([torch.arange(length) for length in lengths]),
            weight=(weight / (len(parts) if of_policy is part else 1)).float(),
            lm_weight=lm_weight / (len(parts) if of_lm is part else 1),
            correction=torch.tensor(
                [x for row in part for x in row.correction or (1.0,) * len(row.logp_old)]
            ),
        )
        tensors = (getattr(batch, each.name).to(device) for each in dataclasses.fields(batch))
        made.append((part, TokenBatch(*tensors)))
    return made


def policy_shares(rows: Sequence[Row], of: Sequence[Row], *, normalizer: str) -> torch.Tensor:
    """The share of each token of `rows`, a part of `of`, in the mean of the policy loss over `of`:
    float64 [tokens of rows].

    normalizer: ``"token"`` and ``"sequence"`` as in `klearlib.sft.objective.shares`; ``"prompt"``
        is Eq. 7 as printed, the mean over the tokens of all responses to a prompt, then the mean
        over prompts (its expectation).
    """
    lengths = torch.tensor([len(row.logp_old) for row in rows])
    if normalizer != "prompt":
        count = num_tokens(of) if normalizer == "token" else len(of)
        return shares(lengths, normalizer=normalizer, denominator=count)
    tokens = Counter()
    for row in of:
        tokens[row.place[0]] += len(row.logp_old)
    each = torch.tensor([tokens[row.place[0]] for row in rows]).double()
    return (1 / (each * len(tokens))).repeat_interleave(lengths)


def num_tokens(rows: Sequence[Row]) -> int:
    """Response tokens of these rollouts."""
    return sum(len(row.logp_old) for row in rows)


def num_positive_tokens(rows: Sequence[Row]) -> int:
    """Response tokens of the correct ones among them."""
    return num_tokens([row for row in rows if row.is_correct])
