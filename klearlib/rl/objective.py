"""The policy loss of every rule (Eqs. 3, 7, 11, 17) and the LM loss on correct responses (Eqs. 13,
14).

One surrogate serves all rules: ``F.detach() * A * exp(logp - logp.detach())`` has the gradient F *
A. Its value is F * A and not the printed min(...): compare gradients across rules, never loss
curves.
"""

from __future__ import annotations

import torch

from klearlib.records import TokenBatch
from klearlib.rl.coefficients import Rule, coefficient
from klearlib.sft.objective import LOGP_DTYPES, shares, token_mask


def token_losses(
    logp: torch.Tensor, batch: TokenBatch, *, rule: Rule, log_ratio_clamp: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The policy loss and the LM loss of K tokens, scalars to minimise.

    Args:
        logp: [K], with a graph.
        log_ratio_clamp: None as in the paper. verl's 20: the log-ratio is clamped, and a token
            beyond it has no gradient.
    """
    log_ratio = logp.detach() - batch.logp_old
    weights = token_weights(
        log_ratio, batch.advantage, batch.correction, rule=rule, log_ratio_clamp=log_ratio_clamp
    )
    surrogate = weights * torch.exp(logp - logp.detach())
    return -(batch.weight * surrogate).sum(), -(batch.lm_weight * logp).sum()


def token_weights(
    log_ratio: torch.Tensor,
    advantage: torch.Tensor,
    correction: torch.Tensor,
    *,
    rule: Rule,
    log_ratio_clamp: float | None = None,
) -> torch.Tensor:
    """F * A of each token [K], times its correction: minus its gradient before the mean is taken.

    log_ratio: logp - logp_old. Log-ratios of any size stay finite and keep the rule's F (the ratio
    itself is capped, see `coefficient`).
    """
    if log_ratio_clamp is None:
        return coefficient(log_ratio.exp(), advantage, rule) * advantage * correction
    within = log_ratio.abs() <= log_ratio_clamp
    ratio = log_ratio.clamp(-log_ratio_clamp, log_ratio_clamp).exp()
    return coefficient(ratio, advantage, rule) * advantage * within * correction


def policy_loss(
    logp: torch.Tensor,
    logp_old: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    rule: Rule,
    normalizer: str = "token",
    denominator: float | None = None,
    log_ratio_clamp: float | None = None,
    correction: torch.Tensor | None = None,
) -> torch.Tensor:
    """Minus the clipped surrogate objective; d(loss)/d(logp) = -F * A / denominator.

    Args:
        logp, logp_old: [N, T] log-probabilities of the sampled tokens now and at sampling.
        advantages: [N] or [N, T].
        loss_mask: [N, T] bool, or a number, 1 on response tokens. Masked positions may hold
            anything.
        rule: a value of `klearlib.rl.coefficients`.
        normalizer, denominator: see `klearlib.sft.objective.shares`. With the denominator of the
            optimiser mini-batch the gradient does not depend on how it was split. The released code
            takes each micro-batch's own.
        log_ratio_clamp: see `token_losses`.
        correction: [N, T], a constant factor of each token's F * A; None, as in the paper, for 1.
            See `klearlib.rl.mismatch.corrected`. The ratio, and with it the clipping, stays that of
            the trainer's old policy, and the denominator still counts every token.

    Returns:
        A scalar to minimise; 0 with a graph where the mask is empty.

    Raises:
        ValueError: shapes that do not fit, integer log-probabilities, an unknown normaliser, a
            denominator or a clamp that is not positive.
    """
    mask = token_mask(logp, loss_mask)
    if log_ratio_clamp is not None and not log_ratio_clamp > 0:
        raise ValueError(f"log_ratio_clamp must be positive or None, got {log_ratio_clamp!r}")
    if not isinstance(rule, Rule):
        raise ValueError(f"rule must be a value of klearlib.rl.coefficients, got {rule!r}")
    if advantages.ndim == 1:
        advantages = advantages[:, None]
    if advantages.ndim != 2 or advantages.shape not in (logp.shape, (logp.shape[0], 1)):
        raise ValueError(
            f"advantages must be [N] or [N, T] for logp {tuple(logp.shape)}, "
            f"got {tuple(advantages.shape)}"
        )
    correction = torch.ones_like(logp) if correction is None else correction
    for name, value in (("logp_old", logp_old), ("correction", correction)):
        if value.shape != logp.shape or value.dtype not in LOGP_DTYPES:
            raise ValueError(
                f"{name} must be float32 or float64 {tuple(logp.shape)} as logp, "
                f"got {value.dtype} {tuple(value.shape)}"
            )
    if not advantages.is_floating_point():
        raise ValueError(f"advantages must be floating point, got {advantages.dtype}")
    if not ((correction >= 0) & correction.isfinite() | ~mask).all():
        raise ValueError("correction must be finite and at least 0 where the mask is 1")
    weight = shares(mask.sum(1), normalizer=normalizer, denominator=denominator)
    kept = logp[mask]
    batch = TokenBatch(
        logp_old=logp_old[mask],
        advantage=advantages.expand_as(logp)[mask],
        place=torch.zeros_like(kept, dtype=torch.long),
        weight=weight.to(logp.dtype),
        lm_weight=torch.zeros_like(kept),
        correction=correction.detach()[mask],
    )
    return token_losses(kept, batch, rule=rule, log_ratio_clamp=log_ratio_clamp)[0]


def positive_lm_loss(
    logp: torch.Tensor,
    loss_mask: torch.Tensor,
    is_correct: torch.Tensor,
    *,
    denominator: float | None = None,
) -> torch.Tensor:
    """Eq. 13 with log pi: minus the mean log-probability over all tokens of correct responses.

    The paper prints pi where log pi is meant; the released code has log pi too. No correction by
    the sampler's policy enters: this is maximum likelihood of responses that the verifier chose, as
    in SFT, and no estimate of the policy's expected reward.

    Args:
        logp: [N, T]; loss_mask: [N, T] as in `policy_loss`.
        is_correct: bool [N], the verifier's verdict. Never a comparison of rewards: soft rewards
            and format penalties make "reward == 1" mean something else.
        denominator: the number of tokens of correct responses in the optimiser mini-batch, when
            this call gets a micro-batch of it; default: those of this call.

    Returns:
        A scalar to minimise; exactly 0, with a graph, where no response is correct.

    Raises:
        ValueError: shapes that do not fit, `is_correct` not bool, a denominator that is not
            positive.
    """
    mask = token_mask(logp, loss_mask)
    if is_correct.dtype != torch.bool or is_correct.shape != logp.shape[:1]:
        raise ValueError(
            f"is_correct must be bool [{logp.shape[0]}], "
            f"got {is_correct.dtype} {tuple(is_correct.shape)}"
        )
    chosen = mask & is_correct[:, None]
    weight = shares(chosen.sum(1), normalizer="token", denominator=denominator)
    return -(weight.to(logp.dtype) * logp[chosen]).sum()
