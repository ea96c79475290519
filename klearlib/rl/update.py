"""One optimiser update on a mini-batch, accumulated over micro-batches, and what it saw."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from klearlib.policy.forward import response_logprobs
from klearlib.policy.passes import Passes
from klearlib.records import TokenBatch
from klearlib.rl.batches import (
    lay_out,
    micro_batches,
    num_loss_tokens,
    num_positive_tokens,
)
from klearlib.rl.coefficients import CORNERS, Rule, corner_masks
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.objective import policy_loss, positive_lm_loss, token_weights
from klearlib.rl.rollouts import Row
from klearlib.sft.packing import row_loads


@dataclass
class UpdateSums:
    """Sums over the tokens of one or more updates; means are taken once, by
    `metrics.step_metrics`."""

    mismatch: Mismatch
    num_tokens: int = 0
    num_positive_tokens: int = 0
    entropy: float = 0.0
    ratio_min: float = float("inf")
    ratio_max: float = 0.0
    corner_tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CORNERS, 0))
    corner_gradient: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CORNERS, 0.0))
    gradient: float = 0.0
    policy_loss: float = 0.0
    lm_loss: float = 0.0
    grad_norms: list[float] = field(default_factory=list)
    skipped_updates: int = 0
    memory_halvings: int = 0


@dataclass(frozen=True)
class Seen:
    """What one micro-batch gave: its share of the two losses; logp and entropy [N, T]; and of its
    `TokenBatch` what these are read with."""

    policy_loss: torch.Tensor
    lm_loss: torch.Tensor
    logp: torch.Tensor
    entropy: torch.Tensor
    loss_mask: torch.Tensor
    logp_old: torch.Tensor
    advantages: torch.Tensor
    correction: torch.Tensor | None


def update(
    model,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Row],
    sums: UpdateSums,
    *,
    rule: Rule,
    alpha: float,
    normalizer: str,
    loss_denominator: str,
    lm_normalizer: str,
    log_ratio_clamp: float | None,
    temperature: float,
    max_grad_norm: float,
    passes: Passes,
    pad_id: int,
    first_of_step: bool,
) -> None:
    """Minimise policy loss + alpha x LM loss (Eq. 14) by one step; adds to `sums`.

    The denominators are those of the whole mini-batch, so the gradient does not depend on how it is
    cut into micro-batches; ``"micro_batch"`` takes each one's own mean and averages the means, as
    the released code does. A gradient that is not finite skips the step, and the skip is counted.

    Args:
        passes: how it is cut and computed. Where the memory runs out, the gradient so far is thrown
            away and made again in smaller parts.
        first_of_step: the weights are still those that sampled and `logp_old` is the sampler's, so
            logp - logp_old is the mismatch between sampler and trainer.

    Raises:
        KlearError: out of memory with a single row, or with parts that may not become smaller.
    """
    num_tokens, positives = num_loss_tokens(rows), num_positive_tokens(rows)

    def add_gradients() -> list[Seen]:
        optimizer.zero_grad(set_to_none=True)
        parts = micro_batches(rows, passes=passes)
        # None: each micro-batch's own count, and the mean of the means.
        of_parts = loss_denominator == "micro_batch", lm_normalizer == "micro_batch"
        share, lm_share = (1 / len(parts) if own else 1.0 for own in of_parts)
        count = float(num_tokens if normalizer == "token" else len(rows))
        denominator, lm_denominator = (
            None if own else whole
            for own, whole in zip(of_parts, (count, float(max(positives, 1))), strict=True)
        )

        def losses(logp: torch.Tensor, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
            policy = policy_loss(
                logp,
                batch.logp_old,
                batch.advantages,
                batch.loss_mask,
                rule=rule,
                normalizer=normalizer,
                denominator=denominator,
                log_ratio_clamp=log_ratio_clamp,
                correction=batch.correction,
            )
            lm = positive_lm_loss(
                logp, batch.loss_mask, batch.is_correct, denominator=lm_denominator
            )
            return share * policy, lm_share * lm

        seen = []
        for part in parts:
            tokens, batch = lay_out(part, passes=passes, pad_id=pad_id, device=model.device)
            logp, entropy = response_logprobs(
                model,
                tokens,
                batch.loss_mask,
                passes=passes,
                temperature=temperature,
                loss=lambda logp, batch=batch: _total(losses(logp, batch), alpha),
            )
            policy, lm = losses(logp, batch)
            _total((policy, lm), alpha).backward()
            seen.append(
                Seen(
                    policy.detach(),
                    lm.detach(),
                    logp.detach(),
                    entropy,
                    batch.loss_mask,
                    batch.logp_old,
                    batch.advantages,
                    batch.correction,
                )
            )
        return seen

    num_halvings = passes.num_halvings
    loads = row_loads([len(row.ids) for row in rows], pack_tokens=passes.pack_tokens)
    with passes.computing(model):
        seen = passes.fitting(add_gradients, row_tokens=loads)
    sums.memory_halvings += passes.num_halvings - num_halvings
    for part in seen:
        observe(sums, part, rule=rule, log_ratio_clamp=log_ratio_clamp, first_of_step=first_of_step)
    sums.num_positive_tokens += positives
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    if torch.isfinite(norm):
        sums.grad_norms.append(norm.item())
        optimizer.step()
    else:
        sums.skipped_updates += 1


@torch.no_grad()
def trainer_logprobs(
    model, rows: Sequence[Row], *, temperature: float, passes: Passes, pad_id: int
) -> list[Row]:
    """The same rows with `logp_old` computed by the trainer's forward pass (semantics.md D14)."""

    def compute() -> dict[int, Row]:
        renewed = {}
        for part in micro_batches(rows, passes=passes):
            tokens, batch = lay_out(part, passes=passes, pad_id=pad_id, device=model.device)
            logp, _ = response_logprobs(
                model,
                tokens,
                batch.loss_mask,
                passes=passes,
                temperature=temperature,
                with_entropy=False,
            )
            flat = [row for line in part for row in line]
            for row, values, mask in zip(flat, logp, batch.loss_mask, strict=True):
                found = tuple(values[mask].tolist())
                renewed[id(row)] = dataclasses.replace(row, logp_old=found)
        return renewed

    loads = row_loads([len(row.ids) for row in rows], pack_tokens=passes.pack_tokens)
    with passes.computing(model):
        renewed = passes.fitting(compute, row_tokens=loads)
    return [renewed[id(row)] for row in rows]


def observe(
    sums: UpdateSums,
    seen: Seen,
    *,
    rule: Rule,
    log_ratio_clamp: float | None,
    first_of_step: bool,
) -> None:
    """Add what a micro-batch shows to `sums`; `first_of_step` is that of `update`."""
    mask = seen.loss_mask
    log_ratio = (seen.logp - seen.logp_old)[mask]
    advantages = seen.advantages[:, None].expand_as(mask)[mask]
    ratio = log_ratio.exp()
    # |F A| is the size of a token's gradient with respect to its own log-probability.
    weights = token_weights(
        log_ratio,
        advantages,
        rule=rule,
        log_ratio_clamp=log_ratio_clamp,
        correction=None if seen.correction is None else seen.correction[mask],
    )
    pull = weights.abs().double()
    corners = corner_masks(ratio, advantages, rule)
    totals = [
        seen.policy_loss,
        seen.lm_loss,
        seen.entropy[mask].double().sum(),
        pull.sum(),
        ratio.min(),
        ratio.max(),
        *(inside.sum() for inside in corners.values()),
        *(pull[inside].sum() for inside in corners.values()),
    ]
    # One transfer from the device for all of them.
    policy, lm, entropy, gradient, low, high, *of_corners = torch.stack(
        [total.double() for total in totals]
    ).tolist()
    sums.policy_loss += policy
    sums.lm_loss += lm
    sums.entropy += entropy
    sums.gradient += gradient
    sums.ratio_min, sums.ratio_max = min(sums.ratio_min, low), max(sums.ratio_max, high)
    sums.num_tokens += len(log_ratio)
    for index, corner in enumerate(corners):
        sums.corner_tokens[corner] += int(of_corners[index])
        sums.corner_gradient[corner] += of_corners[len(corners) + index]
    if first_of_step:
        # A row of the batch is one rollout: the count of its mask so far is the place in it.
        sums.mismatch.add(log_ratio, (mask.cumsum(1) - 1)[mask])


def _total(losses: tuple[torch.Tensor, torch.Tensor], alpha: float) -> torch.Tensor:
    policy, lm = losses
    return policy + alpha * lm
