"""GPPO's neighbours as values of two places, the advantage of a rollout and the weight of a token:
each against autograd of the objective that its paper prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from klearlib.experiments.demos.lm_loss import old_and_shift

if TYPE_CHECKING:
    import torch

REWARDS = (1.0, -1.0, -1.0, 1.0)
_LENGTHS = (3, 5, 2, 4)
# log(pi / pi_old), row by row: inside every clip range and beyond it on both sides, off all ties.
_LOG_RATIOS = (0.05, -0.41, 0.52, -0.1, 0.61, -0.33, 1.2, 0.02, 0.4, -0.6, -1.3, 0.9, 0.0003, -0.5)
GSPO_CLIP = {"eps_low": 0.15, "eps_high": 0.2}  # the paper's 3e-4 and 4e-4 would cut every response
ASPO_CLIP, M2_BUDGET, TIS_CAP = 3.0, 0.04, 2.0
WEIGHTS = {
    "unclipped": ("Eq. 4", "r"),
    "dr_grpo": ("reward - mean", "Clip-Higher's F"),
    "aspo": ("Eq. 4", "1 / r where A > 0, else r, at most 3; 0 where Clip-Higher's is"),
    "tis": ("Eq. 4", "Clip-Higher's F times min(p / q, 2)"),
    "gspo": ("Eq. 4", "exp of the response's mean log r, 0 beyond its clip range"),
    "m2po": ("Eq. 4", "r, 0 for tokens that the second moment masks"),
}
"""Rule -> its advantage and weight in words."""


def neighbour_gradients(*, eps_low: float, eps_high: float) -> Iterator[dict]:
    """One row for each rule: advantage and weight, and the largest distance between the gradient
    of its printed objective, by autograd in float64 on the tokens of four responses, and that of
    the loss of this suite with these."""
    import torch

    clip, tokens = {"eps_low": eps_low, "eps_high": eps_high}, _tokens()
    for rule, (advantage, weight) in WEIGHTS.items():
        (wanted,) = torch.autograd.grad(printed_objective(rule, tokens, **clip), tokens[0])
        (found,) = torch.autograd.grad(-_our_loss(rule, tokens, **clip), tokens[0])
        yield {
            "rule": rule,
            "advantage": advantage,
            "weight": weight,
            "largest_error": float((wanted - found).abs().max()),
        }


def _tokens() -> tuple[torch.Tensor, ...]:
    """logp (with a graph), logp_old, logp of the sampler, loss mask: [4, 5]."""
    import torch

    mask, old, shift = old_and_shift(_LENGTHS, _LOG_RATIOS)
    gap = torch.zeros_like(shift)
    gap[mask] = torch.linspace(-1.5, 1.5, int(mask.sum()), dtype=torch.float64)
    return (old + shift).requires_grad_(), old, old - gap, mask


def printed_objective(
    rule: str, tokens: tuple[torch.Tensor, ...], *, eps_low: float, eps_high: float
) -> torch.Tensor:
    """The objective of one group as the rule's paper prints it, to be maximised: a scalar.

    ``dr_grpo`` (2503.20783): 1/G sum_i sum_t min(r A, clip(r) A) with A = reward - mean. ``gspo``
    (2507.18071): 1/G sum_i min(s A, clip(s) A), s = (pi / pi_old of the response)^(1 / length).
    The others are means over the group's tokens of: ``unclipped`` r A; ``aspo`` (2510.06062)
    Clip-Higher's cut on r, then pi_old pi / sg(pi^2) A where A > 0 and r A elsewhere, with sg(clip)
    A log pi beyond 3; ``tis`` (Yao et al. 2025) min(pi_old / pi_sampler, C) min(r A, clip(r) A);
    ``m2po`` (2510.01161) M r A, M = 0 for the tokens with the largest (log r)^2, of those with A >
    0, r > 1 or A < 0, r < 1, until the mean of the others' is at most the budget.

    tokens: as `_tokens` gives them.
    """
    import torch

    logp, logp_old, logp_sampler, mask = tokens
    rewards = torch.tensor(REWARDS, dtype=torch.float64)[:, None]
    centred = rewards - rewards.mean()
    scaled = (centred / rewards.std(correction=0)).expand_as(logp)
    ratio, lengths = torch.exp(logp - logp_old), mask.sum(1)
    clipped = ratio.clamp(1 - eps_low, 1 + eps_high)
    surrogate = torch.minimum(ratio * scaled, clipped * scaled)
    if rule == "dr_grpo":
        return torch.minimum(ratio * centred, clipped * centred)[mask].sum() / len(rewards)
    if rule == "gspo":
        s = torch.exp(((logp - logp_old) * mask).sum(1) / lengths)
        bounded = s.clamp(1 - GSPO_CLIP["eps_low"], 1 + GSPO_CLIP["eps_high"])
        return torch.minimum(s * scaled[:, 0], bounded * scaled[:, 0]).mean()
    if rule == "unclipped":
        values = ratio * scaled
    elif rule == "tis":
        values = torch.exp(logp_old - logp_sampler).clamp(max=TIS_CAP) * surrogate
    elif rule == "m2po":
        values = second_moment_mask((logp - logp_old).detach(), scaled, mask) * ratio * scaled
    else:
        below = torch.minimum(ratio, torch.full_like(ratio, 1 + eps_high))
        flipped = below / below.detach() ** 2
        value = torch.where(scaled > 0, flipped, ratio.clamp(min=1 - eps_low))
        soft = value.detach().clamp(max=ASPO_CLIP) * logp
        values = torch.where(value.detach() > ASPO_CLIP, soft, value) * scaled
    return values[mask].mean()


def second_moment_mask(
    log_ratio: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """M of M2PO, [N, T] of 0 and 1 in float64."""
    import torch

    pushed = mask & (log_ratio * advantage > 0)
    kept = torch.ones_like(log_ratio)
    while (kept.bool() & pushed).any():
        left = log_ratio.square() * pushed * kept
        if left.sum() / (pushed * kept).sum() <= M2_BUDGET:
            break
        kept.view(-1)[left.argmax()] = 0.0
    return kept


def _our_loss(
    rule: str, tokens: tuple[torch.Tensor, ...], *, eps_low: float, eps_high: float
) -> torch.Tensor:
    """The loss of the training loop with the rule's advantage, weight and mean."""
    import torch

    from klearlib.rl.advantages import group_advantages
    from klearlib.rl.batch_weights import weighted
    from klearlib.rl.coefficients import ppo_clip, unclipped
    from klearlib.rl.mismatch import Mismatch
    from klearlib.rl.objective import policy_loss
    from klearlib.rl.rollouts import Row
    from klearlib.rl.rule_specs import rule_from
    from klearlib.rl.rule_table import PUBLISHED

    logp, logp_old, logp_sampler, mask = tokens
    clip = {"eps_low": eps_low, "eps_high": eps_high}
    rewards = torch.tensor([REWARDS], dtype=torch.float64)
    advantages = group_advantages(rewards)[0]
    correction, normalizer = None, "token"
    if rule == "dr_grpo":
        advantages = group_advantages(rewards, std="none")[0]
        made, normalizer = ppo_clip(**clip), "sequence_sum"
    elif rule == "aspo":
        made = rule_from(PUBLISHED["aspo"].spec | clip)
    elif rule == "tis":
        made, correction = ppo_clip(**clip), (logp_old - logp_sampler).exp().clamp(max=TIS_CAP)
    elif rule == "gspo":
        made, normalizer = rule_from({"name": "gspo", **GSPO_CLIP}), "sequence"
    elif rule == "m2po":
        made = rule_from(PUBLISHED["m2po"].spec)
    else:
        made = unclipped()
    if made.weights is not None:
        rows, now = (
            [
                Row(torch.arange(0), 0, values[place], float(advantage), False)
                for values, place, advantage in zip(each.detach(), mask, advantages, strict=True)
            ]
            for each in (logp_old, logp)
        )
        found = weighted(rows, now, rule=made, counts=Mismatch(max_tokens=1))
        correction = torch.zeros_like(logp_old)
        correction[mask] = torch.cat([row.correction for row in found])
    return policy_loss(
        logp, logp_old, advantages, mask, rule=made, normalizer=normalizer, correction=correction
    )
