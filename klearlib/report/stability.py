"""The verdict on stable training, from gradient norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from klearlib.errors import KlearError
from klearlib.paper.schema import Claim
from klearlib.report.style import series_style
from klearlib.report.verdicts import AT_PAPER, expect_kind, verdict


def decide_stability(
    claim: Claim, grad_norms: Mapping[str, Sequence[Sequence[float]]], *, paper_scale: bool
) -> dict:
    """The verdict on "all arms train stably" from the gradient norms before clipping.

    grad_norms: arm -> one sequence per seed, one norm per optimiser step; steps without an update
    are left out by the caller, NaN and infinity are kept: they are the finding.
    Raises ValueError for an unknown arm or a run without steps.
    """
    expect_kind(claim, "trend")
    rule = claim.rule.numbers
    if set(grad_norms) - set(claim.arms):
        raise KlearError(f"{claim.id}: expected arms out of {claim.arms}, got {sorted(grad_norms)}")
    broken, short, out_of_band, texts = [], [], [], []
    for arm, runs in grad_norms.items():
        label = series_style(arm).label
        norms = [np.asarray(run, dtype=float) for run in runs]
        if not norms or any(run.ndim != 1 or run.size == 0 for run in norms):
            raise KlearError(f"{claim.id}, {arm}: expected one sequence of norms for each seed")
        finite = all(np.isfinite(run).all() for run in norms)
        steps = min(run.size for run in norms)
        share = min(_share_below(run, rule["median_factor"]) for run in norms)
        pooled = np.concatenate(norms)
        in_band = float(((pooled >= rule["band_low"]) & (pooled <= rule["band_high"])).mean())
        moved = all(np.median(run[: (run.size + 1) // 2]) > 0 for run in norms) or not finite
        seeds = paper_scale or len(norms) >= rule["min_seeds"]
        enough = moved and seeds and steps >= rule["min_steps"]
        if not finite or (enough and share < rule["min_share_below"]):
            broken.append(label)
        elif not enough:
            short.append(label)
        if in_band < rule["min_share_in_band"]:
            out_of_band.append(label)
        spikes = (
            "norms that are not finite" if not finite else f"{100 * share:.1f} % below the limit"
        )
        known = pooled[np.isfinite(pooled)]
        median = f"median {np.median(known):.3f}" if known.size else "no finite norm"
        texts.append(f"{label}: {spikes}, {median} ({len(norms)} seeds x {steps} steps)")
    missing = [series_style(arm).label for arm in claim.arms if arm not in grad_norms]
    settle = None
    if broken:
        word, reason = "opposite", f"not stable: {', '.join(broken)}"
    elif missing or short:
        word = "inconclusive"
        parts = {"missing": missing, "too few steps or seeds, or no gradient": short}
        reason = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
        settle = (
            f"every arm with {rule['min_seeds']:g} seeds of {rule['min_steps']:g} steps or more"
        )
    elif paper_scale and out_of_band:
        word = "opposite"
        reason = f"outside {rule['band_low']:g} to {rule['band_high']:g}: {', '.join(out_of_band)}"
    else:
        word, reason = "direction", "every run finite and without spikes"
    word = AT_PAPER.get(word, word) if paper_scale else word
    return verdict(claim, word, reason, settle=settle, measured="; ".join(texts))


def _share_below(norms: np.ndarray, factor: float) -> float:
    """Share of steps below `factor` times the median of the run's first half. The first half only:
    a run that blows up for good would lift the median of the whole."""
    return float((norms < factor * np.median(norms[: (len(norms) + 1) // 2])).mean())
