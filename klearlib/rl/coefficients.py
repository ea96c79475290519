"""The clipping rules as one idea: the coefficient F in d(objective)/d(logp) = F * A (Eqs. 9-18).

F is the ratio r = pi / pi_old inside the clip range [1 - eps_low, 1 + eps_high]. Outside it there
are four corners, and a rule is nothing but what it puts there:

| rule            | r low, A < 0  | r high, A > 0  | r low, A > 0 | r high, A < 0 | Eq. |
|-----------------|---------------|----------------|--------------|---------------|-----|
| unclipped       | r             | r              | r            | r             | 9   |
| ppo_clip        | 0             | 0              | r            | r             | 10  |
| gppo            | b1 (1 - el)   | b2 (1 + eh)    | r            | r             | 12, 18 |
| cispo           | 1 - el        | 1 + eh         | 1 - el       | 1 + eh        | 16  |

`dual_clip` c is in the paper's released code and not in the paper: F = 0 where A < 0 and r > c. A
rule that no table of corners can express gives F as a function of what is known of a token, or a
loss of it, whose derivative is taken. A rule has no other state, so two arms of an experiment
differ in one value.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

SMALLEST_RATIO = 1e-30
"""Where its logarithm is taken."""
LARGEST_CONSTANT = 1e18
"""Below `largest_ratio` of float32."""
CORNERS = ("low_negative", "high_positive", "low_positive", "high_negative")
TOKEN_VALUES = ("logp", "logp_old", "entropy")
"""What a function of a rule may take by keyword beside ratio and advantage."""


@dataclass(frozen=True)
class Rule:
    """What F is in each corner, a number, or None where it stays the ratio; or F as a `function`,
    or a `loss`. With `weights` F of a token is multiplied by what its response or the whole
    mini-batch says.

    eps_low, eps_high: offsets from 1 of the clip range, in [0, 1] and [0, inf); eps_high may be
        infinite where F is the ratio in both high corners.
    dual_clip: F = 0 for A < 0 and r > dual_clip, a number above 1 + eps_high; None for none.
    function: F(ratio, advantage) -> a tensor of their shape and of the ratio's dtype, finite and
        token by token (`check_function`); then no corner and no dual_clip is given, and
        eps_low and eps_high only say which tokens the metrics count in which corner. It gets those
        of `TOKEN_VALUES` that it names: log pi and log pi_old of the token, and the entropy, in
        nats, of the distribution that it was drawn from, at the weights of now.
    loss: L(ratio, advantage) in place of a function, taking the same. Its derivative by autograd
        is what trains: F = -r dL/dr / A, and 0 where A is 0.
    weights: w(log_ratio, advantage, response) -> constant factors of the tokens, from the three of
        all K tokens of an optimiser mini-batch at the weights of now: log r float64, A, and the
        number of the response, counted from 0, in whose order the tokens are. All are [K]. It costs
        a forward pass more, see `klearlib.rl.mismatch.weighted`.

    Raises:
        ValueError: a number out of range, or a function beside corners.

    >>> Rule("half", eps_low=0.2, eps_high=0.28, low_negative=0.4, high_positive=0.64).dual_clip
    """

    name: str
    eps_low: float
    eps_high: float
    low_negative: float | None = None
    high_positive: float | None = None
    low_positive: float | None = None
    high_negative: float | None = None
    dual_clip: float | None = None
    function: Callable[..., torch.Tensor] | None = None
    loss: Callable[..., torch.Tensor] | None = None
    weights: Callable[..., torch.Tensor] | None = None

    def __post_init__(self) -> None:
        constants = {name: getattr(self, name) for name in (*CORNERS, "dual_clip")}
        given = {name: value for name, value in constants.items() if value is not None}
        _number("eps_low", self.eps_low, 0, 1)
        is_open = not {"high_positive", "high_negative"} & given.keys()  # F is the ratio up there
        high = 1 + _number("eps_high", self.eps_high, 0, math.inf if is_open else LARGEST_CONSTANT)
        for name, value in given.items():
            _number(name, value, -LARGEST_CONSTANT, LARGEST_CONSTANT)
        if self.dual_clip is not None and not self.dual_clip > high:
            raise ValueError(
                f"dual_clip must be above 1 + eps_high = {high} or None, got {self.dual_clip}"
            )
        own = {n: f for n in ("function", "loss") if (f := getattr(self, n)) is not None}
        for name, value in own.items():
            if not callable(value):
                raise ValueError(f"{name} must take (ratio, advantage), got {value!r:.100}")
            if others := [*given, *(own.keys() - {name})]:
                raise ValueError(f"F is given by a {name}, so {' and '.join(others)} must be None")

    @property
    def by_function(self) -> bool:
        """Whether F is not given by corners."""
        return self.function is not None or self.loss is not None

    @property
    def has_range(self) -> bool:
        """Whether a ratio can leave the clip range."""
        return self.eps_low < 1 or self.eps_high < math.inf


def _number(name: str, value: object, low: float, high: float) -> float:
    """`value`, a number from `low` to `high`; ValueError otherwise."""
    # NaN fails both comparisons.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        raise ValueError(f"{name} must be a number in [{low:g}, {high:g}], got {value!r:.100}")
    return value


def unclipped() -> Rule:
    """Eq. 9: F = r everywhere. The clip range is infinite, so no token is in a corner."""
    return Rule("unclipped", eps_low=1.0, eps_high=math.inf)


def ppo_clip(*, eps_low: float, eps_high: float, dual_clip: float | None = None) -> Rule:
    """Eq. 10: PPO and GRPO; Clip-Higher where eps_high > eps_low. Clipped tokens lose their
    gradient.

    eps_low, eps_high: offsets from 1 of the clip range, in [0, 1] and [0, inf); ValueError beyond.
    dual_clip: F = 0 for A < 0 and r > dual_clip (peers' default 3, released code 10, paper none).

    >>> ppo_clip(eps_low=0.2, eps_high=0.28).high_positive
    0.0
    """
    return Rule("ppo_clip", eps_low, eps_high, 0.0, 0.0, dual_clip=dual_clip)


def gppo(
    *,
    eps_low: float,
    eps_high: float,
    beta_low: float = 1.0,
    beta_high: float = 1.0,
    dual_clip: float | None = None,
) -> Rule:
    """Eq. 12 (beta = 1) and Eq. 18: clipped tokens keep a bounded, constant gradient.

    eps_low, eps_high: see `ppo_clip`. beta_low, beta_high: b1 and b2 of Eq. 18, >= 0; both 0 is
    `ppo_clip`. dual_clip: None as in the paper; 10 as in the released scripts, which breaks the
    paper's "never zero" for A < 0.

    >>> gppo(eps_low=0.2, eps_high=0.28).high_positive
    1.28
    """
    low = (1 - eps_low) * _number("beta_low", beta_low, 0, LARGEST_CONSTANT)
    high = (1 + eps_high) * _number("beta_high", beta_high, 0, LARGEST_CONSTANT)
    return Rule("gppo", eps_low, eps_high, low, high, dual_clip=dual_clip)


def cispo(*, eps_low: float, eps_high: float) -> Rule:
    """Eq. 16: F is the ratio clamped into the clip range, whatever the sign of A.

    eps_low, eps_high: see `ppo_clip`.

    >>> cispo(eps_low=0.2, eps_high=0.28).low_positive
    0.8
    """
    low, high = 1 - eps_low, 1 + eps_high
    return Rule("cispo", eps_low, eps_high, low, high, low, high)


def one(ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """F = 1: the gradient of the log-likelihood, for a rule whose `weights` say the rest."""
    return torch.ones_like(ratio)


def as_loss(function: Callable) -> Callable:
    """Decorator: the function of a user's file is L(ratio, advantage) of `Rule.loss`, not F."""
    function.kind = "loss"
    return function


def as_weights(function: Callable) -> Callable:
    """Decorator: the function of a user's file is w(log_ratio, advantage, response) of
    `Rule.weights`, with F = 1 beside it."""
    function.kind = "weights"
    return function


def corner_masks(
    ratio: torch.Tensor, advantage: torch.Tensor, rule: Rule
) -> dict[str, torch.Tensor]:
    """Which tokens stand in which corner of `rule`'s clip range: a bool tensor [N, T] for each name
    of `CORNERS`. A token with A = 0, or on a tie r = 1 - eps_low or 1 + eps_high, is in none.

    ratio, advantage: tensors that broadcast to [N, T].
    """
    low, high = ratio < 1 - rule.eps_low, ratio > 1 + rule.eps_high  # bool [N, T]
    negative, positive = advantage < 0, advantage > 0
    return {
        "low_negative": low & negative,
        "high_positive": high & positive,
        "low_positive": low & positive,
        "high_negative": high & negative,
    }


def coefficient(
    ratio: torch.Tensor, advantage: torch.Tensor, rule: Rule, **of_token: torch.Tensor | None
) -> torch.Tensor:
    """F of `rule` for each token (table above).

    Args:
        ratio: pi / pi_old >= 0, and advantage: tensors that broadcast to [N, T].
        rule: what `unclipped`, `ppo_clip`, `gppo` or `cispo` returned, or a `Rule` of one's own.
        of_token: `TOKEN_VALUES`, tensors [N, T], for a rule of one's own that takes them.

    Returns:
        F [N, T] in the dtype of `ratio`. Where F is the ratio it is capped at `largest_ratio`, so
        that it stays finite; no cap ever turns it into zero.

    >>> rule = gppo(eps_low=0.2, eps_high=0.28)
    >>> coefficient(torch.tensor([0.5, 1.1, 2.0]), torch.tensor(1.0), rule)
    tensor([0.5000, 1.1000, 1.2800])
    """
    if not ratio.is_floating_point():
        raise ValueError(f"ratio must be a floating point tensor, got {ratio.dtype}")
    ratio, advantage = torch.broadcast_tensors(ratio, advantage)
    result = ratio.clamp(max=largest_ratio(ratio.dtype))
    if rule.by_function:
        return _by_function(result, advantage, rule, of_token)
    # Eqs. 9-18: the ratio, but for the corners in which the rule has a constant.
    for corner, mask in corner_masks(ratio, advantage, rule).items():
        constant = getattr(rule, corner)
        if constant is not None:
            result = torch.where(mask, torch.full_like(result, constant), result)
    if rule.dual_clip is not None:
        beyond = (advantage < 0) & (ratio > rule.dual_clip)  # where the loss is bounded
        result = torch.where(beyond, torch.zeros_like(result), result)
    return result


def _by_function(ratio, advantage, rule: Rule, of_token: dict) -> torch.Tensor:
    function = rule.function or rule.loss
    named = [name for name in TOKEN_VALUES if name in inspect.signature(function).parameters]
    if missing := [name for name in named if of_token.get(name) is None]:
        keywords = ", ".join(f"{name}=" for name in missing)
        raise ValueError(f"rule {rule.name} needs per-token {', '.join(missing)}: pass {keywords}")
    taken = {name: of_token[name] for name in named}
    if rule.loss is None:
        return function(ratio, advantage, **taken)
    with torch.enable_grad():
        leaf = ratio.detach().clamp(min=SMALLEST_RATIO).requires_grad_()  # log r has a slope there
        loss = function(leaf, advantage, **taken)
        if not isinstance(loss, torch.Tensor) or loss.shape != ratio.shape:
            raise ValueError(f"a loss must return a tensor {tuple(ratio.shape)}, a value per token")
        (slope,) = torch.autograd.grad(loss.sum(), leaf)  # dL/dr
    # d(-L)/d(logp) = -r dL/dr, which is F * A.
    return torch.where(advantage == 0, torch.zeros_like(ratio), -leaf.detach() * slope / advantage)


def largest_ratio(dtype: torch.dtype) -> float:
    """The cap on a ratio: the square root of the dtype's range, so that F * A and its sum over
    tokens cannot overflow either. 1.8e19 for float32; no trained policy comes near."""
    return math.sqrt(torch.finfo(dtype).max)
