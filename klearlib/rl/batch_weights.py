"""Weights that look at a whole response or mini-batch: constant factors of its tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from klearlib.rl.coefficients import Rule, largest_ratio
from klearlib.rl.mismatch import Mismatch, log_ratio
from klearlib.rl.rollouts import Row

M2_BUDGET = 0.04
"""Of M2PO: the largest second moment of the log-ratios that is left."""


def weighted(
    rows: Sequence[Row], now: Sequence[Row], *, kind: str, rule: Rule, counts: Mismatch
) -> list[Row]:
    """`rows` with a factor for each token, times the one that it has.

    ``sequence_ratio`` (GSPO, 2507.18071): the ratio s of the response, exp of its mean log-ratio,
    and 0 where s leaves the clip range of `rule` outwards. ``second_moment`` (M2PO, 2510.01161): 0
    for the tokens with the largest (log r)^2, of those that A pushes outwards, until the mean of
    the others' is at most `M2_BUDGET`, else 1.

    Args:
        rows: a mini-batch. now: the same with `logp_old` by the weights of now.
        counts: of the factors; those that are 0 count as capped.
    """
    ratios = [log_ratio(new, row) for new, row in zip(now, rows, strict=True)]  # [tokens] each
    if kind == "sequence_ratio":
        pairs = zip(ratios, rows, strict=True)
        factors = [torch.full_like(d, _of_response(d, row.advantage, rule)) for d, row in pairs]
    else:
        advantages = [torch.full_like(d, r.advantage) for d, r in zip(ratios, rows, strict=True)]
        kept = second_moment_mask(torch.cat(ratios), torch.cat(advantages))
        factors = kept.split([len(each) for each in ratios])
    found = []
    for row, factor in zip(rows, factors, strict=True):
        counts.count_factors(factor, capped=factor == 0)
        whole = factor * torch.tensor(row.correction or 1.0, dtype=factor.dtype)
        found.append(dataclasses.replace(row, correction=tuple(whole.tolist())))
    return found


def _of_response(log_ratios: torch.Tensor, advantage: float, rule: Rule) -> float:
    ratio = min(float(log_ratios.mean().exp()), largest_ratio(torch.float32))
    high, low = ratio > 1 + rule.eps_high, ratio < 1 - rule.eps_low
    return 0.0 if (high and advantage > 0) or (low and advantage < 0) else ratio


def second_moment_mask(log_ratios: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """M of M2PO, [K] of 0 and 1, for the K tokens of a mini-batch."""
    pushed = (log_ratios * advantage > 0).nonzero().squeeze(1)
    squares, order = log_ratios[pushed].square().sort(stable=True)
    means = squares.cumsum(0) / torch.arange(1, len(squares) + 1)  # never falls
    kept = torch.ones_like(log_ratios)
    kept[pushed[order[means > M2_BUDGET]]] = 0.0
    return kept
