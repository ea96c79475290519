"""Rules of neighbouring papers as functions F(ratio, advantage), as a user's own rules are
(docs/own-rule.md): a run keeps this text among its parameters, so a change of it trains them anew.
"""

import torch

from klearlib.rl.coefficients import coefficient, largest_ratio, ppo_clip


def aspo(ratio, advantage, *, eps_low, eps_high, dual_clip=3.0):
    """ASPO (2510.06062): Clip-Higher whose ratio is flipped to 1 / r where A > 0, so that unlikely
    tokens are pushed most; what is left is clamped at `dual_clip` and keeps its gradient."""
    flipped = torch.where(advantage > 0, 1 / ratio, ratio)
    kept = torch.where(advantage > 0, ratio <= 1 + eps_high, ratio >= 1 - eps_low)
    return torch.where(kept, flipped.clamp(max=dual_clip), torch.zeros_like(ratio))


def dr_grpo(ratio, advantage, *, eps_low, eps_high, scale):
    """Dr. GRPO (2503.20783): Clip-Higher on A = reward - mean. With the option ``group_epsilon:
    scale``, far above any deviation, Eq. 4 gives that over `scale`, which F takes back."""
    found = coefficient(ratio, advantage, ppo_clip(eps_low=eps_low, eps_high=eps_high))
    return (scale * found).clamp(max=largest_ratio(ratio.dtype))


def gspo(ratio, advantage):
    """GSPO (2507.18071): F = 1; the option ``batch_weights: sequence_ratio`` gives each token the
    ratio of its response, cut by this rule's eps_low and eps_high."""
    return torch.ones_like(ratio)
