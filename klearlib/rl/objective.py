"""The loss of RL: the policy loss of every rule (Eqs. 3, 7, 11, 17), the LM loss on correct
responses (Eq. 13), and their sum (Eq. 14).

One surrogate serves all rules: ``F.detach() * A * exp(logp - logp.detach())`` has the gradient
F * A. Its value is F * A and not the printed min(...): compare gradients across rules, never loss
curves.
"""

from __future__ import annotations

import torch

from klearlib.records import TokenBatch
from klearlib.rl.coefficients import Rule, coefficient
from klearlib.sft.objective import LOGP_DTYPES, log_likelihood_loss, shares, token_mask


def rl_loss(
    logp: torch.Tensor,
    batch: TokenBatch,
    *,
    rule: Rule,
    alpha: float,
    log_ratio_clamp: float | None = None,
    entropy: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the training loop minimises on K tokens: policy loss + alpha x LM loss, and then both
    of them, without a graph.

    The means are in `batch.weight` and `batch.lm_weight`, whose denominators are those of the whole
    mini-batch: see `klearlib.rl.rollouts.token_batch`.

    Args:
        logp: [K], with a graph.
        log_ratio_clamp: None as in the paper. verl's 20: the log-ratio is clamped, and a token
            beyond it has no gradient.
        entropy: [K], for a rule that takes it.
    """
    tokens = (logp.detach(), batch.logp_old, batch.advantage, batch.correction)
    how = {"rule": rule, "log_ratio_clamp": log_ratio_clamp, "entropy": entropy}
    push = token_weights(*tokens, **how)  # [K]
    policy = _surrogate_loss(logp, batch.weight * push)
    lm = log_likelihood_loss(logp, batch.lm_weight)  # Eq. 13
    return policy + alpha * lm, policy.detach(), lm.detach()  # Eq. 14


def _surrogate_loss(logp: torch.Tensor, push: torch.Tensor) -> torch.Tensor:
    """A scalar whose gradient at each token [K] is -`push`, a constant."""
    return -(push * torch.exp(logp - logp.detach())).sum()  # exp(0) = 1


def token_weights(
    logp: torch.Tensor,
    logp_old: torch.Tensor,
    advantage: torch.Tensor,
    correction: torch.Tensor,
    *,
    rule: Rule,
    entropy: torch.Tensor | None = None,
    log_ratio_clamp: float | None = None,
) -> torch.Tensor:
    """F * A of each token [K], times its correction: minus its gradient before the mean is taken.

    See `trained_coefficient`.
    """
    how = {"rule": rule, "entropy": entropy, "log_ratio_clamp": log_ratio_clamp}
    return trained_coefficient(logp, logp_old, advantage, **how) * advantage * correction


def trained_coefficient(
    logp: torch.Tensor,
    logp_old: torch.Tensor,
    advantage: torch.Tensor,
    *,
    rule: Rule,
    entropy: torch.Tensor | None = None,
    log_ratio_clamp: float | None = None,
) -> torch.Tensor:
    """F of each token [K], 0 beyond the clamp.

    logp: without a graph. Log-ratios of any size stay finite and keep the rule's F (the ratio
    itself is capped, see `coefficient`). entropy: [K], for a rule that takes it.
    """
    log_ratio = logp - logp_old
    of_token = {"logp": logp, "logp_old": logp_old, "entropy": entropy}
    if log_ratio_clamp is None:
        return coefficient(log_ratio.exp(), advantage, rule, **of_token)  # Eqs. 9-18
    within = log_ratio.abs() <= log_ratio_clamp  # [K]
    ratio = log_ratio.clamp(-log_ratio_clamp, log_ratio_clamp).exp()
    return coefficient(ratio, advantage, rule, **of_token) * within


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
    entropy: torch.Tensor | None = None,
) -> torch.Tensor:
    """Minus the clipped surrogate objective; d(loss)/d(logp) = -F * A / denominator.

    Args:
        logp, logp_old: [N, T] log-probabilities of the sampled tokens now and at sampling.
        advantages: [N] or [N, T].
        loss_mask: [N, T] bool, or a number, 1 on response tokens. Masked positions may hold
            anything.
        rule: a value of `klearlib.rl.coefficients`.
        normalizer, denominator: see `klearlib.sft.objective.shares`; ``"token"`` is Eq. 7,
            ``"sequence"`` Eq. 3. With the denominator of the optimiser mini-batch the gradient does
            not depend on how it was split. The released code takes each micro-batch's own.
        log_ratio_clamp: see `rl_loss`.
        correction: [N, T], a constant factor of each token's F * A; None, as in the paper, for 1.
            See `klearlib.rl.mismatch.corrected`. The ratio, and with it the clipping, stays that of
            the trainer's old policy, and the denominator still counts every token.
        entropy: [N, T], for a rule of one's own that takes it.

    Returns:
        A scalar to minimise; 0 with a graph where the mask is empty.

    Raises:
        ValueError: shapes that do not fit, integer log-probabilities, an unknown normaliser, a
            denominator that is not positive, a rule with weights.
    """
    mask = token_mask(logp, loss_mask)  # [N, T]
    if not isinstance(rule, Rule):
        raise ValueError(f"rule must be a klearlib.rl.coefficients.Rule, got {rule!r}")
    if rule.weights is not None:
        raise ValueError(
            f"rule {rule.name} weighs whole mini-batches: see klearlib.rl.mismatch.weighted"
        )
    if advantages.ndim == 1:
        advantages = advantages[:, None]  # [N, 1]
    if advantages.ndim != 2 or advantages.shape not in (logp.shape, (logp.shape[0], 1)):
        raise ValueError(
            f"advantages must be [N] or [N, T] for logp {tuple(logp.shape)}, "
            f"got {tuple(advantages.shape)}"
        )
    if not advantages.is_floating_point():
        raise ValueError(f"advantages must be floating point, got {advantages.dtype}")
    correction = torch.ones_like(logp) if correction is None else correction.detach()
    for name, value in (("logp_old", logp_old), ("correction", correction)):
        if value.shape != logp.shape or value.dtype not in LOGP_DTYPES:
            raise ValueError(
                f"{name} must be float32 or float64 {tuple(logp.shape)} like logp, "
                f"got {value.dtype} {tuple(value.shape)}"
            )
    kept, spread = logp[mask], advantages.expand_as(logp)[mask]  # [K]
    how = {"rule": rule, "log_ratio_clamp": log_ratio_clamp}
    how["entropy"] = None if entropy is None else entropy[mask]
    push = token_weights(kept.detach(), logp_old[mask], spread, correction[mask], **how)
    weight = shares(mask.sum(1), normalizer=normalizer, denominator=denominator)
    return _surrogate_loss(kept, weight.to(logp.dtype) * push)


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
    mask = token_mask(logp, loss_mask)  # [N, T]
    if is_correct.dtype != torch.bool or is_correct.shape != logp.shape[:1]:
        raise ValueError(
            f"is_correct must be bool [{logp.shape[0]}], "
            f"got {is_correct.dtype} {tuple(is_correct.shape)}"
        )
    weight = lm_shares(mask.sum(1), is_correct, denominator=denominator)  # [K]
    chosen = weight > 0  # what a wrong response holds may be infinite
    return log_likelihood_loss(logp[mask][chosen], weight[chosen].to(logp.dtype))


def lm_shares(
    lengths: torch.Tensor, is_correct: torch.Tensor, *, denominator: float | None = None
) -> torch.Tensor:
    """The share of each token of N responses [N] in the mean of Eq. 13, 0 in wrong ones: float64
    [sum of lengths].

    denominator: see `positive_lm_loss`.
    """
    if denominator is None:
        denominator = max(1, int(lengths[is_correct].sum()))  # Eq. 13
    weight = shares(lengths, normalizer="token", denominator=denominator)
    return weight * is_correct.repeat_interleave(lengths)
