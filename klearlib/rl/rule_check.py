"""Whether a function F(ratio, advantage) can be a clipping rule: tried on a small grid."""

from __future__ import annotations

import torch

from klearlib.own_code import failure
from klearlib.rl.coefficients import Rule, coefficient, largest_ratio

_ADVANTAGES = (-3.0, -0.5, 0.0, 0.5, 3.0)
# A ratio may underflow to 0; the largest is added, where ratios are capped.
_RATIOS = (0.3, 0.79, 0.9, 1.0, 1.1, 1.29, 1.9, 12.0, 0.0, 1e-30, 1e-6, 0.02, 1e3, 1e9)


def check_function(rule: Rule) -> None:
    """Try the function of `rule` in float32, in which policies are trained, and float64.

    Raises ValueError, of one line, if it raises, gives another shape or dtype, is not finite or so
    large that F A would not be, or if F of a token depends on other tokens, of which each batch has
    others.
    """
    for dtype in (torch.float32, torch.float64):
        largest = largest_ratio(dtype)
        ratio = torch.tensor([*_RATIOS, largest], dtype=dtype).repeat(len(_ADVANTAGES))  # [K]
        advantage = torch.tensor(_ADVANTAGES, dtype=dtype).repeat_interleave(len(_RATIOS) + 1)
        result, wanted = (
            _value(rule, ratio, advantage),
            f"{dtype} {tuple(ratio.shape)} as the ratio",
        )
        if not isinstance(result, torch.Tensor):
            raise ValueError(f"F must give a tensor, {wanted}, got {type(result).__name__}")
        if result.shape != ratio.shape or result.dtype != dtype:
            raise ValueError(f"F must give {wanted}, got {result.dtype} {tuple(result.shape)}")
        # As the ratio itself is capped, so that F A and its sum over tokens cannot overflow.
        bad = ~(result.abs() <= largest)
        if bad.any():
            at = int(bad.nonzero()[0])
            place = f"ratio {float(ratio[at]):.3g}, advantage {float(advantage[at]):g}"
            raise ValueError(f"F is {float(result[at]):.3g} at {place}: bound it, as by clamp")
        alone = [_value(rule, ratio[[i]], advantage[[i]]) for i in range(len(ratio))]
        if not torch.allclose(result, torch.cat(alone)):
            raise ValueError(
                "F of a token changes with the tokens beside it or from call to call, and batches "
                "are cut to fit the memory: use nothing but the token's own ratio and advantage "
                "(docs/own-rule.md says where other rules belong)"
            )


def _value(rule: Rule, ratio: torch.Tensor, advantage: torch.Tensor) -> object:
    try:
        return coefficient(ratio, advantage, rule)
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        span = f"{float(ratio.min()):.2g} to {float(ratio.max()):.2g}"
        raise ValueError(f"F fails on ratios from {span}: {failure(error)}") from error
