"""verl's configuration of a run: ``recipe.yaml`` with the rule, the settings and the cluster in it,
as hydra overrides of verl's ``ppo_trainer``, composed and checked before any process is started."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf
from verl.utils.config import omega_conf_to_dataclass, validate_config

from klearlib.errors import KlearError, ParameterError, one_line
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.settings import RLSettings
from klearlib.scale.cluster import PACKED, Cluster
from klearlib.scale.policy_losses import NORMALIZERS

RECIPE = Path(__file__).with_name("recipe.yaml")


def overrides(
    *,
    rule: dict,
    settings: RLSettings,
    cluster: Cluster,
    seed: int,
    model: Path,
    world: Path,
    problems: Path,
    checkpoints: Path,
    resumed: Path | None,
    updated_steps: int,
) -> list[str]:
    """The hydra overrides of a run of `klearlib.scale.trainer.KlearTrainer`, the cluster's own
    last.

    Args:
        rule: see `klearlib.rl.rule_specs.rule_from`.
        model: the folder of the policy. problems: the file of the training problems.
        checkpoints: verl's folder for its own. resumed: the one to go on from.
        updated_steps: the steps so far in which a group survived, which verl's learning-rate
            schedule counts.

    Raises:
        ParameterError: an override of what the settings decide.
    """
    chosen, words = rule_from(rule), {ours: theirs for theirs, ours in NORMALIZERS.items()}
    factors = {name: rule.get(name, 1.0) for name in ("beta_low", "beta_high")}
    clips = {name: getattr(chosen, name) for name in ("eps_low", "eps_high", "dual_clip")}
    folders = {"model": model, "world": world, "problems": problems}
    folders |= {"checkpoints": checkpoints, "resumed": resumed}
    run = {
        **{name: path and str(path.absolute()) for name, path in folders.items()},
        "rule": rule,
        "seed": seed,
        "updated_steps": updated_steps,
        "loss_agg_mode": words[settings.normalizer],
        "first_full_step": settings.warmup_steps + 1,
        "resume_mode": "disable" if resumed is None else "resume_path",
        "packed": cluster.attention == PACKED,
        "positions": cluster.positions(max_new_tokens=settings.max_new_tokens),
        "dtype": {"fp32": "float32", "bf16": "bfloat16"}[cluster.precision],
    }
    given = {"settings": asdict(settings), "rule": {"name": rule["name"], **factors, **clips}}
    recipe = OmegaConf.create(
        given | {"cluster": asdict(cluster), "run": run, "recipe": OmegaConf.load(RECIPE)}
    )
    recipe = OmegaConf.to_container(recipe, resolve=True)["recipe"]
    decided = _flat(recipe["decided"])
    _require_untouched(cluster.overrides, [*decided, *recipe["whole"]])
    values = {**decided, **_flat(recipe["open"])}
    return [*(f"{key}={_text(value)}" for key, value in values.items()), *cluster.overrides]


def _flat(sections: dict[str, dict]) -> dict[str, object]:
    """The keys with their section and a "+" in front."""
    return {
        ("+" if key.startswith("+") else "") + f"{section}.{key.removeprefix('+')}": value
        for section, keys in sections.items()
        for key, value in keys.items()
    }


def _require_untouched(overrides: list[str], ours: list[str]) -> None:
    """Raises ParameterError if a user's override sets what the notebook's settings decide: the
    metrics would not say so."""
    for line in overrides:
        key = line.lstrip("+~").partition("=")[0]
        for own in (each.removeprefix("+") for each in ours):
            if f"{key}.".startswith(f"{own}.") or f"{own}.".startswith(f"{key}."):
                raise ParameterError(
                    f"overrides in compute.yaml's verl sets {key}, which the run decides: remove it"
                )


def compose(overrides: list[str]) -> DictConfig:
    """verl's whole configuration with these overrides, as verl's own command makes and checks it.
    Raises KlearError, in one line, for what hydra or verl refuses."""
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra_compose("ppo_trainer", overrides)
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        omega_conf_to_dataclass(config.algorithm)
        validate_config(config, use_reference_policy=False, use_critic=False)
    except Exception as error:  # hydra, OmegaConf and verl raise a dozen unrelated types here
        raise KlearError(
            f"verl refuses its configuration ({type(error).__name__}: {one_line(error)}): correct "
            "overrides in compute.yaml's verl"
        ) from error
    return config


def _text(value: object) -> str:
    """A JSON value in hydra's grammar."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(key)}:{_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(value)


def _key(name: str) -> str:
    """A name with hydra's own characters escaped, as that of a benchmark may have."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", name)
