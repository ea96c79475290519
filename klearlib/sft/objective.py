"""The SFT loss (Eq. 8), and the mean that any loss over tokens takes."""

from __future__ import annotations

import math

import torch

NORMALIZERS = ("token", "sequence", "sequence_sum")
LOGP_DTYPES = (torch.float32, torch.float64)


def log_likelihood_loss(logp: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Minus the weighed sum of the log-probabilities of K tokens, both [K]: what SFT (Eq. 8) and
    the LM loss of RL (Eq. 13) minimise. The mean is in `weight`."""
    return -(weight * logp).sum()


def token_mask(logp: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """bool [N, T]: which tokens a loss of the log-probabilities `logp` [N, T] counts.

    loss_mask: bool, or numbers of which each is 0 or 1, 1 on response tokens. Raises ValueError for
    log-probabilities of another precision or shape, or another mask.
    """
    if logp.ndim != 2 or logp.dtype not in LOGP_DTYPES:
        raise ValueError(
            f"logp must be float32 or float64 [N, T] (half precision rounds ratios: use "
            f"logp.float()), got {logp.dtype} {tuple(logp.shape)}"
        )
    if loss_mask.shape != logp.shape:
        shape, other = tuple(logp.shape), tuple(loss_mask.shape)
        raise ValueError(f"loss_mask must have the shape of logp {shape}, got {other}")
    mask = loss_mask == 1
    if loss_mask.dtype != torch.bool and not (mask | (loss_mask == 0)).all():
        raise ValueError("loss_mask must hold only 0 and 1")
    return mask


def shares(
    lengths: torch.Tensor, *, normalizer: str, denominator: float | None = None
) -> torch.Tensor:
    """What each token of N sequences [N] of these lengths weighs in a loss: float64 [all tokens].

    normalizer: ``"token"``: the mean over all tokens (Eq. 7). ``"sequence"``: the mean over
        sequences of each one's mean over its tokens (Eq. 3). ``"sequence_sum"``: the mean over
        sequences of each one's sum over its tokens (Eq. 8; verl: seq-mean-token-sum), which is
        ``"token"`` times the mean length.
    denominator: tokens (or sequences) of the whole batch, of which these sequences are a part;
        default: those given.

    Raises ValueError for an unknown normaliser, or a denominator that is not positive.

    >>> shares(torch.tensor([1, 2]), normalizer="sequence")
    tensor([0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """
    if normalizer not in NORMALIZERS:
        raise ValueError(f"normalizer must be one of {NORMALIZERS}, got {normalizer!r}")
    if denominator is None:
        denominator = max(1, int(lengths.sum()) if normalizer == "token" else len(lengths))
    if not 0 < denominator < math.inf:
        raise ValueError(f"denominator must be positive and finite, got {denominator}")
    # Eq. 3 divides by each length; Eqs. 7 and 8 do not.
    each = lengths.double() if normalizer == "sequence" else torch.ones(len(lengths)).double()
    return (1 / (each.to(lengths.device) * denominator)).repeat_interleave(lengths)
