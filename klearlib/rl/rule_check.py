"""Whether a function F(ratio, advantage) can be a clipping rule: tried on a small grid."""

from __future__ import annotations

import torch

from klearlib.own_code import failure
from klearlib.rl.coefficients import Rule, coefficient, largest_ratio

_ADVANTAGES = (-3.0, -0.5, 0.0, 0.5, 3.0)
_USUAL = (0.3, 0.79, 0.9, 1.0, 1.1, 1.29, 1.9, 12.0)
_EXTREME = (0.0, 1e-30, 1e-6, 0.02, 1e3, 1e9)


def check_function(rule: Rule) -> None:
    """Try the function of `rule` in float32, in which policies are trained, and float64.

    Raises:
        ValueError: in one line, that it raises, gives another shape or dtype or a result with a
            graph, changes its arguments, is not finite or so large that F A would not be, or lets
            what F is at a token depend on other tokens, of which each batch has others.
    """
    for dtype in (torch.float32, torch.float64):
        # Ratios of a run are capped there, and may underflow to 0.
        extreme = [*_USUAL, *_EXTREME, largest_ratio(dtype)]
        for ratios, words in ((_USUAL, "usual"), (extreme, f"extreme (0 to {extreme[-1]:.2g})")):
            size, count = len(_ADVANTAGES), len(ratios)
            ratio = torch.tensor(ratios, dtype=dtype).repeat(size)
            advantage = torch.tensor(_ADVANTAGES, dtype=dtype).repeat_interleave(count)
            _try(rule, ratio, advantage, words)


def _try(rule: Rule, ratio: torch.Tensor, advantage: torch.Tensor, words: str) -> None:
    def value_of(ratio: torch.Tensor, advantage: torch.Tensor) -> object:
        try:
            return coefficient(ratio, advantage, rule)
        except (Exception, SystemExit) as error:  # a user's code may raise anything
            raise ValueError(f"F fails on {words} ratios: {failure(error)}") from error

    given = advantage.clone()
    found, wanted = value_of(ratio, given), f"{ratio.dtype} {tuple(ratio.shape)} as the ratio"
    if not isinstance(found, torch.Tensor):
        raise ValueError(f"F must give a tensor, {wanted}, got {type(found).__name__}")
    if found.shape != ratio.shape or found.dtype != ratio.dtype:
        raise ValueError(f"F must give {wanted}, got {found.dtype} {tuple(found.shape)}")
    if found.requires_grad:
        raise ValueError("F is a constant factor of a gradient and must have no graph: detach it")
    if not torch.equal(given, advantage):
        raise ValueError("F changes the advantage in place: make a new tensor")
    # The cap of the ratio itself: F A and its sum over tokens cannot overflow then.
    bad = ~(found.abs() <= largest_ratio(ratio.dtype))
    if bad.any():
        at, value = int(bad.nonzero()[0]), float(found[bad][0])
        place = f"ratio {float(ratio[at]):.3g}, advantage {float(advantage[at]):g}"
        raise ValueError(f"F is {value:.3g} at {place}: bound it, for example by clamp")
    # One by one, and the last one first.
    alone = [value_of(ratio[[i]], advantage[[i]]) for i in reversed(range(len(ratio)))]
    if not torch.allclose(found, torch.cat(alone).flip(0)):
        raise ValueError(
            "F of a token changes with the tokens beside it or from call to call, and batches are "
            "cut by the memory: use nothing but the token's own ratio and advantage "
            "(docs/own-rule.md says where other rules belong)"
        )
