"""The gradient of one supervised batch (Eq. 8), accumulated over micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from klearlib.policy.batch_plan import BatchPlan
from klearlib.policy.reader import in_chunks
from klearlib.sft.batches import Example
from klearlib.sft.objective import shares


@dataclass(frozen=True)
class BatchSums:
    """What one batch gave: its loss, and counts over all of its micro-batches."""

    loss: float
    num_tokens: int
    num_micro_batches: int
    num_positions: int
    num_held: int


def batch_gradient(
    model, examples: Sequence[Example], *, normalizer: str, plan: BatchPlan, seed: int
) -> BatchSums:
    """Make the `grad` of the weights that of a batch's loss, in parts that fit into the memory.

    Minus the log-likelihood of the response tokens: the mean over examples of each one's sum
    divided by its length (Eq. 8 as printed, with log pi for pi; normaliser ``"sequence"``), or the
    mean over all tokens (``"token"``). The means are those of the whole batch, however it is cut
    and packed.

    Raises:
        KlearError: one example alone does not fit, or is longer than a packed row.
        ValueError: an unknown normaliser.
    """
    num_tokens = sum(len(each.ids) - each.num_prompt for each in examples)

    def attempt() -> BatchSums:
        torch.manual_seed(seed)
        model.zero_grad(set_to_none=True)
        total, num_positions, parts = 0.0, 0, plan.cut(examples)
        with plan.reading(model) as reader:
            for part in parts:
                flat = [example for row in part for example in row]
                weight = shares(
                    torch.tensor([len(each.ids) - each.num_prompt for each in flat]),
                    normalizer=normalizer,
                    denominator=num_tokens if normalizer == "token" else len(examples),
                ).to(model.device, torch.float32)
                for chunk, logp, _ in in_chunks(reader, part, with_entropy=False):
                    loss = -(weight[chunk] * logp).sum()
                    loss.backward()
                    total += loss.detach().double()
                num_positions += len(part) * max(sum(len(x.ids) for x in row) for row in part)
        return BatchSums(
            loss=float(total),
            num_tokens=num_tokens,
            num_micro_batches=len(parts),
            num_positions=num_positions,
            num_held=sum(len(each.ids) for each in examples),
        )

    return plan.fitting(attempt, sequences=examples)
