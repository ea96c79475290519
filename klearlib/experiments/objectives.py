"""Small exact demonstrations: the printed objectives, differentiated by autograd, against F * A;
and F over ratios, for figures. True or false at any scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from klearlib.rl.coefficients import Rule

# From 0.01 to 100, off the ties r = 1 - eps_low, 1 + eps_high and the released code's r = 10, where
# the derivative of min and clamp is arbitrary.
RATIOS = tuple(10 ** (exponent / 20 + 0.011) for exponent in range(-40, 40))
ADVANTAGES = (-2.0, -0.5, 0.5, 2.0)
# Of `alpha_gradients`, row by row: inside the clip range and beyond it on both sides.
_LOG_RATIOS = (0.05, -0.4, 0.5, -0.1, 0.6, -0.3, 0.02, 0.4, -0.6, -0.5)
DRAWN = np.geomspace(0.1, 3.0, 400)  # the ratios of `coefficients_of`


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

    others: rules without weights that no paper prints, by name; for them autograd differentiates
        the training loss, on tokens that were certain when they were drawn, in a distribution of 1
        nat.
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
    """One row per rule of `gradient_check`: the range of autograd / A over each corner, one number
    where the rule has a constant there; the corners of `others` are those of their own clip
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
        for words, corner in corners.items():
            first, last = factor[corner].min(), factor[corner].max()
            text = f"{first:.3g}" if last - first < 1e-9 else f"{first:.3g} to {last:.3g}"
            row[words] = text if corner.any() else "none on the grid"
        row["never_zero"] = "yes" if bool((mine["autograd"] != 0).all()) else "no"
        row["largest_error"] = mine["error"].max()
        rows.append(row)
    return pd.DataFrame(rows)


def alpha_gradients(alphas: Sequence[float], *, eps_low: float, eps_high: float) -> Iterator[dict]:
    """d(loss)/d(log pi) of Eq. 14 on the ten tokens of four responses, two of them correct: a row
    for each alpha.

    Autograd of the printed sum and of the training loop's loss against the closed form -F A / (all
    tokens) - alpha / (tokens of correct responses); `LM_part_split`: where two micro-batches take
    their own denominators (D5).
    """
    import torch

    from klearlib.rl.advantages import group_advantages
    from klearlib.rl.coefficients import coefficient, gppo
    from klearlib.rl.objective import positive_lm_loss, rl_loss
    from klearlib.rl.rollouts import Row, token_batch

    clip = {"eps_low": eps_low, "eps_high": eps_high}
    rule = gppo(**clip)
    correct = torch.tensor([True, False, True, False])
    mask = torch.arange(4) < torch.tensor([3, 2, 4, 1])[:, None]  # [N, T]
    shift = torch.zeros(mask.shape, dtype=torch.float64)
    shift[mask] = torch.tensor(_LOG_RATIOS, dtype=torch.float64)
    logp_old = torch.where(mask, torch.full(mask.shape, -1.5, dtype=torch.float64), 0.0)
    advantages = group_advantages(torch.where(correct, 1.0, -1.0).double()[None])[0]
    rows = [
        Row(torch.arange(0), 0, logp_old[n, mask[n]], float(advantages[n]), bool(correct[n]))
        for n in range(len(mask))
    ]
    positive = (mask & correct[:, None]).double()
    push = advantages[:, None] * coefficient(shift.exp(), advantages[:, None], rule)
    for alpha in alphas:
        logp = (logp_old + shift).requires_grad_()
        per_token = printed_objective("gppo", logp, logp_old, advantages[:, None], **clip)
        policy = -per_token[mask].sum() / mask.sum()
        printed = policy - alpha * (logp * positive).sum() / positive.sum()
        loop, *_ = rl_loss(logp[mask], token_batch(rows, rows), rule=rule, alpha=alpha)
        closed = -push * mask / mask.sum() - alpha * positive / positive.sum()
        split = sum(
            alpha * positive_lm_loss(logp[part], mask[part], correct[part]) / 2
            for part in (slice(0, 2), slice(2, 4))
        )
        found, of_loop, of_split = (
            torch.autograd.grad(value, logp, retain_graph=True, allow_unused=True)[0]
            for value in (printed, loop, split)
        )
        yield {
            "alpha": alpha,
            "tokens": int(mask.sum()),
            "positive_tokens": int(positive.sum()),
            "correct_token": found[0, 0].item(),
            "wrong_token": found[1, 0].item(),
            "LM_part": -alpha / int(positive.sum()),
            "LM_part_split_first": of_split[0, 0].item(),
            "LM_part_split_third": of_split[2, 0].item(),
            "autograd_error": (found - closed).abs().max().item(),
            "training_loop_error": (of_loop - closed).abs().max().item(),
        }


def coefficients_of(rule: Rule) -> pd.DataFrame | None:
    """Columns ratio, positive, negative: F w of a token that is a whole response, for A = 1 and
    A = -1; None where w depends on the other responses of a batch."""
    import pandas as pd
    import torch

    from klearlib.rl.coefficients import coefficient

    ratio = torch.from_numpy(DRAWN)
    old = torch.full_like(ratio, -1.0)
    of_token = {"logp_old": old, "logp": old + ratio.log(), "entropy": torch.ones_like(old)}
    columns = {"ratio": DRAWN}
    for name, sign in (("positive", 1.0), ("negative", -1.0)):
        advantage = torch.full_like(ratio, sign)
        factor = coefficient(ratio, advantage, rule, **of_token)
        if rule.weights is not None:
            one = torch.zeros(1, dtype=torch.int64)
            pairs = zip(ratio.log().split(1), advantage.split(1), strict=True)
            alone = torch.cat([rule.weights(*pair, one) for pair in pairs])
            together = rule.weights(ratio.log(), advantage, torch.arange(len(ratio)))
            if not torch.allclose(alone, together):
                return None
            factor = factor * alone
        columns[name] = factor.numpy()
    return pd.DataFrame(columns)
