"""The policy loss of every rule (Eqs. 3, 7, 11, 17) and the LM loss on correct responses (Eqs. 13,
14).

One surrogate serves all rules: ``F.detach() * A * exp(logp - logp.detach())`` has the gradient F *
A. Its value is F * A and not the printed min(...): compare gradients across rules, never loss
curves.
"""

from __future__ import annotations

import math

import torch

from klearlib.rl.coefficients import Rule, coefficient

_DTYPES = (torch.float32, torch.float64)


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
        normalizer: ``"token"``: the mean over all tokens (Eq. 7). ``"sequence"``: the mean over
            sequences of each one's mean over its tokens (Eq. 3).
        denominator: the number of tokens (or sequences) of the optimiser mini-batch, when this call
            gets a micro-batch of it; default: those of this call. The gradient of a mini-batch then
            does not depend on how it was split. The released code takes each micro-batch's own.
        log_ratio_clamp: None as in the paper. verl's 20: the log-ratio is clamped, and a token
            beyond it has no gradient.
        correction: [N, T], a constant factor of each token's F * A; None, as in the paper, for 1.
            See `klearlib.rl.mismatch.corrected`. The ratio, and with it the clipping, stays that of
            the trainer's old policy, and the denominator still counts every token.

    Returns:
        A scalar to minimise; 0 with a graph where the mask is empty. Log-ratios of any size stay
        finite and keep the rule's F (the ratio itself is capped, see `coefficient`).

    Raises:
        ValueError: shapes that do not fit, integer log-probabilities, an unknown normaliser, a
            denominator that is not positive.
    """
    mask = _checked_mask(logp, loss_mask)
    if not isinstance(rule, Rule):
        raise ValueError(f"rule must be a value of klearlib.rl.coefficients, got {rule!r}")
    if logp_old.shape != logp.shape or logp_old.dtype not in _DTYPES:
        raise ValueError(
            f"logp_old must be float32 or float64 {tuple(logp.shape)} as logp, "
            f"got {logp_old.dtype} {tuple(logp_old.shape)}"
        )
    if not advantages.is_floating_point():
        raise ValueError(f"advantages must be floating point, got {advantages.dtype}")
    if advantages.ndim == 1:
        advantages = advantages[:, None]
    if advantages.ndim != 2 or advantages.shape not in (logp.shape, (logp.shape[0], 1)):
        raise ValueError(
            f"advantages must be [N] or [N, T] for logp {tuple(logp.shape)}, "
            f"got {tuple(advantages.shape)}"
        )
    if correction is not None:
        if correction.shape != logp.shape or not correction.is_floating_point():
            raise ValueError(
                f"correction must be floating point {tuple(logp.shape)} as logp, "
                f"got {correction.dtype} {tuple(correction.shape)}"
            )
        correction = correction.detach()
    log_ratio = torch.where(mask, logp.detach() - logp_old, 0.0)
    weight = token_weights(
        log_ratio,
        advantages,
        rule=rule,
        log_ratio_clamp=log_ratio_clamp,
        correction=correction,
    )
    # Masked positions are replaced before the product: a NaN there would survive a multiplication
    # by 0.
    kept = torch.where(mask, logp, 0.0)
    per_token = torch.where(mask, weight * torch.exp(kept - kept.detach()), 0.0)
    if normalizer == "token":
        total, count = per_token.sum(), mask.sum()
    elif normalizer == "sequence":
        lengths = mask.sum(dim=1).clamp(min=1)
        total, count = (per_token.sum(dim=1) / lengths).sum(), logp.shape[0]
    else:
        raise ValueError(f"normalizer must be 'token' or 'sequence', got {normalizer!r}")
    return -total / _checked_denominator(denominator, count)


def token_weights(
    log_ratio: torch.Tensor,
    advantages: torch.Tensor,
    *,
    rule: Rule,
    log_ratio_clamp: float | None = None,
    correction: torch.Tensor | None = None,
) -> torch.Tensor:
    """F * A of each token, times its correction: minus its gradient in `policy_loss`, before the
    denominator.

    Args:
        log_ratio: logp - logp_old; advantages and correction: broadcast with it; log_ratio_clamp:
            as in `policy_loss`.
    """
    if log_ratio_clamp is None:
        weights = coefficient(log_ratio.exp(), advantages, rule) * advantages
    else:
        within = log_ratio.abs() <= log_ratio_clamp
        ratio = log_ratio.clamp(-log_ratio_clamp, log_ratio_clamp).exp()
        weights = coefficient(ratio, advantages, rule) * advantages * within
    return weights if correction is None else weights * correction


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
    mask = _checked_mask(logp, loss_mask)
    if is_correct.dtype != torch.bool or is_correct.shape != logp.shape[:1]:
        raise ValueError(
            f"is_correct must be bool [{logp.shape[0]}], "
            f"got {is_correct.dtype} {tuple(is_correct.shape)}"
        )
    chosen = mask & is_correct[:, None]
    total = torch.where(chosen, logp, 0.0).sum()
    return -total / _checked_denominator(denominator, chosen.sum())


def _checked_mask(logp: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    if logp.ndim != 2 or logp.dtype not in _DTYPES:
        raise ValueError(
            f"logp must be float32 or float64 [N, T] (half precision rounds ratios: use "
            f"logp.float()), got {logp.dtype} {tuple(logp.shape)}"
        )
    if loss_mask.shape != logp.shape:
        raise ValueError(
            f"loss_mask must have the shape of logp {tuple(logp.shape)}, "
            f"got {tuple(loss_mask.shape)}"
        )
    return loss_mask != 0


def _checked_denominator(
    denominator: float | None, count: torch.Tensor | int
) -> torch.Tensor | float:
    if denominator is None:
        return count.clamp(min=1) if isinstance(count, torch.Tensor) else max(count, 1)
    if not 0 < denominator < math.inf:
        raise ValueError(f"denominator must be positive and finite, got {denominator}")
    return denominator
