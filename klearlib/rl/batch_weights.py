"""Weights that look at a whole response or mini-batch: constant factors of its tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from klearlib.rl.coefficients import Rule, largest_ratio
from klearlib.rl.mismatch import Mismatch, log_ratio, weigh
from klearlib.rl.rollouts import Row

M2_BUDGET = 0.04
"""Of M2PO: the largest second moment of the log-ratios that is left."""
M2_RANGE = (0.7, 1.5)
"""Of M2PO's released code: its clip range is at least this wide."""


def weighted(
    rows: Sequence[Row], now: Sequence[Row], *, kind: str, rule: Rule, counts: Mismatch
) -> list[Row]:
    """`rows` with a factor for each token, times the one that it has.

    ``sequence_ratio`` (GSPO, 2507.18071): the ratio s of the response, exp of its mean log-ratio,
    and 0 where s leaves the clip range of `rule` outwards.

    M2PO (2510.01161) bounds the second moment of the log-ratios of the tokens that A pushes
    outwards. It has two forms, both a factor of 0 or 1: ``second_moment`` as in its paper,
    `second_moment_mask`, and ``second_moment_capped`` as in its released code,
    `capped_second_moment_mask`. They look at a mini-batch, the released code at a micro-batch.
    AReaL's M2PO is neither: it takes all tokens whatever their sign and the log-ratio of the
    proximal policy to the sampler's, leaves what it drops out of the denominator, and keeps PPO's
    clip on top.

    rows: a mini-batch. now: the same with `logp_old` by the current weights. counts: of the
    factors; those that are 0 count as capped.
    """
    ratios = [log_ratio(new, row) for new, row in zip(now, rows, strict=True)]  # float64 [T] each
    if kind == "sequence_ratio":
        pairs = zip(ratios, rows, strict=True)
        factors = [torch.full_like(d, _of_response(d, row.advantage, rule)) for d, row in pairs]
    else:
        advantages = [torch.full_like(d, r.advantage) for d, r in zip(ratios, rows, strict=True)]
        kept = _MASKS[kind](torch.cat(ratios), torch.cat(advantages))  # [K] of the mini-batch
        factors = kept.split([len(each) for each in ratios])
    return weigh(rows, factors, counts, cut_at=0.0)


def _of_response(log_ratios: torch.Tensor, advantage: float, rule: Rule) -> float:
    ratio = min(float(log_ratios.mean().exp()), largest_ratio(torch.float32))
    high, low = ratio > 1 + rule.eps_high, ratio < 1 - rule.eps_low
    return 0.0 if (high and advantage > 0) or (low and advantage < 0) else ratio


def second_moment_mask(log_ratios: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """M of M2PO as printed, [K] of 0 and 1, for the K tokens of a mini-batch: 0 for those with the
    largest (log r)^2, of those that A pushes outwards, until the mean of the others' is at most
    `M2_BUDGET`."""
    pushed = (log_ratios * advantage > 0).nonzero().squeeze(1)  # indices [T] of [K]
    squares, order = log_ratios[pushed].square().sort(stable=True)  # rising
    means = squares.cumsum(0) / torch.arange(1, len(squares) + 1)  # so it never falls
    kept = torch.ones_like(log_ratios)
    kept[pushed[order[means > M2_BUDGET]]] = 0.0
    return kept


def capped_second_moment_mask(log_ratios: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """M of M2PO's released code, [K] of 0 and 1: where PPO's clip, in one range for the mini-batch,
    has no gradient.

    T are the tokens that A pushes outwards. If the mean of (log r)^2 over T is at most `M2_BUDGET`,
    nothing is clipped. Else the range is [exp(-t), exp(t)], t the largest abs(log r) in T whose sum
    over T of min((log r)^2, t^2) is below the budget times the size of T, or 0 if there is none;
    then it is widened to `M2_RANGE`. A token beyond t still counts t^2, so before it is widened the
    range cuts at least the tokens that `second_moment_mask` drops.
    """
    kept = torch.ones_like(log_ratios)
    pushed = log_ratios * advantage > 0
    sizes = log_ratios[pushed].double().abs().sort().values  # [T], rising
    squares, budget = sizes.square(), M2_BUDGET * len(sizes)
    if squares.sum() <= budget:
        return kept
    num_larger = torch.arange(len(sizes) - 1, -1, -1)  # of each, those that a cap there cuts
    fits = squares.cumsum(0) + num_larger * squares < budget
    t = float(sizes[fits].max()) if fits.any() else 0.0
    low, high = min(-t, math.log(M2_RANGE[0])), max(t, math.log(M2_RANGE[1]))
    kept[pushed & ((log_ratios < low) | (log_ratios > high))] = 0.0
    return kept


_MASKS = {"second_moment": second_moment_mask, "second_moment_capped": capped_second_moment_mask}
