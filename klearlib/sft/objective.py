"""The SFT loss (Eq. 8) with log pi."""

from __future__ import annotations

import torch


def sft_loss(
    logp: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    normalizer: str,
    denominator: float | None = None,
) -> torch.Tensor:
    """Minus the log-likelihood of the response tokens.

    Args:
        logp: [N, T]; loss_mask: [N, T] bool, True on response tokens.
        normalizer: ``"sequence"``: the mean over examples of each one's sum divided by its length
            (Eq. 8 as printed, with log pi for pi); ``"token"``: the mean over all tokens.
        denominator: examples or tokens of the whole batch, where this is a part of it.

    Raises:
        ValueError: an unknown normaliser, shapes that do not fit, or a denominator that is not
            positive.
    """
    if logp.shape != loss_mask.shape:
        raise ValueError(
            f"loss_mask must be {tuple(logp.shape)} as logp, got {tuple(loss_mask.shape)}"
        )
    if denominator is not None and not denominator > 0:
        raise ValueError(f"denominator must be positive, got {denominator}")
    kept = torch.where(loss_mask, logp, 0.0)
    if normalizer == "token":
        return -kept.sum() / (denominator or loss_mask.sum().clamp(min=1))
    if normalizer == "sequence":
        per_example = kept.sum(dim=1) / loss_mask.sum(dim=1).clamp(min=1)
        return -per_example.sum() / (denominator or len(logp))
    raise ValueError(f"normalizer must be 'token' or 'sequence', got {normalizer!r}")
