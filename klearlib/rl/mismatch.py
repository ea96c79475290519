"""How far the trainer's log-probabilities are from the sampler's, and the constant factors of
tokens: the one that corrects it, and those of a rule that weighs whole responses or mini-batches.

The rollouts were drawn from the sampler's policy q, and the loss treats them as drawn from the
trainer's policy p at the same weights. Another engine, precision or batch makes the two differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from klearlib.rl.rollouts import Row

if TYPE_CHECKING:
    from klearlib.rl.coefficients import Rule

NUM_QUARTERS = 4


@dataclass
class Mismatch:
    """Sums over tokens of d = log p - log q, from which `metrics.step_metrics` takes the means.

    ``k3`` is exp(d) - 1 - d: over draws from q its mean is KL(q || p), and no token's is negative.
    Quarters are of `max_tokens`, by a token's place in its response: rounding that adds up along
    the cache shows in the later ones.

    max_tokens: the token budget of a response. corrected_tokens, factor_sum, capped_tokens: the
    factors of `corrected` and `weighted`.

    >>> seen = Mismatch(max_tokens=8)
    >>> seen.add(torch.tensor([0.5, -1.0]), torch.tensor([0, 7]))
    >>> seen.abs_sum, seen.max_abs, seen.quarter_abs
    (1.5, 1.0, [0.5, 0.0, 0.0, 1.0])
    """

    max_tokens: int
    num_tokens: int = 0
    abs_sum: float = 0.0
    max_abs: float = 0.0
    k3_sum: float = 0.0
    quarter_abs: list[float] = field(default_factory=lambda: [0.0] * NUM_QUARTERS)
    quarter_tokens: list[int] = field(default_factory=lambda: [0] * NUM_QUARTERS)
    corrected_tokens: int = 0
    factor_sum: float = 0.0
    capped_tokens: int = 0

    def add(self, difference: torch.Tensor, position: torch.Tensor) -> None:
        """Count K tokens: log p - log q [K], and integer places in the response from 0 on [K]."""
        if not len(difference):
            return
        difference, position = difference.detach().double().cpu(), position.cpu()
        size = difference.abs()  # [K]
        self.num_tokens += len(size)
        self.abs_sum += float(size.sum())
        self.max_abs = max(self.max_abs, float(size.max()))
        self.k3_sum += float((torch.expm1(difference) - difference).sum())
        quarter = (position * NUM_QUARTERS // self.max_tokens).clamp(max=NUM_QUARTERS - 1)
        totals = torch.bincount(quarter, weights=size, minlength=NUM_QUARTERS)  # [4]
        counts = torch.bincount(quarter, minlength=NUM_QUARTERS)
        for index in range(NUM_QUARTERS):
            self.quarter_abs[index] += float(totals[index])
            self.quarter_tokens[index] += int(counts[index])


def observe(mismatch: Mismatch, rows: Sequence[Row], sampled: Sequence[Row]) -> None:
    """Add the tokens of `rows`, whose `logp_old` is the trainer's, against that of `sampled`."""
    for row, before in zip(rows, sampled, strict=True):
        difference = log_ratio(row, before)
        mismatch.add(difference, torch.arange(len(difference)))


def corrected(
    rows: Sequence[Row], sampled: Sequence[Row], *, cap: float, mismatch: Mismatch
) -> list[Row]:
    """`rows` with each token's factor min(p / q, `cap`): importance sampling, truncated by token.

    The factor makes the policy gradient that of draws from p; the cap bounds its variance and
    leaves a bias where p / q is larger. It is not in the paper; TRL has it as ``token_truncate``.

    rows: `logp_old` by the trainer. sampled: the same rows as the sampler left them. cap: at least
    1. mismatch: counts the factors.
    """
    ratios = [log_ratio(row, before).exp() for row, before in zip(rows, sampled, strict=True)]
    factors = [ratio.clamp(max=cap) for ratio in ratios]  # float64 [T] each
    return _weigh(rows, factors, mismatch, cut_at=cap)


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
    return _weigh(rows, factors.split(lengths.tolist()), counts, cut_at=0.0)


def _weigh(
    rows: Sequence[Row], factors: Sequence[torch.Tensor], counts: Mismatch, *, cut_at: float
) -> list[Row]:
    """`rows` with a factor for each token, times the one that it has; those that are `cut_at` count
    as capped."""
    weighed = []
    for row, factor in zip(rows, factors, strict=True):
        counts.corrected_tokens += len(factor)
        counts.factor_sum += float(factor.sum())
        counts.capped_tokens += int((factor == cut_at).sum())
        whole = factor if row.correction is None else factor * row.correction
        weighed.append(dataclasses.replace(row, correction=whole.to(row.logp_old.dtype)))
    return weighed


def log_ratio(row: Row, before: Row) -> torch.Tensor:
    """Log-probabilities of `row` less those of `before`, float64 [T]."""
    return row.logp_old.double() - before.logp_old.double()
