"""The optimiser updates of one step, mini-batch by mini-batch."""

from __future__ import annotations

import torch

from klearlib.policy.passes import Passes
from klearlib.rl.coefficients import Rule
from klearlib.rl.mismatch import Mismatch, corrected, observe
from klearlib.rl.rollouts import RolloutBatch, mini_batches
from klearlib.rl.settings import RLSettings
from klearlib.rl.update import UpdateSums, trainer_logprobs, update


def train_on(
    batch: RolloutBatch,
    model,
    optimizer: torch.optim.Optimizer,
    *,
    rule: Rule,
    settings: RLSettings,
    passes: Passes,
    pad_id: int,
    step: int,
) -> UpdateSums:
    """All optimiser updates on the rollouts of `step`, which counts from 1, and what they saw.

    With ``logp_old`` trainer the old log-probabilities of the whole batch are computed before the
    first update, while the weights are those that sampled.
    """
    sums = UpdateSums(Mismatch(max_tokens=settings.max_new_tokens))
    parts = mini_batches(
        batch, mini_batch_problems=settings.mini_batch_problems, positives=settings.positives
    )
    if settings.logp_old == "trainer":
        sampled, num_halvings = parts, passes.num_halvings
        parts = [
            trainer_logprobs(
                model,
                rows,
                temperature=settings.temperature,
                passes=passes,
                pad_id=pad_id,
            )
            for rows in parts
        ]
        sums.memory_halvings += passes.num_halvings - num_halvings
        for rows, before in zip(parts, sampled, strict=True):
            observe(sums.mismatch, rows, before)
        if (cap := settings.sampler_correction) is not None:
            parts = [
                corrected(rows, before, cap=cap, mismatch=sums.mismatch)
                for rows, before in zip(parts, sampled, strict=True)
            ]
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(settings, step)
    for index, rows in enumerate(parts):
        update(
            model,
            optimizer,
            rows,
            sums,
            rule=rule,
            alpha=settings.alpha,
            normalizer=settings.normalizer,
            loss_denominator=settings.loss_denominator,
            lm_normalizer=settings.lm_normalizer,
            log_ratio_clamp=settings.log_ratio_clamp,
            temperature=settings.temperature,
            max_grad_norm=settings.max_grad_norm,
            passes=passes,
            pad_id=pad_id,
            first_of_step=index == 0 and settings.logp_old == "sampler",
        )
    return sums


def learning_rate(settings: RLSettings, step: int) -> float:
    """Of all updates on the rollouts of `step`, which counts from 1: linear warm-up, then
    constant."""
    return settings.learning_rate * min(1.0, step / (settings.warmup_steps + 1))
