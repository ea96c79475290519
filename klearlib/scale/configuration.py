"""verl's configuration of a run: ``recipe.yaml`` with the rule, the settings and the cluster in it,
as hydra overrides of verl's ``ppo_trainer``, composed and checked before any process is started."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf
from verl.utils.config import omega_conf_to_dataclass, validate_config

from klearlib.errors import KlearError, ParameterError
from klearlib.rl.coefficients import rule_from
from klearlib.rl.schedule import judging
from klearlib.rl.settings import RLSettings
from klearlib.scale.cluster import PACKED, Cluster
from klearlib.scale.policy_losses import NORMALIZERS

RECIPE = Path(__file__).with_name("recipe.yaml")
_MOST_CHARS = 400  # of an error: hydra lists all that it knows


def overrides(
    *,
    rule: dict,
    settings: RLSettings,
    cluster: Cluster,
    seed: int,
    model: Path,
    world: Path,
    problems: Path,
    parquet: Path,
    checkpoints: Path,
    resumed: Path | None,
    updated_steps: int,
    receiver: str,
) -> list[str]:
    """The hydra overrides of a run of `klearlib.scale.trainer.KlearTrainer`, the cluster's own
    last.

    Args:
        rule: see `klearlib.rl.coefficients.rule_from`.
        model: the folder of the policy. problems: the file of which `parquet` was made.
        checkpoints: verl's folder for its own. resumed: the one to go on from.
        updated_steps: the steps so far in which a group survived, which verl's learning-rate
            schedule counts.
        receiver: the name of the Ray actor that takes the trainer's messages.

    Raises:
        ParameterError: rollouts that are longer than the model's positions, or an override of what
            the settings decide.
    """
    held = json.loads((model / "config.json").read_text(encoding="utf-8"))
    positions = held.get("text_config", held).get("max_position_embeddings")
    cluster.require_positions(positions, max_new_tokens=settings.max_new_tokens)
    chosen, words = rule_from(rule), {ours: theirs for theirs, ours in NORMALIZERS.items()}
    factors = {name: rule.get(name, 1.0) for name in ("beta_low", "beta_high")}
    clips = {name: getattr(chosen, name) for name in ("eps_low", "eps_high", "dual_clip")}
    folders = {"model": model, "world": world, "problems": problems, "parquet": parquet}
    folders |= {"checkpoints": checkpoints, "resumed": resumed}
    run = {
        **{name: path and str(path.absolute()) for name, path in folders.items()},
        "rule": rule,
        "seed": seed,
        "updated_steps": updated_steps,
        "receiver": receiver,
        "judging": judging(settings, seed=seed),
        "loss_agg_mode": words[settings.normalizer],
        "first_full_step": settings.warmup_steps + 1,
        "endless_epochs": settings.num_steps + 1,
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
    """The keys with their sections before them, and "+" before these."""
    return {
        ("+" if key.startswith("+") else "") + f"{section}.{key.removeprefix('+')}": value
        for section, keys in sections.items()
        for key, value in keys.items()
    }


def _require_untouched(overrides: list[str], ours: list[str]) -> None:
    """Raises ParameterError where a user's override would set what the notebook's settings give,
    and the metrics would not say so."""
    for line in overrides:
        key = line.lstrip("+~").partition("=")[0]
        for own in (each.removeprefix("+") for each in ours):
            if f"{key}.".startswith(f"{own}.") or f"{own}.".startswith(f"{key}."):
                raise ParameterError(
                    f"overrides in compute.yaml's verl sets {key}, which the run decides: remove it"
                )


def compose(overrides: list[str]) -> DictConfig:
    """verl's whole configuration with these overrides, as verl's own command makes and checks it.
    Raises KlearError for an unknown key, a value of another kind than verl's own, or one that verl
    refuses, in one line that names it."""
    parser = OverridesParser.create()
    with initialize_config_module("verl.trainer.config", version_base=None):
        defaults = hydra_compose("ppo_trainer")
        for line in overrides:
            with _one_line_refusals(f"{line!r} in "):
                override = parser.parse_override(line)
            _check_kind(override, defaults)
        with _one_line_refusals():
            config = hydra_compose("ppo_trainer", overrides)
            omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
            omega_conf_to_dataclass(config.algorithm)
            validate_config(config, use_reference_policy=False, use_critic=False)
    return config


def saved_text(config: DictConfig) -> str:
    """A composed configuration as YAML, every reference in it resolved, in verl's order."""
    return OmegaConf.to_yaml(config, resolve=True, sort_keys=False)


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
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", name)


@contextlib.contextmanager
def _one_line_refusals(what: str = "") -> Iterator[None]:
    try:
        yield
    except Exception as error:  # hydra, OmegaConf and verl raise a dozen unrelated types here
        line = " ".join(str(error).split())[:_MOST_CHARS]
        raise KlearError(
            f"verl refuses {what}its configuration ({type(error).__name__}: {line}): mend "
            "overrides in compute.yaml's verl"
        ) from error


def _check_kind(override, defaults: DictConfig) -> None:
    """verl reads many values only when it needs them, hours later: a word for a number must not
    wait for that."""
    if override.is_sweep_override() or override.is_delete():
        return  # hydra refuses the one, and the other has no value
    ours = override.value()
    theirs = OmegaConf.select(defaults, override.key_or_group)
    for kind, name in ((bool, "true or false"), (int | float, "a number")):
        if isinstance(theirs, kind):
            if not isinstance(ours, kind) or isinstance(ours, bool) != isinstance(theirs, bool):
                raise KlearError(
                    f"verl's {override.key_or_group} must be {name}, got {ours!r}: mend overrides "
                    "in compute.yaml's verl"
                )
            return
