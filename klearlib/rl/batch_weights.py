"""Weights that look at a whole response or mini-batch: constant factors of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from klearlib.rl.coefficients import Rule
from klearlib.rl.mismatch import Mismatch, log_ratio, weigh
from klearlib.rl.rollouts import Row


def weighted(rows: Sequence[Row], now: Sequence[Row], *, rule: Rule, counts: Mismatch) -> list[Row]:
    """`rows` with the factor of each token that ``rule.weights`` gives, times the one that it has.

    rows: a mini-batch. now: the same with `logp_old` by the current weights. counts: of the
    factors; those that are 0 count as capped.
    """
    ratios = [log_ratio(new, row) for new, row in zip(now, rows, strict=True)]  # float64 [T] each
    lengths = torch.tensor([len(each) for each in ratios])
    advantage = torch.tensor([row.advantage for row in rows], dtype=torch.float64)
    response = torch.arange(len(rows)).repeat_interleave(lengths)  # [K]
    factors = rule.weights(torch.cat(ratios), advantage[response], response)  # [K]
    return weigh(rows, factors.split(lengths.tolist()), counts, cut_at=0.0)
