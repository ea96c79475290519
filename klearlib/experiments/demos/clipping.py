"""The printed objectives, differentiated by autograd, against F * A: true or false at any scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from klearlib.rl.coefficients import Rule

# From 0.01 to 100, off the ties r = 1 - eps_low, 1 + eps_high and the released code's r = 10, where
# the derivative of min and clamp is arbitrary.
RATIOS = tuple(10 ** (exponent / 20 + 0.011) for exponent in range(-40, 40))
ADVANTAGES = (-2.0, -0.5, 0.5, 2.0)


def printed_objective(
    rule: str, logp: torch.Tensor, logp_old: torch.Tensor, advantage: torch.Tensor, **numbers: float
) -> torch.Tensor:
    """The per-token objective as the paper prints it; its gradient is left to autograd.

    ``unclipped``: r A. ``clip_higher`` (Eqs. 3, 7): min(r A, clip(r) A). ``gppo`` (Eq. 11): min(r
    A, clip(r, (1 - el) r / sg(r), (1 + eh) r / sg(r)) A). ``gppo_general`` (Eq. 17): the same two
    clipped branches times beta. ``cispo``: sg(clip(r)) A log pi. ``gppo_released``: gppo in the
    dual clip of the released code, max(objective, c A) for A < 0.

    Args:
        logp, logp_old, advantage: tensors of one shape.
        numbers: eps_low, eps_high and, where the rule has them, beta_low, beta_high, dual_clip.
    """
    import torch

    ratio = torch.exp(logp - logp_old)
    low, high = 1 - numbers["eps_low"], 1 + numbers["eps_high"]
    if rule == "unclipped":
        return ratio * advantage
    if rule == "clip_higher":
        return torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    if rule == "cispo":
        return ratio.clamp(low, high).detach() * advantage * logp
    if rule == "gppo_general":
        below = numbers["beta_low"] * low * ratio / ratio.detach() * advantage
        above = numbers["beta_high"] * high * ratio / ratio.detach() * advantage
        kept = torch.where((ratio > high) & (advantage > 0), above, ratio * advantage)
        return torch.where((ratio < low) & (advantage < 0), below, kept)
    unit = ratio / ratio.detach()
    clipped = torch.maximum(torch.minimum(ratio, high * unit), low * unit)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    if rule == "gppo_released":
        bounded = torch.maximum(objective, numbers["dual_clip"] * advantage)
        return torch.where(advantage < 0, bounded, objective)
    return objective


def rules(eps_low: float, eps_high: float) -> dict[str, tuple[Rule, dict[str, float]]]:
    """Every rule that the paper prints, and the released GPPO, with the numbers of its
    objective."""
    from klearlib.rl.coefficients import cispo, gppo, ppo_clip, unclipped

    clip = {"eps_low": eps_low, "eps_high": eps_high}
    general = clip | {"beta_low": 0.5, "beta_high": 2.0}
    # The scripts of the released code have 10; the check needs a number beyond the clip range.
    released = clip | {"dual_clip": max(10.0, 2 * (1 + eps_high))}
    return {
        "unclipped": (unclipped(), clip),
        "clip_higher": (ppo_clip(**clip), clip),
        "gppo": (gppo(**clip), clip),
        "gppo_general": (gppo(**general), general),
        "cispo": (cispo(**clip), clip),
        "gppo_released": (gppo(**released), released),
    }


def gradient_check(
    *, eps_low: float, eps_high: float, others: Mapping[str, Rule] | None = None
) -> pd.DataFrame:
    """Autograd of each printed objective against F * A, in float64: rule, ratio, advantage,
    autograd, coefficient (F) and error = |autograd - F * A| over a grid.

    others: rules that no paper prints, by name; of them autograd takes the loss that trains, of
        tokens that were certain when they were drawn, in a distribution of 1 nat.
    """
    import pandas as pd
    import torch

    from klearlib.rl.coefficients import coefficient
    from klearlib.rl.objective import policy_loss

    ratio = torch.tensor(RATIOS, dtype=torch.float64).repeat(len(ADVANTAGES))
    advantage = torch.tensor(ADVANTAGES, dtype=torch.float64).repeat_interleave(len(RATIOS))
    printed = rules(eps_low, eps_high)
    parts = []
    for name, rule in ({n: each for n, (each, _) in printed.items()} | dict(others or {})).items():
        logp = ratio.log().requires_grad_()
        old = torch.zeros_like(logp)
        of_token = {"logp": logp.detach(), "logp_old": old, "entropy": torch.ones_like(old)}
        if name in printed:
            value = printed_objective(name, logp, old, advantage, **printed[name][1]).sum()
        else:
            tokens = (logp[None], old[None], advantage[None], torch.ones_like(logp)[None])
            how = {"rule": rule, "denominator": 1.0, "entropy": of_token["entropy"][None]}
            value = -policy_loss(*tokens, **how)
        (autograd,) = torch.autograd.grad(value, logp)
        factor = coefficient(ratio, advantage, rule, **of_token)
        columns = {"ratio": ratio, "advantage": advantage, "autograd": autograd}
        columns |= {"coefficient": factor, "error": (autograd - factor * advantage).abs()}
        arrays = {column: values.numpy() for column, values in columns.items()}
        parts.append(pd.DataFrame({"rule": name, **arrays}))
    return pd.concat(parts, ignore_index=True)


def corner_table(
    check: pd.DataFrame,
    *,
    eps_low: float,
    eps_high: float,
    others: Mapping[str, Rule] | None = None,
) -> pd.DataFrame:
    """One row a rule of `gradient_check`: the range of autograd / A over each corner, one number
    where the rule puts a constant there; the corners of `others` are those of their own clip
    ranges. `never_zero`: whether every token of the grid keeps a gradient."""
    import pandas as pd

    rows = []
    for name, mine in check.groupby("rule", sort=False):
        own = (others or {}).get(name)
        clip = (eps_low, eps_high) if own is None else (own.eps_low, own.eps_high)
        low, high = mine["ratio"] < 1 - clip[0], mine["ratio"] > 1 + clip[1]
        negative = mine["advantage"] < 0
        corners = {
            "r low, A < 0": low & negative,
            "r high, A > 0": high & ~negative,
            "r low, A > 0": low & ~negative,
            "r high, A < 0": high & negative,
        }
        factor = mine["autograd"] / mine["advantage"] + 0.0  # -0.0 becomes 0.0
        row: dict = {"rule": name}
        row |= {words: _range(factor[corner]) for words, corner in corners.items()}
        row["never_zero"] = "yes" if bool((mine["autograd"] != 0).all()) else "no"
        row["largest_error"] = mine["error"].max()
        rows.append(row)
    return pd.DataFrame(rows)


def _range(values: pd.Series) -> str:
    if values.empty:
        return "none on the grid"
    first, last = float(values.min()), float(values.max())
    return f"{first:.3g}" if last - first < 1e-9 else f"{first:.3g} to {last:.3g}"
