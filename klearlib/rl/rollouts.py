"""Rollout batches: problems -> groups -> rewards -> advantages -> the rows that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from klearlib.records import Group, Problem, Response
from klearlib.rl.advantages import group_advantages, mixed_accuracy_groups, nonzero_groups
from klearlib.rl.settings import RLSettings
from klearlib.verify.answers import verify_answers
from klearlib.verify.rewards import math_reward


@dataclass(frozen=True)
class Row:
    """One rollout as the trainer sees it; `logp_old` and the loss are on the tokens from `num_prompt` on."""

    ids: tuple[int, ...]
    num_prompt: int
    logp_old: tuple[float, ...]
    advantage: float
    is_correct: bool


@dataclass(frozen=True)
class RolloutBatch:
    """The groups of one step with their advantages [P, G], and which groups [P] and rollouts [P, G] train."""

    groups: tuple[Group, ...]
    advantages: torch.Tensor
    kept_groups: torch.Tensor
    kept_rollouts: torch.Tensor


def judge_groups(
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    *,
    format_scores: str,
    format_penalty: float,
) -> tuple[Group, ...]:
    """Verdicts and rewards for the responses to each problem (semantics.md D9)."""
    pairs = [
        (problem, response)
        for problem, group in zip(problems, responses, strict=True)
        for response in group
    ]
    verdicts = iter(
        verify_answers(
            [response.text for _, response in pairs],
            [_gold(problem) for problem, _ in pairs],
            prompts=[response.prompt for _, response in pairs],
        )
    )
    groups = []
    for problem, group in zip(problems, responses, strict=True):
        judged = tuple(next(verdicts) for _ in group)
        rewards = tuple(
            math_reward(verdict, format_penalty=format_penalty, scores=format_scores)
            for verdict in judged
        )
        groups.append(Group(problem, tuple(group), judged, rewards))
    return tuple(groups)


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
        kept_groups = mixed_accuracy_groups(correct)
    else:
        kept_groups = torch.ones(len(groups), dtype=torch.bool)
    return RolloutBatch(tuple(groups), advantages, kept_groups, kept)


def mini_batches(
    batch: RolloutBatch, *, mini_batch_problems: int, positives: str
) -> list[list[Row]]:
    """The rows of each optimiser mini-batch, in the order in which the problems were drawn.

    The K groups that survive are cut into ceil(K / mini_batch_problems) parts of sizes that differ by
    one group at most: a short last part would weigh its few tokens as much as a full one.
    """
    kept = batch.kept_groups.nonzero().squeeze(1).tolist()
    if not kept:
        return []
    parts = -(-len(kept) // mini_batch_problems)
    bounds = [round(len(kept) * part / parts) for part in range(parts + 1)]
    result = []
    for start, stop in zip(bounds, bounds[1:], strict=False):
        rows = [
            row
            for index in kept[start:stop]
            for row in _rows(
                batch.groups[index],
                batch.advantages[index].tolist(),
                batch.kept_rollouts[index].tolist(),
                positives,
            )
        ]
        if rows:
            result.append(rows)
    return result


def _rows(group: Group, advantages: list[float], kept: list[bool], positives: str) -> list[Row]:
    return [
        Row(
            ids=response.prompt_ids + response.token_ids,
            num_prompt=len(response.prompt_ids),
            logp_old=response.logp,
            advantage=advantage,
            is_correct=verdict.correct if positives == "verdict" else reward == 1.0,
        )
        for response, verdict, reward, advantage, keep in zip(
            group.responses, group.verdicts, group.rewards, advantages, kept, strict=True
        )
        if keep
    ]


def _gold(problem: Problem) -> str | list[str]:
    if problem.answer is None:
        raise ValueError(f"problem {problem.id!r} has no answer to judge against")
    return problem.answer if isinstance(problem.answer, str) else list(problem.answer)
