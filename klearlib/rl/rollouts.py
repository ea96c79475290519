"""Judged groups -> advantages -> mini-batches of rows -> micro-batches of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from klearlib.records import Group, TokenBatch
from klearlib.rl.advantages import group_advantages, mixed_accuracy_groups, nonzero_groups
from klearlib.rl.objective import lm_shares
from klearlib.rl.settings import RLSettings
from klearlib.sft.objective import shares

if TYPE_CHECKING:
    from klearlib.policy.batch_plan import BatchPlan


@dataclass(frozen=True, eq=False)
class Row:
    """One rollout as the trainer sees it: L tokens, of which the last T are the response.

    correction: a constant factor of each token's policy gradient, None for 1; see
    `klearlib.rl.mismatch.corrected`. place: the group's index in its batch, and the rollout's in
    its group.
    """

    ids: torch.Tensor  # int64 [L]
    num_prompt: int  # L - T
    logp_old: torch.Tensor  # float32 [T]
    advantage: float
    is_correct: bool
    correction: torch.Tensor | None = None  # float32 [T]
    place: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class RolloutBatch:
    """The groups of one step with their advantages, and which groups and rollouts train."""

    groups: tuple[Group, ...]
    advantages: torch.Tensor  # float64 [P, G]
    kept_groups: torch.Tensor  # bool [P]
    kept_rollouts: torch.Tensor  # bool [P, G]


def form_batch(groups: Sequence[Group], settings: RLSettings) -> RolloutBatch:
    """Advantages (Eq. 4) and the filters (5.2.5; docs/deviations.md, D8, D11). No refill."""
    rewards = torch.tensor([g.rewards for g in groups], dtype=torch.float64)  # [P, G]
    truncated = torch.tensor([[r.truncated for r in g.responses] for g in groups])  # [P, G]
    kept = ~truncated if settings.drop_truncated else torch.ones_like(truncated)
    advantages = group_advantages(
        rewards, std=settings.group_std, epsilon=settings.group_epsilon, keep=kept
    )
    if settings.zero_advantage_filter == "advantage":
        kept_groups = nonzero_groups(advantages)
    elif settings.zero_advantage_filter == "accuracy":
        correct = torch.tensor([[v.correct for v in g.verdicts] for g in groups])  # [P, G]
        kept_groups = mixed_accuracy_groups(correct, keep=kept)
    else:
        kept_groups = torch.ones(len(groups), dtype=torch.bool)
    return RolloutBatch(tuple(groups), advantages, kept_groups, kept)


def mini_batches(batch: RolloutBatch, settings: RLSettings) -> list[list[Row]]:
    """The rows of each optimiser mini-batch, in the order in which the problems were drawn.

    The K groups that survive are cut into ceil(K / mini_batch_problems) parts of sizes that differ
    by one group at most: a short last part would weigh its few tokens as much as a full one.
    """
    kept = batch.kept_groups.nonzero().flatten().tolist()
    if not kept:
        return []
    num_parts = -(-len(kept) // settings.mini_batch_problems)  # rounded up
    bounds = [round(len(kept) * part / num_parts) for part in range(num_parts + 1)]
    parts = [
        [row for index in kept[start:stop] for row in _rows(batch, index, settings.positives)]
        for start, stop in pairwise(bounds)
    ]
    return [rows for rows in parts if rows]  # `drop_truncated` may leave none of a part


def _rows(batch: RolloutBatch, index: int, positives: str) -> list[Row]:
    group, rows = batch.groups[index], []
    for number in batch.kept_rollouts[index].nonzero().flatten().tolist():
        response, correct = group.responses[number], group.verdicts[number].correct
        if positives == "reward_is_one":  # the released code's way (D4)
            correct = group.rewards[number] == 1.0
        row = Row(
            ids=torch.tensor(response.prompt_ids + response.token_ids),
            num_prompt=len(response.prompt_ids),
            logp_old=torch.tensor(response.logp),
            advantage=float(batch.advantages[index, number]),
            is_correct=correct,
            place=(index, number),
        )
        rows.append(row)
    return rows


def micro_batches(
    rows: Sequence[Row], settings: RLSettings, plan: BatchPlan, *, device: torch.device | str
) -> list[tuple[list[Row], TokenBatch]]:
    """The micro-batches of a mini-batch: rows as the model reads them, and their tokens."""
    parts = plan.cut(rows)
    names = ("normalizer", "loss_denominator", "lm_normalizer")
    how = {name: getattr(settings, name) for name in names} | {"num_parts": len(parts)}
    how["max_tokens"] = settings.max_new_tokens
    return [(part, token_batch(part, rows, device=device, **how)) for part in parts]


def token_batch(
    part: Sequence[Row],
    rows: Sequence[Row],
    *,
    normalizer: str = "token",
    loss_denominator: str = "mini_batch",
    lm_normalizer: str = "mini_batch",
    num_parts: int = 1,
    max_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> TokenBatch:
    """The K response tokens of `part`, a micro-batch of the mini-batch `rows`.

    A token's share in either mean is that in the whole mini-batch, so that the gradient does not
    depend on the cut. ``"micro_batch"`` takes the mean of each of the `num_parts` micro-batches and
    the mean of these means, as the released code does.

    normalizer: of the policy loss, see `policy_shares`.
    """
    lengths = torch.tensor([len(row.logp_old) for row in part])  # [N]
    whole, own = (rows, 1), (part, num_parts)
    of_policy, policy_parts = own if loss_denominator == "micro_batch" else whole
    of_lm, lm_parts = own if lm_normalizer == "micro_batch" else whole
    positive = max(1, num_positive_tokens(of_lm))  # Eq. 13: its denominator
    correct = torch.tensor([row.is_correct for row in part])  # [N]
    logp_old = torch.cat([row.logp_old for row in part])  # [K]
    advantage = torch.tensor([row.advantage for row in part], dtype=logp_old.dtype)  # [N]
    corrections = [
        torch.ones_like(row.logp_old) if row.correction is None else row.correction for row in part
    ]
    how = {"normalizer": normalizer, "max_tokens": max_tokens}
    weight = policy_shares(part, of_policy, **how)  # [K]
    lm_weight = lm_shares(lengths, correct, denominator=positive)  # [K]
    tensors = (
        logp_old,
        advantage.repeat_interleave(lengths),
        torch.cat([torch.arange(length) for length in lengths]),  # place in the response
        (weight / policy_parts).to(logp_old.dtype),
        lm_weight.to(logp_old.dtype) / lm_parts,
        torch.cat(corrections),
    )
    return TokenBatch(*(each.to(device) for each in tensors))


def policy_shares(
    rows: Sequence[Row], of: Sequence[Row], *, normalizer: str, max_tokens: int | None = None
) -> torch.Tensor:
    """The share of each token of `rows`, a part of `of`, in the mean of the policy loss over `of`:
    float64 [tokens of rows].

    normalizer: ``"token"``, ``"sequence"`` and ``"sequence_sum"`` as in
        `klearlib.sft.objective.shares`; ``"prompt"`` is Eq. 7 as printed, the mean over the tokens
        of all responses to a prompt, then the mean over prompts (its expectation); ``"budget"`` is
        the sum over all tokens by the tokens that all responses may have (Dr. GRPO).
    max_tokens: the budget of a response.
    """
    lengths = torch.tensor([len(row.logp_old) for row in rows])  # [N]
    if normalizer == "budget":
        return shares(lengths, normalizer="sequence_sum", denominator=len(of) * max_tokens)
    if normalizer != "prompt":
        count = num_tokens(of) if normalizer == "token" else len(of)
        return shares(lengths, normalizer=normalizer, denominator=count)
    tokens = Counter()  # of each prompt
    for row in of:
        tokens[row.place[0]] += len(row.logp_old)
    each = torch.tensor([tokens[row.place[0]] for row in rows]).double()  # [N]
    return (1 / (each * len(tokens))).repeat_interleave(lengths)  # Eq. 7


def num_tokens(rows: Sequence[Row]) -> int:
    """Response tokens of these rollouts."""
    return sum(len(row.logp_old) for row in rows)


def num_positive_tokens(rows: Sequence[Row]) -> int:
    """Response tokens of the correct ones among them."""
    return num_tokens([row for row in rows if row.is_correct])
