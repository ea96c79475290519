"""A rule from its description in JSON, and the trial of a rule of a user's own."""

from __future__ import annotations

import functools
import inspect
import math

import torch

from klearlib.own_code import failure, module_of
from klearlib.rl import coefficients, published
from klearlib.rl.coefficients import SMALLEST_RATIO, TOKEN_VALUES, Rule, coefficient, largest_ratio

_PAPER = {"ppo_clip": coefficients.ppo_clip, "clip_higher": coefficients.ppo_clip}
_PAPER |= {name: getattr(coefficients, name) for name in ("unclipped", "gppo", "cispo")}
MAKERS = _PAPER | published.MAKERS
"""Name in a description -> the function that makes the rule."""
# The grid of `trial_tokens`. A ratio may underflow to 0.
_ADVANTAGES = (-3.0, -0.5, 0.0, 0.5, 3.0)
_LOGP_OLD, _ENTROPY = (-0.01, -1.0, -15.0), (0.0, 0.7, 5.0, 12.0)
_RATIOS = (0.3, 0.79, 0.9, 1.0, 1.1, 1.29, 1.9, 12.0, 0.0, 1e-30, 1e-6, 0.02, 1e3, 1e9)
_RESPONSE_TOKENS = 7
"""Of the responses into which the grid is cut for a rule with weights."""


def rule_from(spec: dict) -> Rule:
    """The rule of a JSON description ``{"name": ..., **arguments of its function}``.

    Names: those of `MAKERS`. With ``source``, the text of a file of Python, the name is one in this
    file, of a `Rule`, which has its own numbers, or of a function F(ratio, advantage), `as_loss` or
    `as_weights` of one, which is given the arguments by keyword: eps_low and eps_high where it
    takes them, all others in any case, and `TOKEN_VALUES` where it takes them.

    Raises:
        ValueError: no dict with a name, an unknown name, or arguments that the rule does not take.

    >>> rule_from({"name": "clip_higher", "eps_low": 0.2, "eps_high": 0.28}).name
    'ppo_clip'
    """
    name = spec.get("name") if isinstance(spec, dict) else None
    if not isinstance(name, str):
        raise ValueError(f"a rule must be a dict with a name and its arguments, got {spec!r:.100}")
    make = functools.partial(_own_rule, name) if "source" in spec else MAKERS.get(name)
    if make is None:
        raise ValueError(f"unknown clipping rule {name!r}: use one of {', '.join(MAKERS)}")
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
            f"the file has no rule {name!r}; its rules: {', '.join(public) or 'none'}. A rule is "
            "a Rule or a function F(ratio, advantage)"
        )
    kind = getattr(own, "kind", "function")
    given = ("log_ratio", "advantage", "response") if kind == "weights" else ("ratio", "advantage")
    takes = inspect.signature(own)
    clip = {"eps_low": eps_low, "eps_high": eps_high}
    if own_values := sorted(values.keys() & set(TOKEN_VALUES)):
        raise ValueError(f"{', '.join(own_values)} is filled in per token: remove its value")
    passed = {key: value for key, value in clip.items() if key in takes.parameters} | values
    try:
        of_token = dict.fromkeys(takes.parameters.keys() & set(TOKEN_VALUES))
        takes.bind(*given, **passed, **of_token)
    except TypeError as error:
        raise ValueError(
            f"{name}{takes} must take {' and '.join(given)}, and may take eps_low, eps_high, "
            f"{', '.join(TOKEN_VALUES)} by keyword: {error}"
        ) from None
    values = {kind: functools.partial(own, **passed)}
    if kind == "weights":
        values["function"] = coefficients.one
    return Rule(name, eps_low, eps_high, **values)


def check_function(rule: Rule) -> None:
    """Try the function of `rule` in float32, in which policies are trained, and float64, and its
    weights.

    Raises ValueError, of one line, if it raises, gives another shape or dtype, is not finite or so
    large that F A would not be, or if F of a token depends on other tokens, of which each batch has
    others.
    """
    if rule.weights is not None:
        _check_weights(rule)
    for dtype in (torch.float32, torch.float64):
        largest = largest_ratio(dtype)
        ratio, advantage, of_token = trial_tokens(dtype)  # [K]
        result = _value(rule, ratio, advantage, of_token)
        wanted = f"{dtype} {tuple(ratio.shape)} like the ratio"
        if not isinstance(result, torch.Tensor):
            raise ValueError(f"F must return a tensor, {wanted}, got {type(result).__name__}")
        if result.shape != ratio.shape or result.dtype != dtype:
            raise ValueError(f"F must return {wanted}, got {result.dtype} {tuple(result.shape)}")
        # As the ratio itself is capped, so that F A and its sum over tokens cannot overflow.
        bad = ~(result.abs() <= largest)
        if bad.any():
            at = int(bad.nonzero()[0])
            place = f"ratio {float(ratio[at]):.3g}, advantage {float(advantage[at]):g}"
            raise ValueError(
                f"F is {float(result[at]):.3g} at {place}: bound it, for example with clamp"
            )
        alone = [
            _value(rule, ratio[[i]], advantage[[i]], {n: v[[i]] for n, v in of_token.items()})
            for i in range(len(ratio))
        ]
        if not torch.allclose(result, torch.cat(alone)):
            raise ValueError(
                "F of a token depends on other tokens or differs from call to call, but batches "
                "are split to fit into memory: use only the token's own values (docs/own-rule.md "
                "says where other rules belong)"
            )


def _check_weights(rule: Rule) -> None:
    ratio, advantage, _ = trial_tokens(torch.float64)
    response = torch.arange(len(ratio)) // _RESPONSE_TOKENS  # [K]
    advantage = advantage[response * _RESPONSE_TOKENS]  # one of each response
    try:
        found = rule.weights(ratio.clamp(SMALLEST_RATIO).log(), advantage, response)
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise ValueError(f"the weights of the rule fail: {failure(error)}") from error
    if not isinstance(found, torch.Tensor) or found.shape != ratio.shape:
        raise ValueError(f"weights must be a tensor {tuple(ratio.shape)}, one factor per token")
    if not (found.abs() <= largest_ratio(torch.float32)).all():  # not NaN either
        raise ValueError("a weight is not finite or too large: bound it, for example with clamp")


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
    log_ratio = ratio.clamp(min=SMALLEST_RATIO).log()
    logp_old = torch.minimum(logp_old, -log_ratio)  # so that no probability is above 1
    of_token = {"logp": logp_old + log_ratio, "logp_old": logp_old, "entropy": entropy}
    return ratio, advantage, of_token


def _value(rule: Rule, ratio: torch.Tensor, advantage: torch.Tensor, of_token: dict) -> object:
    try:
        return coefficient(ratio, advantage, rule, **of_token)
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        span = f"{float(ratio.min()):.2g} to {float(ratio.max()):.2g}"
        raise ValueError(f"F fails on ratios from {span}: {failure(error)}") from error
