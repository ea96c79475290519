"""Clipping and weighting rules of other papers, each by d(objective)/d(logp) = F A w.

r is pi / pi_old of a token, s the geometric mean of r over a response and W its product. Each
function below gives F (`Rule.function`) or w (`Rule.weights`) of one rule. A number of a paper is
an argument here and stands in `klearlib.rl.rule_table`, beside the paper and the code that was
read. `tests/rl/test_published.py` holds each against its printed objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from klearlib.rl.coefficients import Rule, largest_ratio, one

_LARGEST = largest_ratio(torch.float32)


def leaves(ratio: torch.Tensor, advantage: torch.Tensor, *, low, high) -> torch.Tensor:
    """Where PPO's clip has no gradient: bool, of tensors that broadcast. A tie does not leave."""
    return ((advantage > 0) & (ratio > high)) | ((advantage < 0) & (ratio < low))


def of_response(
    values: torch.Tensor, response: torch.Tensor, reduce: Callable = torch.mean
) -> torch.Tensor:
    """`reduce` of the values [K] of each response, at each of its tokens: [K]."""
    lengths = torch.bincount(response)  # [N]
    found = torch.stack([reduce(part) for part in values.split(lengths.tolist())])
    return found.repeat_interleave(lengths)


# F of a token.


def _one_sided(ratio, advantage, *, cap):
    """CISPO without its lower bound: min(r, cap), whatever the sign of A."""
    return ratio.clamp(max=cap)


def _aspo(ratio, advantage, *, eps_low, eps_high, cap):
    """ASPO: Clip-Higher whose ratio is flipped to 1 / r where A > 0, so that unlikely tokens are
    pushed most; what is left is clamped at `cap` and keeps its gradient."""
    flipped = torch.where(advantage > 0, 1 / ratio, ratio)
    cut = leaves(ratio, advantage, low=1 - eps_low, high=1 + eps_high)
    return torch.where(cut, torch.zeros_like(ratio), flipped.clamp(max=cap))


def _sapo(ratio, advantage, *, tau_positive, tau_negative):
    """SAPO: the derivative of a sigmoid of r - 1 in the place of a clip; F(1) = 1."""
    positive = (advantage > 0).to(ratio.dtype)  # 1 or 0, so that tau has all its digits
    tau = tau_positive * positive + tau_negative * (1 - positive)
    gate = torch.sigmoid(tau * (ratio - 1))
    return 4 * gate * torch.sigmoid(tau * (1 - ratio)) * ratio


def _dgpo(ratio, advantage, *, eps_low, eps_high, power_low, root_high):
    """DGPO: powers of r beyond both bounds, continuous there."""
    low, high = 1 - eps_low, 1 + eps_high
    beyond = high ** (1 / root_high) * ratio ** (1 - 1 / root_high)
    outward = torch.where(advantage > 0, beyond, ratio ** (power_low + 1) / low**power_low)
    return torch.where(leaves(ratio, advantage, low=low, high=high), outward, ratio)


def _topr_token(ratio, advantage):
    """TOPR by token: 1 where A > 0, and min(r, 1) elsewhere."""
    return torch.where(advantage > 0, torch.ones_like(ratio), ratio.clamp(max=1.0))


def _dppo_tv(ratio, advantage, *, logp, logp_old, delta, cap):
    """DPPO: min(r, cap), and 0 where A pushes a probability further than `delta` away."""
    change = logp.exp() - logp_old.exp()  # p - q
    outward = leaves(change, advantage, low=-delta, high=delta)
    return torch.where(outward, torch.zeros_like(ratio), ratio.clamp(max=cap))


def _dppo_kl(ratio, advantage, *, logp, logp_old, delta, cap):
    """The same by the KL divergence of two coins, which show this token or another."""
    p, q = logp.exp(), logp_old.exp()  # now, and of the policy that sampled
    others = (1 - q) * ((1 - q + 1e-8).log() - (1 - p + 1e-8).log())
    far = q * (logp_old - logp) + others > delta
    outward = far & (((advantage > 0) & (p > q)) | ((advantage < 0) & (p < q)))
    return torch.where(outward, torch.zeros_like(ratio), ratio.clamp(max=cap))


def _dcpo(ratio, advantage, *, logp_old, eps_low, eps_high, cap):
    """DCPO: PPO in a range that is wider for tokens that were unlikely."""
    q = logp_old.exp().clamp(min=1e-30)  # of the policy that sampled; not 0, it divides
    low = 0.5 + 0.5 * (1 - 4 * eps_low / q).clamp(min=0).sqrt()
    high = (0.5 + 0.5 * (1 + 4 * eps_high / q).sqrt()).clamp(max=cap)
    cut = leaves(ratio, advantage, low=low, high=high) | ((advantage < 0) & (ratio > cap))
    return torch.where(cut, torch.zeros_like(ratio), ratio)


# w of the tokens of responses and mini-batches; all arguments [K], log_ratio in float64.


def _sequence_ratio(log_ratio, advantage, response, *, eps_low, eps_high):
    """GSPO: s, and 0 where s leaves the clip range outwards."""
    s = of_response(log_ratio, response).exp().clamp(max=_LARGEST)  # [K]
    return torch.where(leaves(s, advantage, low=1 - eps_low, high=1 + eps_high), 0.0, s)


def _gmpo(log_ratio, advantage, response, *, clip):
    """GMPO: the geometric mean of the ratios, each clipped outwards at exp(+-clip); 0 for tokens
    that are clipped."""
    cut = leaves(log_ratio, advantage, low=-clip, high=clip)
    clipped = torch.where(cut, log_ratio.clamp(-clip, clip), log_ratio)
    return torch.where(cut, 0.0, of_response(clipped, response).exp().clamp(max=_LARGEST))


def _vespo(log_ratio, advantage, response, *, positive, negative):
    """VESPO: W^k exp(l (1 - W)), with (k, l) by the sign of A and log W clamped to 20."""
    log_w = of_response(log_ratio, response, torch.sum).clamp(-20, 20)  # as its code
    is_positive = (advantage >= 0).double()
    k, decay = (
        p * is_positive + n * (1 - is_positive) for p, n in zip(positive, negative, strict=True)
    )
    return (k * log_w + decay * (1 - log_w.exp())).exp()


def _topr(log_ratio, advantage, response):
    """TOPR: 1 where A >= 0, and min(W, 1) elsewhere."""
    w = of_response(log_ratio, response, torch.sum).clamp(max=0.0).exp()  # min(W, 1)
    return torch.where(advantage < 0, w, 1.0)


def _off_policy_mask(log_ratio, advantage, response, *, delta):
    """OPSM: 0 for responses with A < 0 whose mean log(pi_old / pi) is above `delta`."""
    far = of_response(-log_ratio, response) > delta
    return torch.where(far & (advantage < 0), 0.0, 1.0)


def second_moment_mask(log_ratio, advantage, response, *, budget):
    """M2PO as printed: 0 for the tokens with the largest (log r)^2, of those that A pushes
    outwards, until the mean of the others' is at most `budget`; 1 elsewhere."""
    pushed = (log_ratio * advantage > 0).nonzero().squeeze(1)  # indices [T] of [K]
    squares, order = log_ratio[pushed].square().sort(stable=True)  # rising
    means = squares.cumsum(0) / torch.arange(1, len(squares) + 1)  # so it never falls
    kept = torch.ones_like(log_ratio)
    kept[pushed[order[means > budget]]] = 0.0
    return kept


def capped_second_moment_mask(log_ratio, advantage, response, *, budget, widest_low, widest_high):
    """M2PO's released code: 0 where PPO's clip, in one range for the mini-batch, has no gradient.

    T are the tokens that A pushes outwards. If the mean of (log r)^2 over T is at most `budget`,
    nothing is clipped. Else the range is [exp(-t), exp(t)], t the largest abs(log r) in T whose sum
    over T of min((log r)^2, t^2) is below the budget times the size of T, or 0 if there is none;
    then it is widened to [`widest_low`, `widest_high`]. A token beyond t still counts t^2, so
    before it is widened the range cuts at least the tokens that `second_moment_mask` drops. The
    released code looks at a micro-batch.
    """
    kept = torch.ones_like(log_ratio)
    pushed = log_ratio * advantage > 0
    sizes = log_ratio[pushed].double().abs().sort().values  # [T], rising
    squares, budget = sizes.square(), budget * len(sizes)
    if squares.sum() <= budget:
        return kept
    num_larger = torch.arange(len(sizes) - 1, -1, -1)  # of each, those that a cap there cuts
    fits = squares.cumsum(0) + num_larger * squares < budget
    t = float(sizes[fits].max()) if fits.any() else 0.0
    low, high = min(-t, math.log(widest_low)), max(t, math.log(widest_high))
    kept[pushed & ((log_ratio < low) | (log_ratio > high))] = 0.0
    return kept


def _balanced_clip(log_ratio, advantage, response, *, low, high, step, target, cap):
    """BAPO: PPO's mask in the narrowest range, from `low` and `high` (start, end) in steps, in
    which positive tokens have `target` of the weight of negative ones; 0 too where A < 0 and
    r > `cap`."""
    ratio = log_ratio.exp()
    (lowest, most_low), (highest, most_high) = low, high

    def balance() -> float:
        up = (ratio.clamp(max=highest) * advantage)[advantage >= 0].sum()
        down = (ratio.clamp(min=lowest) * advantage)[advantage < 0].abs().sum()
        return float(up / down) if down > 0 else math.inf

    while balance() < target:
        if lowest + step <= most_low + 1e-9:
            lowest += step
        elif highest + step <= most_high + 1e-9:
            highest += step
        else:
            break
    cut = leaves(ratio, advantage, low=lowest, high=highest) | ((advantage < 0) & (ratio > cap))
    return torch.where(cut, 0.0, 1.0)


def _maker(
    name: str,
    function: Callable | None,
    weights: Callable | None = None,
    *,
    range_matters: bool = False,
) -> Callable[..., Rule]:
    """The maker of a rule of F and w, whose numbers go to w if it has one. Without a `function` F
    is the ratio. range_matters: eps_low and eps_high go there too; otherwise they only say which
    tokens the metrics count in which corner."""

    def make(*, eps_low: float, eps_high: float, **values) -> Rule:
        clip = {"eps_low": eps_low, "eps_high": eps_high}
        taken = values | (clip if range_matters else {})
        if weights is None:
            return Rule(name, **clip, function=partial(function, **taken))
        return Rule(name, **clip, function=function, weights=partial(weights, **taken))

    return make


def _ratio_low(*, eps_low: float, eps_high: float) -> Rule:
    """GPPO with F = r in its low corner: the floor is taken away, the gradient kept."""
    return Rule("gppo_ratio_low", eps_low, eps_high, high_positive=1 + eps_high)


def _opsm(*, eps_low: float, eps_high: float, delta: float) -> Rule:
    weights = partial(_off_policy_mask, delta=delta)
    return Rule("opsm", eps_low, eps_high, 0.0, 0.0, weights=weights)  # on PPO's clip


MAKERS: dict[str, Callable[..., Rule]] = {
    "gppo_ratio_low": _ratio_low,
    "cispo_one_sided": _maker("cispo_one_sided", _one_sided),
    "aspo": _maker("aspo", _aspo, range_matters=True),
    "sapo": _maker("sapo", _sapo),
    "dgpo": _maker("dgpo", _dgpo, range_matters=True),
    "topr_token": _maker("topr_token", _topr_token),
    "dppo_tv": _maker("dppo_tv", _dppo_tv),
    "dppo_kl": _maker("dppo_kl", _dppo_kl),
    "dcpo": _maker("dcpo", _dcpo, range_matters=True),
    "reinforce": _maker("reinforce", one),
    "gspo": _maker("gspo", one, _sequence_ratio, range_matters=True),
    "gmpo": _maker("gmpo", one, _gmpo),
    "vespo": _maker("vespo", one, _vespo),
    "topr": _maker("topr", one, _topr),
    "m2po": _maker("m2po", None, second_moment_mask),
    "m2po_capped": _maker("m2po_capped", None, capped_second_moment_mask),
    "bapo": _maker("bapo", None, _balanced_clip),
    "opsm": _opsm,
}
"""Name in a description -> the function that makes the rule of its numbers, all by keyword."""
