"""The gradient of one supervised batch, accumulated over micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from klearlib.policy.forward import response_logprobs
from klearlib.policy.passes import Passes
from klearlib.policy.token_line import token_line
from klearlib.sft.batches import Example
from klearlib.sft.objective import sft_loss
from klearlib.sft.packing import SupervisedBatch, cut_rows, packed_batch, row_loads


@dataclass(frozen=True)
class BatchSums:
    """What one batch gave: its loss, and counts over all of its micro-batches."""

    loss: float
    num_tokens: int
    num_micro_batches: int
    num_positions: int
    num_held: int


def batch_gradient(
    model,
    examples: Sequence[Example],
    *,
    normalizer: str,
    pad_id: int,
    passes: Passes,
    seed: int,
) -> BatchSums:
    """Make the `grad` of the weights that of a batch's loss, in parts that fit into the memory.

    Raises KlearError where one example alone does not fit; else as `add_gradients`.
    """

    def attempt() -> BatchSums:
        torch.manual_seed(seed)
        model.zero_grad(set_to_none=True)
        return add_gradients(model, examples, normalizer=normalizer, pad_id=pad_id, passes=passes)

    lengths = [len(example.ids) for example in examples]
    return passes.fitting(attempt, row_tokens=row_loads(lengths, pack_tokens=passes.pack_tokens))


def add_gradients(
    model,
    examples: Sequence[Example],
    *,
    normalizer: str,
    pad_id: int,
    passes: Passes,
) -> BatchSums:
    """Add the gradient of a batch's loss to the `grad` of the weights, micro-batch by micro-batch.

    Each micro-batch is divided by the examples or the response tokens of the whole batch, so that
    the sum of their gradients is the gradient of the whole, however it is cut and packed.

    Raises KlearError where an example is longer than a packed row, ValueError for an unknown
    normaliser.
    """
    num_tokens = sum(len(example.ids) - example.num_prompt for example in examples)
    denominator = float(num_tokens if normalizer == "token" else len(examples))
    parts = cut_rows(
        [len(example.ids) for example in examples],
        pack_tokens=passes.pack_tokens,
        micro_batch_tokens=passes.micro_batch_tokens,
        one_row=passes.one_row,
    )
    total, num_positions, num_held = 0.0, 0, 0
    with passes.computing(model):
        for part in parts:
            rows = [[examples[index] for index in row] for row in part]
            batch = packed_batch(rows, pad_id=pad_id).to(model.device)
            tokens = batch
            if passes.one_line:
                tokens = token_line([row[0] for row in rows], device=model.device)

            def loss_of(logp: torch.Tensor, batch: SupervisedBatch = batch) -> torch.Tensor:
                return sft_loss(
                    logp,
                    batch.loss_mask,
                    normalizer=normalizer,
                    denominator=denominator,
                    response_tokens=batch.response_tokens,
                )

            logp, _ = response_logprobs(
                model, tokens, batch.loss_mask, passes=passes, with_entropy=False, loss=loss_of
            )
            loss = loss_of(logp)
            loss.backward()
            total += loss.detach().double()
            num_positions += batch.input_ids.numel()
            num_held += batch.num_held
    return BatchSums(
        loss=float(total),
        num_tokens=num_tokens,
        num_micro_batches=len(parts),
        num_positions=num_positions,
        num_held=num_held,
    )
