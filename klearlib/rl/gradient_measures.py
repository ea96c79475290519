"""Gradients of the policy loss that are measured and not followed; weights and random states stay
as they are, and no gradient is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from klearlib.rl.coefficients import CORNERS, Rule, corner_masks
from klearlib.rl.logprobs import read_tokens
from klearlib.rl.objective import token_weights
from klearlib.rl.rollouts import Row
from klearlib.sft.objective import log_likelihood_loss

if TYPE_CHECKING:
    from klearlib.policy.batch_plan import BatchPlan
    from klearlib.records import TokenBatch
    from klearlib.rl.settings import RLSettings

INSIDE = "inside"


def half_cosine(
    model, rows: Sequence[Row], *, settings: RLSettings, plan: BatchPlan
) -> float | None:
    """The cosine between the gradients of the policy loss on two halves of the groups of `rows`, at
    the weights as they are.

    With g_i = g + e_i and independent noise of covariance C for either half, its expectation is
    about |g|^2 / (|g|^2 + tr C): 1 without noise, 0 if there is nothing but noise. It has no unit,
    so rewards of different scales can be compared. The groups are dealt out in turn, in the order
    in which their problems were drawn. Every ratio is taken as 1, which it is before the first
    update, and alpha as 0: the loss on correct responses does not see the reward. It costs
    a forward and a backward pass of all rows, and the memory of a further gradient.

    None with fewer than two groups, and if a half has no gradient.
    """
    indices = list(dict.fromkeys(row.place[0] for row in rows))
    firsts = set(indices[::2])
    halves = [[r for r in rows if (r.place[0] in firsts) is one] for one in (True, False)]
    if not all(halves):
        return None

    def push(tokens: TokenBatch, logp: torch.Tensor, entropy: None) -> torch.Tensor:
        return tokens.advantage * tokens.correction  # F = 1 at ratio 1

    how = {"settings": settings, "plan": plan, "with_entropy": False}
    first, second = (_gradient(model, half, push, **how) for half in halves)
    return _cosine(first, second)


def corner_gradients(
    model, rows: Sequence[Row], *, rule: Rule, settings: RLSettings, plan: BatchPlan
) -> dict[str, float | None]:
    """Of the gradient of the policy loss on `rows`, a mini-batch: squared norm of the part of the
    tokens in each corner of the clip range, and its cosine with the part of those inside.

    The parts add up to the gradient, before its norm is clipped. Keys ``norm2_<corner>``,
    ``norm2_inside`` and ``cosine_<corner>``, None where either has no token. Five forward and
    backward passes.
    """

    def push_of(region: str) -> Callable[..., torch.Tensor]:
        def push(tokens: TokenBatch, logp: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
            of = (logp, tokens.logp_old, tokens.advantage, tokens.correction)
            clamp = settings.log_ratio_clamp
            whole = token_weights(*of, rule=rule, entropy=entropy, log_ratio_clamp=clamp)  # F A
            corners = corner_masks((logp - tokens.logp_old).exp(), tokens.advantage, rule)
            here = corners.get(region, ~torch.stack([*corners.values()]).any(0))
            return whole * here  # [C]

        return push

    how = {"settings": settings, "plan": plan}
    inside = _gradient(model, rows, push_of(INSIDE), **how)
    found: dict[str, float | None] = {f"norm2_{INSIDE}": _length(inside) ** 2}
    for corner in CORNERS:
        own = _gradient(model, rows, push_of(corner), **how)
        found |= {f"norm2_{corner}": _length(own) ** 2, f"cosine_{corner}": _cosine(inside, own)}
    return found


def _gradient(
    model,
    rows: Sequence[Row],
    push: Callable[..., torch.Tensor],
    *,
    settings: RLSettings,
    plan: BatchPlan,
    with_entropy: bool = True,
) -> list[torch.Tensor]:
    """Minus the gradient of the mean of `push`(tokens, logp, entropy) * logp over the rows."""

    def compute() -> None:
        model.zero_grad(set_to_none=True)
        for tokens, logp, entropy in read_tokens(
            model, rows, settings, plan, with_entropy=with_entropy
        ):
            weight = tokens.weight * push(tokens, logp.detach(), entropy)  # [C]
            log_likelihood_loss(logp, weight).backward()

    plan.fitting(compute, sequences=rows)
    gradient = [weight.grad for weight in model.parameters() if weight.grad is not None]
    model.zero_grad(set_to_none=True)
    return gradient


def _length(gradient: Sequence[torch.Tensor]) -> float:
    return float(sum(each.double().square().sum() for each in gradient).sqrt())


def _cosine(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float | None:
    product = sum((a.double() * b.double()).sum() for a, b in zip(first, second, strict=True))
    scale = _length(first) * _length(second)
    return float(product) / scale if scale else None
