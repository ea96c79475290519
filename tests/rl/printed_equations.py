"""The paper's objectives as printed (Eqs. 9-18), typed token by token, and the table of F.

Everything here is independent of klearlib: the printed equations are left to autograd, the
coefficients are the table of corners in plain Python.
"""

import math

import torch

EPS_LOW, EPS_HIGH = 0.2, 0.28
LOW, HIGH = 0.8, 1.28
BETA_LOW, BETA_HIGH = 0.5, 2.0
DUAL_CLIP = 10.0

_CLIP = {"eps_low": EPS_LOW, "eps_high": EPS_HIGH}
# name -> the JSON description that `rule_from` takes
SPECS = {
    "unclipped": {"name": "unclipped"},
    "clip_higher": {"name": "clip_higher", **_CLIP},
    "clip_higher_dual": {"name": "ppo_clip", **_CLIP, "dual_clip": DUAL_CLIP},
    "gppo": {"name": "gppo", **_CLIP},
    "gppo_general": {"name": "gppo", **_CLIP, "beta_low": BETA_LOW, "beta_high": BETA_HIGH},
    "gppo_released": {"name": "gppo", **_CLIP, "dual_clip": DUAL_CLIP},
    "cispo": {"name": "cispo", **_CLIP},
}


def expected_coefficient(rule: str, ratio: float, advantage: float) -> float:
    """F by the table of the four corners; the ratio must not be on a tie."""
    if rule.endswith(("_dual", "_released")) and advantage < 0 and ratio > DUAL_CLIP:
        return 0.0
    low, high = ratio < LOW, ratio > HIGH
    if rule == "unclipped" or not (low or high):
        return ratio
    if rule == "cispo":
        return LOW if low else HIGH
    hurts = (low and advantage < 0) or (high and advantage > 0)
    if not hurts:
        return ratio
    if rule.startswith("clip_higher"):
        return 0.0
    bounded = LOW if low else HIGH
    if rule == "gppo_general":
        bounded *= BETA_LOW if low else BETA_HIGH
    return bounded


def printed_objective(
    rule: str, logp: torch.Tensor, logp_old: torch.Tensor, advantage: float
) -> torch.Tensor:
    """One token's term of the printed objective; all tensors are scalars."""
    ratio = torch.exp(logp - logp_old)
    unit = ratio / ratio.detach()
    if rule == "unclipped":  # Eq. 9
        return ratio * advantage
    if rule == "cispo":  # Eq. 16
        weight = min(max(ratio.item(), LOW), HIGH)
        return weight * advantage * logp
    if rule.startswith("clip_higher"):  # Eqs. 3, 7
        floor, ceiling = torch.full_like(ratio, LOW), torch.full_like(ratio, HIGH)
    elif rule == "gppo_general":  # Eq. 17
        floor, ceiling = BETA_LOW * LOW * unit, BETA_HIGH * HIGH * unit
    else:  # Eq. 11
        floor, ceiling = LOW * unit, HIGH * unit
    if rule == "gppo_general":
        # With beta the clipped branch is no bound any more: Eq. 17 picks it by the corner.
        if advantage > 0 and ratio > HIGH:
            return ceiling * advantage
        return (floor if advantage < 0 and ratio < LOW else ratio) * advantage
    clipped = floor if ratio < LOW else ceiling if ratio > HIGH else ratio
    objective = _smaller(ratio * advantage, clipped * advantage)
    if rule.endswith(("_dual", "_released")) and advantage < 0:
        return _larger(objective, torch.full_like(ratio, DUAL_CLIP * advantage))
    return objective


def printed_gradient(rule: str, ratio: float, advantage: float) -> float:
    """d(printed objective) / d(logp) by autograd, in float64."""
    logp_old = torch.tensor(-1.3, dtype=torch.float64)
    logp = (logp_old + math.log(ratio)).requires_grad_()
    value = printed_objective(rule, logp, logp_old, advantage)
    # A clipped token's value is a constant, which has no graph of its own.
    (gradient,) = torch.autograd.grad(value + 0.0 * logp, logp)
    return gradient.item()


def _smaller(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a if a.item() <= b.item() else b


def _larger(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a if a.item() >= b.item() else b
