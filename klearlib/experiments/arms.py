"""RL arms: stages that differ in one value, shared by all notebooks that need the same one."""

from __future__ import annotations

from dataclasses import asdict

from klearlib.miniature.stages import start_stages
from klearlib.miniature.world import BENCHMARK_SIZE, BENCHMARKS
from klearlib.params import MiniatureParams, RLOptions
from klearlib.run.stage import Stage

# Fields of RLOptions that describe the clipping rule and not the run.
RULE_OPTIONS = ("dual_clip", "beta_low", "beta_high")
RULE_NAMES = {"clip_higher": "Clip-Higher", "gppo": "GPPO", "cispo": "CISPO"}


def rule_spec(name: str, *, eps_low: float, eps_high: float, options: RLOptions) -> dict:
    """A rule as JSON, with the arguments that it takes and no others, so that equal arms share a
    key.

    See `klearlib.rl.coefficients.rule_from`.
    """
    spec: dict = {"name": name, "eps_low": eps_low, "eps_high": eps_high}
    if name == "gppo":
        spec |= {"beta_low": options.beta_low, "beta_high": options.beta_high}
    if name != "cispo" and options.dual_clip is not None:
        spec["dual_clip"] = options.dual_clip
    return spec


def rl_stage(
    world: MiniatureParams,
    *,
    rule: dict,
    seed: int,
    num_steps: int,
    num_problems: int,
    group_size: int,
    mini_batch_problems: int,
    learning_rate: float,
    alpha: float,
    eval_every: int,
    eval_responses: int,
    options: RLOptions,
) -> Stage:
    """One RL run from the miniature's SFT checkpoint; see `klearlib.rl.settings.RLSettings`."""
    start = start_stages(world)
    settings = {
        "num_steps": num_steps,
        "num_problems": num_problems,
        "group_size": group_size,
        "mini_batch_problems": mini_batch_problems,
        "learning_rate": learning_rate,
        "alpha": alpha,
        "max_new_tokens": world.max_new_tokens,
        "eval_every": eval_every,
        "eval_responses": eval_responses,
        "validation_responses": world.validation_responses,
        "benchmarks": dict.fromkeys(BENCHMARKS, BENCHMARK_SIZE),
        "num_validation": world.num_validation,
    }
    settings |= {name: value for name, value in asdict(options).items() if name not in RULE_OPTIONS}
    return Stage(
        "rl",
        "klearlib.rl.train:train_rl",
        {"seed": seed, "rule": rule, "settings": settings},
        {"world": start["world"], "sft": start["sft"]},
        label=f"{RULE_NAMES[rule['name']]}, seed {seed}",
        # Measured on one core of a 2-core machine: about 35 rollouts a second, training included.
        estimate_s=8 + num_steps * num_problems * group_size / 110,
    )
