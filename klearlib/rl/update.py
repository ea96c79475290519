"""One optimiser update on a mini-batch, accumulated over micro-batches, and what it saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from klearlib.policy.load import autocast
from klearlib.policy.logprobs import token_logprobs
from klearlib.records import TokenBatch
from klearlib.rl.batches import micro_batches, num_loss_tokens, num_positive_tokens, token_batch
from klearlib.rl.coefficients import CORNERS, Rule, corner_masks
from klearlib.rl.objective import policy_loss, positive_lm_loss, token_weights
from klearlib.rl.rollouts import Row

# Tokens whose logits are held at once; with 152,000 words in float32 that is 1.2 GB.
HEAD_CHUNK_TOKENS = 2048


@dataclass
class UpdateSums:
    """Sums over the tokens of one or more updates; means are taken once, by
    `metrics.step_metrics`."""

    num_tokens: int = 0
    num_positive_tokens: int = 0
    entropy: float = 0.0
    abs_mismatch: float = 0.0
    max_mismatch: float = 0.0
    mismatch_tokens: int = 0
    ratio_min: float = float("inf")
    ratio_max: float = 0.0
    corner_tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CORNERS, 0))
    corner_gradient: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CORNERS, 0.0))
    gradient: float = 0.0
    policy_loss: float = 0.0
    lm_loss: float = 0.0
    grad_norms: list[float] = field(default_factory=list)
    skipped_updates: int = 0


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
    micro_batch_tokens: int,
    pad_id: int,
    first_of_step: bool,
) -> None:
    """Minimise policy loss + alpha x LM loss (Eq. 14) by one step; adds to `sums`.

    The denominators are those of the whole mini-batch, so the gradient does not depend on how it is
    cut into micro-batches; ``"micro_batch"`` takes each one's own mean and averages the means, as
    the released code does. A gradient that is not finite skips the step, and the skip is counted.

    Args:
        first_of_step: the weights are still those that sampled and `logp_old` is the sampler's, so
            logp - logp_old is the mismatch between sampler and trainer.
    """
    parts = micro_batches(rows, max_tokens=micro_batch_tokens)
    tokens, positives = num_loss_tokens(rows), num_positive_tokens(rows)
    optimizer.zero_grad(set_to_none=True)
    for part in parts:
        batch = token_batch(part, pad_id=pad_id, device=model.device)
        logp, entropy = _response_logprobs(model, batch, temperature)
        share = 1.0
        denominator = float(tokens if normalizer == "token" else len(rows))
        lm_denominator = float(max(positives, 1))
        if loss_denominator == "micro_batch":
            denominator, share = None, 1 / len(parts)
        lm_share = 1.0
        if lm_normalizer == "micro_batch":
            lm_denominator, lm_share = None, 1 / len(parts)
        policy = share * policy_loss(
            logp,
            batch.logp_old,
            batch.advantages,
            batch.loss_mask,
            rule=rule,
            normalizer=normalizer,
            denominator=denominator,
            log_ratio_clamp=log_ratio_clamp,
        )
        lm = lm_share * positive_lm_loss(
            logp, batch.loss_mask, batch.is_correct, denominator=lm_denominator
        )
        (policy + alpha * lm).backward()
        sums.policy_loss += policy.item()
        sums.lm_loss += lm.item()
        _observe(sums, batch, logp.detach(), entropy, rule, log_ratio_clamp, first_of_step)
    sums.num_positive_tokens += positives
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    if torch.isfinite(norm):
        sums.grad_norms.append(norm.item())
        optimizer.step()
    else:
        sums.skipped_updates += 1


@torch.no_grad()
def trainer_logprobs(
    model, rows: Sequence[Row], *, temperature: float, micro_batch_tokens: int, pad_id: int
) -> list[Row]:
    """The same rows with `logp_old` computed by the trainer's forward pass (semantics.md D14)."""
    renewed: dict[int, Row] = {}
    position = {id(row): index for index, row in enumerate(rows)}
    for part in micro_batches(rows, max_tokens=micro_batch_tokens):
        batch = token_batch(part, pad_id=pad_id, device=model.device)
        logp, _ = _response_logprobs(model, batch, temperature)
        for row, values, mask in zip(part, logp, batch.loss_mask, strict=True):
            renewed[position[id(row)]] = Row(
                row.ids, row.num_prompt, tuple(values[mask].tolist()), row.advantage, row.is_correct
            )
    return [renewed[index] for index in range(len(rows))]


def observe_mismatch(sums: UpdateSums, rows: Sequence[Row], sampled: Sequence[Row]) -> None:
    """Add to `sums` how far the `logp_old` of `rows`, by the trainer, is from that of `sampled`."""
    mismatch = [
        abs(logp - logp_sampler)
        for row, before in zip(rows, sampled, strict=True)
        for logp, logp_sampler in zip(row.logp_old, before.logp_old, strict=True)
    ]
    sums.abs_mismatch += sum(mismatch)
    sums.max_mismatch = max(sums.max_mismatch, *mismatch)
    sums.mismatch_tokens += len(mismatch)


def _response_logprobs(model, batch: TokenBatch, temperature: float):
    """`token_logprobs` of the response tokens, as the trainer runs it."""
    with autocast(model.device):
        return token_logprobs(
            model,
            batch.input_ids,
            chunk_size=HEAD_CHUNK_TOKENS,
            mask=batch.loss_mask,
            temperature=temperature,
        )


def _observe(
    sums: UpdateSums,
    batch: TokenBatch,
    logp: torch.Tensor,
    entropy: torch.Tensor,
    rule: Rule,
    log_ratio_clamp: float | None,
    first_of_step: bool,
) -> None:
    mask = batch.loss_mask
    log_ratio = (logp - batch.logp_old)[mask]
    advantages = batch.advantages[:, None].expand_as(logp)[mask]
    ratio = log_ratio.exp()
    # |F A| is the size of a token's gradient with respect to its own log-probability.
    weights = token_weights(log_ratio, advantages, rule=rule, log_ratio_clamp=log_ratio_clamp)
    pull = weights.abs().double()
    for corner, inside in corner_masks(ratio, advantages, rule).items():
        sums.corner_tokens[corner] += int(inside.sum())
        sums.corner_gradient[corner] += float(pull[inside].sum())
    sums.gradient += float(pull.sum())
    sums.num_tokens += int(mask.sum())
    sums.entropy += float(entropy[mask].double().sum())
    if first_of_step:
        sums.abs_mismatch += float(log_ratio.abs().double().sum())
        sums.max_mismatch = max(sums.max_mismatch, float(log_ratio.abs().max()))
        sums.mismatch_tokens += len(log_ratio)
    sums.ratio_min = min(sums.ratio_min, float(ratio.min()))
    sums.ratio_max = max(sums.ratio_max, float(ratio.max()))
