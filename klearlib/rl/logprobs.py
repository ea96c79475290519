"""What the policy of now says of rollouts: log-probability and entropy of each response token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from klearlib.policy.reader import in_chunks
from klearlib.rl.rollouts import Row, micro_batches

if TYPE_CHECKING:
    from klearlib.policy.batch_plan import BatchPlan
    from klearlib.records import TokenBatch
    from klearlib.rl.settings import RLSettings


def read_tokens(
    model,
    rows: Sequence[Row],
    settings: RLSettings,
    plan: BatchPlan,
    *,
    with_entropy: bool = True,
) -> Iterator[tuple[TokenBatch, torch.Tensor, torch.Tensor | None]]:
    """The response tokens of a mini-batch, C at a time, with logp [C] and entropy [C]. The caller
    takes each gradient before the next, see `klearlib.policy.reader.in_chunks`."""
    how = {"temperature": settings.temperature, "with_entropy": with_entropy}
    reader = plan.reader(model)
    for part, batch in micro_batches(rows, settings, plan, device=model.device):
        for chunk, logp, entropy in in_chunks(reader, part, **how):
            yield batch[chunk], logp, entropy


@torch.no_grad()
def trainer_logprobs(
    model, rows: Sequence[Row], *, temperature: float, plan: BatchPlan
) -> list[Row]:
    """The same rows with `logp_old` by the trainer's forward pass (docs/deviations.md, D14)."""

    def compute() -> dict[Row, Row]:
        renewed = {}
        reader = plan.reader(model)
        for part in plan.cut(rows):
            chunks = in_chunks(reader, part, temperature=temperature, with_entropy=False)
            logp = torch.cat([logp for _, logp, _ in chunks]).cpu()  # float32 [K]
            pieces = logp.split([len(row.logp_old) for row in part])
            for row, piece in zip(part, pieces, strict=True):
                renewed[row] = dataclasses.replace(row, logp_old=piece)
        return renewed

    renewed = plan.fitting(compute, sequences=rows)
    return [renewed[row] for row in rows]
