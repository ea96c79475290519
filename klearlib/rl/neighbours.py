"""Rules of neighbouring papers as functions F(ratio, advantage), as a user's own rules are
(docs/own-rule.md): a run keeps this text among its parameters, so a change of it trains them anew.
"""

import torch


def aspo(ratio, advantage, *, eps_low, eps_high, dual_clip=3.0):
    """ASPO (2510.06062): Clip-Higher whose ratio is flipped to 1 / r where A > 0, so that unlikely
    tokens are pushed most; what is left is clamped at `dual_clip` and keeps its gradient."""
    flipped = torch.where(advantage > 0, 1 / ratio, ratio)
    kept = torch.where(advantage > 0, ratio <= 1 + eps_high, ratio >= 1 - eps_low)
    return torch.where(kept, flipped.clamp(max=dual_clip), torch.zeros_like(ratio))


def gspo(ratio, advantage):
    """GSPO (2507.18071): F = 1; the option ``batch_weights: sequence_ratio`` gives each token the
    ratio of its response, cut by this rule's eps_low and eps_high."""
    return torch.ones_like(ratio)
