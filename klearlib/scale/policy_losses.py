"""The clipping rules as verl's policy losses, for our trainer and for any other verl recipe.

``actor.policy_loss.loss_mode`` names one: ``klear_unclipped``, ``klear_ppo_clip`` and its other
name ``klear_clip_higher``, ``klear_gppo``, ``klear_cispo``. ``actor.clip_ratio_low`` and
``clip_ratio_high`` are eps_low and eps_high; what verl has no field for is in
`KlearPolicyLossConfig`. A module that imports this one has to be named in
``VERL_USE_EXTERNAL_MODULES``, as `klearlib.scale.trainer` is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from verl.trainer.ppo.core_algos import register_policy_loss
from verl.workers.config import PolicyLossConfig

from klearlib.errors import ParameterError
from klearlib.rl.coefficients import CORNERS, Rule, corner_masks
from klearlib.rl.objective import policy_loss
from klearlib.rl.rule_specs import rule_from

PREFIX = "klear_"
RULES = ("unclipped", "ppo_clip", "clip_higher", "gppo", "cispo")
NORMALIZERS = {"token-mean": "token", "seq-mean-token-mean": "sequence"}
"""verl's ``loss_agg_mode`` -> the normaliser of `klearlib.rl.objective.policy_loss`."""


@dataclass
class KlearPolicyLossConfig(PolicyLossConfig):
    """``actor.policy_loss`` of verl with the arguments of `klearlib.rl.coefficients` and of
    `klearlib.rl.objective`.

    alpha: weight of the LM loss on correct responses (Eq. 14), which our trainer's loss adds and a
    policy loss alone does not. beta_low, beta_high: GPPO's factors (Eq. 18). dual_clip,
    log_ratio_clamp: None as in the paper.
    """

    alpha: float = 0.0
    beta_low: float = 1.0
    beta_high: float = 1.0
    dual_clip: float | None = None
    log_ratio_clamp: float | None = None


def rule_of(config) -> Rule:
    """The rule that an actor's configuration describes, whose ``loss_mode`` is one of ours.

    Raises ParameterError where its ``policy_loss`` is not a `KlearPolicyLossConfig`; ValueError for
    a number out of range.
    """
    losses = config.policy_loss
    if not isinstance(losses, KlearPolicyLossConfig):
        raise ParameterError(
            f"loss_mode {losses.loss_mode!r} needs policy_loss._target_="
            f"{KlearPolicyLossConfig.__module__}.{KlearPolicyLossConfig.__name__}"
        )
    spec = {"name": losses.loss_mode.removeprefix(PREFIX)}
    if spec["name"] != "unclipped":
        spec |= {"eps_low": config.clip_ratio_low, "eps_high": config.clip_ratio_high}
    if spec["name"] == "gppo":
        spec |= {"beta_low": losses.beta_low, "beta_high": losses.beta_high}
    if losses.dual_clip is not None:
        spec["dual_clip"] = losses.dual_clip
    return rule_from(spec)


def _rule_loss(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config=None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """`klearlib.rl.objective.policy_loss` of a micro-batch, as verl calls a policy loss, and the
    share of the tokens in each corner of the clip range.

    All tensors [N, T]. The denominator is that of the mini-batch over all data-parallel ranks,
    whose gradients verl averages: hence the factor ``dp_size``.
    """
    whole = config.global_batch_info
    normalizer, rule = NORMALIZERS.get(loss_agg_mode, loss_agg_mode), rule_of(config)
    denominator = whole["batch_num_tokens" if normalizer == "token" else "global_batch_size"]
    loss = policy_loss(
        log_prob.float(),
        old_log_prob.float(),
        advantages.float(),
        response_mask,
        rule=rule,
        normalizer=normalizer,
        denominator=float(denominator),
        log_ratio_clamp=config.policy_loss.log_ratio_clamp,
        correction=None if rollout_is_weights is None else rollout_is_weights.float(),
    )
    ratio = (log_prob.detach().float() - old_log_prob.float()).exp()  # [N, T]
    mask, inside = response_mask.bool(), corner_masks(ratio, advantages, rule)
    count = mask.sum().clamp(min=1)
    shares = {
        f"actor/token_share_{corner}": ((inside[corner] & mask).sum() / count).item()
        for corner in CORNERS
    }
    return loss * whole["dp_size"], shares


for _name in RULES:
    register_policy_loss(PREFIX + _name)(_rule_loss)
