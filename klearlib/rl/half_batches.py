"""How far the gradients of two halves of one rollout batch agree: what "lower variance of the
gradient" (5.2.3) can be read from in a single run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from klearlib.policy.reader import in_chunks
from klearlib.rl.rollouts import Row, micro_batches
from klearlib.rl.settings import RLSettings

if TYPE_CHECKING:
    from klearlib.policy.batch_plan import BatchPlan


def half_cosine(
    model, rows: Sequence[Row], *, settings: RLSettings, plan: BatchPlan
) -> float | None:
    """The cosine between the gradients of the policy loss on two halves of the groups of `rows`, at
    the weights as they are.

    With g_i = g + e_i and independent noise of covariance C for either half, its expectation is
    about |g|^2 / (|g|^2 + tr C): 1 without noise, 0 where noise is all. It has no unit, so rewards
    of unlike scales can be compared. The groups are dealt out in turn, in the order in which their
    problems were drawn. Every ratio is taken as 1, which it is before the first update, and alpha
    as 0: the loss on correct responses does not see the reward. Weights and random states stay as
    they are, and no gradient is left; it costs a forward and a backward pass of all rows, and the
    memory of a further gradient.

    Returns:
        None with fewer than two groups, and where a half has no gradient.
    """
    indices = list(dict.fromkeys(row.place[0] for row in rows))
    firsts = set(indices[::2])
    halves = [[r for r in rows if (r.place[0] in firsts) is one] for one in (True, False)]
    if not all(halves):
        return None
    first, second = (_gradient(model, half, settings=settings, plan=plan) for half in halves)
    lengths = [sum(g.double().square().sum() for g in each).sqrt() for each in (first, second)]
    product = sum((a.double() * b.double()).sum() for a, b in zip(first, second, strict=True))
    scale = float(lengths[0] * lengths[1])
    return float(product) / scale if scale else None


def _gradient(
    model, rows: Sequence[Row], *, settings: RLSettings, plan: BatchPlan
) -> list[torch.Tensor]:
    def compute() -> None:
        model.zero_grad(set_to_none=True)
        with plan.reading(model) as reader:
            for part, batch in micro_batches(rows, settings, plan, device=model.device):
                for chunk, logp, _ in in_chunks(
                    reader, part, temperature=settings.temperature, with_entropy=False
                ):
                    tokens = batch[chunk]
                    pull = tokens.weight * tokens.advantage * tokens.correction
                    (-(pull * logp).sum()).backward()

    plan.fitting(compute, sequences=rows)
    found = [weight.grad for weight in model.parameters() if weight.grad is not None]
    model.zero_grad(set_to_none=True)
    return found
