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

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from klearlib.own_code import failure, module_of

_SMALLEST = 1e-30  # a ratio, where its logarithm is taken
LARGEST_CONSTANT = 1e18
"""Below `largest_ratio` of float32."""
CORNERS = ("low_negative", "high_positive", "low_positive", "high_negative")
TOKEN_VALUES = ("logp", "logp_old", "entropy")
"""What a function of a rule may take by keyword beside ratio and advantage."""
# The grid of `trial_tokens`. A ratio may underflow to 0.
_ADVANTAGES = (-3.0, -0.5, 0.0, 0.5, 3.0)
_LOGP_OLD, _ENTROPY = (-0.01, -1.0, -15.0), (0.0, 0.7, 5.0, 12.0)
_RATIOS = (0.3, 0.79, 0.9, 1.0, 1.1, 1.29, 1.9, 12.0, 0.0, 1e-30, 1e-6, 0.02, 1e3, 1e9)


@dataclass(frozen=True)
class Rule:
    """What F is in each corner, a number, or None where it stays the ratio; or F as a `function`,
    or a `loss`.

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
    def is_own(self) -> bool:
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
    low, high = _ends(eps_low, eps_high)
    low *= _number("beta_low", beta_low, 0, LARGEST_CONSTANT)
    high *= _number("beta_high", beta_high, 0, LARGEST_CONSTANT)
    return Rule("gppo", eps_low, eps_high, low, high, dual_clip=dual_clip)


def cispo(*, eps_low: float, eps_high: float) -> Rule:
    """Eq. 16: F is the ratio clamped into the clip range, whatever the sign of A.

    eps_low, eps_high: see `ppo_clip`.

    >>> cispo(eps_low=0.2, eps_high=0.28).low_positive
    0.8
    """
    low, high = _ends(eps_low, eps_high)
    return Rule("cispo", eps_low, eps_high, low, high, low, high)


def _ends(eps_low: float, eps_high: float) -> tuple[float, float]:
    """Of the clip range."""
    return 1 - _number("eps_low", eps_low, 0, 1), 1 + _number("eps_high", eps_high, 0, math.inf)


def as_loss(function: Callable) -> Callable:
    """Decorator: the function of a user's file is L(ratio, advantage) of `Rule.loss`, not F."""
    function.is_loss = True
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
    if rule.is_own:
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
        raise ValueError(f"rule {rule.name} takes {', '.join(missing)} of each token: give it")
    taken = {name: of_token[name] for name in named}
    if rule.loss is None:
        return function(ratio, advantage, **taken)
    with torch.enable_grad():
        leaf = ratio.detach().clamp(min=_SMALLEST).requires_grad_()  # log r has a slope there
        loss = function(leaf, advantage, **taken)
        if not isinstance(loss, torch.Tensor) or loss.shape != ratio.shape:
            raise ValueError(f"a loss must give a tensor {tuple(ratio.shape)}, one for each token")
        (slope,) = torch.autograd.grad(loss.sum(), leaf)  # dL/dr
    # d(-L)/d(logp) = -r dL/dr, which is F * A.
    return torch.where(advantage == 0, torch.zeros_like(ratio), -leaf.detach() * slope / advantage)


def largest_ratio(dtype: torch.dtype) -> float:
    """The cap on a ratio: the square root of the dtype's range, so that F * A and its sum over
    tokens cannot overflow either. 1.8e19 for float32; no trained policy comes near."""
    return math.sqrt(torch.finfo(dtype).max)


def rule_from(spec: dict) -> Rule:
    """The rule of a JSON description ``{"name": ..., **arguments of its function}``.

    Names: ``unclipped``, ``clip_higher`` (and ``ppo_clip``, the same function), ``gppo``,
    ``cispo``. With ``source``, the text of a file of Python, the name is one in this file, of a
    `Rule`, which has its own numbers, or of a function F(ratio, advantage), or `as_loss` of one,
    which is given the arguments by keyword: eps_low and eps_high where it takes them, all others in
    any case, and `TOKEN_VALUES` where it takes them.

    Raises:
        ValueError: no dict with a name, an unknown name, or arguments that the rule does not take.

    >>> rule_from({"name": "clip_higher", "eps_low": 0.2, "eps_high": 0.28}).name
    'ppo_clip'
    """
    makers = {"unclipped": unclipped, "ppo_clip": ppo_clip, "clip_higher": ppo_clip}
    makers |= {"gppo": gppo, "cispo": cispo}
    name = spec.get("name") if isinstance(spec, dict) else None
    if not isinstance(name, str):
        raise ValueError(f"a rule needs its name and arguments in a dict, got {spec!r:.100}")
    make = functools.partial(_own_rule, name) if "source" in spec else makers.get(name)
    if make is None:
        raise ValueError(f"unknown clipping rule {name!r}; there are {', '.join(makers)}")
    try:
        return make(**{key: value for key, value in spec.items() if key != "name"})
    except TypeError as error:
        raise ValueError(f"clipping rule {name!r}: {error}") from error


def _own_rule(name: str, *, source: str, eps_low: float, eps_high: float, **values) -> Rule:
    module = module_of(source)
    own = vars(module).get(name)
    if isinstance(own, Rule):
        return own
    if not callable(own) or isinstance(own, type):
        names = [
            key
            for key, value in vars(module).items()
            if isinstance(value, Rule)
            or (inspect.isfunction(value) and value.__module__ == module.__name__)
        ]
        public = [key for key in names if not key.startswith("_")]
        raise ValueError(
            f"no rule {name!r} in the file, which has {', '.join(public) or 'none'}: a rule is a "
            "Rule or a function F(ratio, advantage)"
        )
    takes = inspect.signature(own)
    clip = {"eps_low": eps_low, "eps_high": eps_high}
    if own_values := sorted(values.keys() & set(TOKEN_VALUES)):
        raise ValueError(f"{', '.join(own_values)} is that of each token: give it no value")
    passed = {key: value for key, value in clip.items() if key in takes.parameters} | values
    try:
        of_token = dict.fromkeys(takes.parameters.keys() & set(TOKEN_VALUES))
        takes.bind("ratio", "advantage", **passed, **of_token)
    except TypeError as error:
        raise ValueError(
            f"{name}{takes} must take ratio and advantage, and by keyword eps_low, eps_high, "
            f"{', '.join(TOKEN_VALUES)} if it needs them: {error}"
        ) from None
    kind = "loss" if getattr(own, "is_loss", False) else "function"
    return Rule(name, eps_low, eps_high, **{kind: functools.partial(own, **passed)})


def check_function(rule: Rule) -> None:
    """Try the function of `rule` in float32, in which policies are trained, and float64.

    Raises ValueError, of one line, if it raises, gives another shape or dtype, is not finite or so
    large that F A would not be, or if F of a token depends on other tokens, of which each batch has
    others.
    """
    for dtype in (torch.float32, torch.float64):
        largest = largest_ratio(dtype)
        ratio, advantage, of_token = trial_tokens(dtype)  # [K]
        result = _value(rule, ratio, advantage, of_token)
        wanted = f"{dtype} {tuple(ratio.shape)} as the ratio"
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
        alone = [
            _value(rule, ratio[[i]], advantage[[i]], {n: v[[i]] for n, v in of_token.items()})
            for i in range(len(ratio))
        ]
        if not torch.allclose(result, torch.cat(alone)):
            raise ValueError(
                "F of a token changes with the tokens beside it or from call to call, and batches "
                "are cut to fit the memory: use nothing but the token's own values "
                "(docs/own-rule.md says where other rules belong)"
            )


def trial_tokens(
    dtype: torch.dtype, *, clip: Rule | None = None
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Ratio and advantage [K] and `TOKEN_VALUES` of a grid of tokens: ratios from 0 to
    `largest_ratio`, with `clip` also close to both ends of its clip range."""
    ratios = [*_RATIOS, largest_ratio(dtype)]
    if clip is not None:
        ends = (1 - clip.eps_low, 1 + clip.eps_high)
        ratios += [end * by for end in ends if math.isfinite(end) for by in (0.98, 1.02)]
    axes = (ratios, _ADVANTAGES, _LOGP_OLD, _ENTROPY)
    grid = torch.cartesian_prod(*(torch.tensor(axis, dtype=dtype) for axis in axes))  # [K, 4]
    ratio, advantage, logp_old, entropy = grid.unbind(1)
    log_ratio = ratio.clamp(min=_SMALLEST).log()
    logp_old = torch.minimum(logp_old, -log_ratio)  # so that no probability is above 1
    of_token = {"logp": logp_old + log_ratio, "logp_old": logp_old, "entropy": entropy}
    return ratio, advantage, of_token


def _value(rule: Rule, ratio: torch.Tensor, advantage: torch.Tensor, of_token: dict) -> object:
    try:
        return coefficient(ratio, advantage, rule, **of_token)
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        span = f"{float(ratio.min()):.2g} to {float(ratio.max()):.2g}"
        raise ValueError(f"F fails on ratios from {span}: {failure(error)}") from error
