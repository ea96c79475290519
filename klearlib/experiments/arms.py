"""RL arms: stages that differ in one value, shared by all notebooks that need the same one."""

from __future__ import annotations

from dataclasses import asdict, replace

from klearlib.errors import ParameterError
from klearlib.experiments.origins import Start, origin
from klearlib.params import VERL, FilterOptions, RLOptions, load
from klearlib.rl.settings import require_counted_parts
from klearlib.run.stage import Stage
from klearlib.scale.cluster import Cluster, parted, require_own_parts
from klearlib.suite.estimate import CLUSTER_S

__all__ = [
    "RULE_NAMES",
    "RULE_OPTIONS",
    "Start",
    "code_start",
    "filtered_code_start",
    "maths_start",
    "rl_stage",
    "rule_spec",
    "teacher_pass_rates",
]

# Fields of RLOptions that describe the clipping rule and not the run.
RULE_OPTIONS = ("dual_clip", "beta_low", "beta_high")
RULE_NAMES = {"clip_higher": "Clip-Higher", "gppo": "GPPO", "cispo": "CISPO"}


def maths_start(profile: str) -> Start:
    """The maths world of a profile and its SFT checkpoint."""
    return origin(profile).start("math")


def code_start(profile: str) -> Start:
    """The code world of a profile and its SFT checkpoint, with all training problems."""
    return origin(profile).start("code")


def teacher_pass_rates(profile: str, *, options: FilterOptions, limits: RLOptions) -> Stage:
    """The teacher's responses to every training problem of the code world, judged, and its pass
    rates.

    Raises:
        ParameterError: the profile has no teacher for it.
    """
    of = origin(profile)
    teacher, start = of.test_teacher(), of.start("code")
    if teacher is None:
        raise ParameterError(
            f"profile {profile!r} has no teacher_code, so its code problems count as filtered: "
            "name a model in real.yaml"
        )
    count = of.num_code_problems * options.teacher_responses
    return Stage(
        "responses",
        "klearlib.curation.responses:respond",
        {
            "seed": of.code_seed,
            "problems": "train.jsonl",
            "teacher": "code teacher",
            "num_responses": options.teacher_responses,
            "temperature": options.teacher_temperature,
            "top_p": options.teacher_top_p,
            "max_new_tokens": start.max_new_tokens,
            "test_timeout_s": limits.test_timeout_s,
            "test_memory_mb": limits.test_memory_mb,
            "compute": of.compute,
        },
        {"problems": start.world, "model": teacher},
        label=f"teacher's pass rates, {options.teacher_responses} responses a problem",
        estimate_s=10 + count / 60,
    )


def filtered_code_start(profile: str, *, options: FilterOptions, limits: RLOptions) -> Start:
    """`code_start` without the problems whose tests the teacher's programs seldom pass (5.2.4); all
    of them where the profile's problems have passed the filter already."""
    start = code_start(profile)
    if origin(profile).test_teacher() is None:
        return start
    pool = Stage(
        "test_filter",
        "klearlib.curation.filters:keep_by_pass_rate",
        {"threshold": options.threshold, "keep_equal": options.keep_equal},
        {
            "world": start.world,
            "pass_rates": teacher_pass_rates(profile, options=options, limits=limits),
        },
        label="problems kept by the teacher's pass rate",
        estimate_s=2.0,
    )
    return replace(start, pool=pool)


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
    start: Start,
    *,
    label: str,
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
    engine: str,
    code_reward: str = "soft",
) -> Stage:
    """One RL run, by this suite's own loop or by verl; see `klearlib.rl.settings.RLSettings`.

    Args:
        label: for people, in no key.
        engine: who trains, "local" or "verl". Rule, settings and inputs are the same for both.

    Raises:
        ParameterError: the objective depends on how the engine cuts batches; for verl, the profile
            has no verl.yaml, or a rollout does not fit into what it says.
    """
    settings = {
        "num_steps": num_steps,
        "num_problems": num_problems,
        "group_size": group_size,
        "mini_batch_problems": mini_batch_problems,
        "learning_rate": learning_rate,
        "alpha": alpha,
        "max_new_tokens": start.max_new_tokens,
        "eval_every": eval_every,
        "eval_responses": eval_responses,
        "validation_responses": start.validation_responses,
        "benchmarks": start.benchmarks,
        "num_validation": start.num_validation,
        "code_reward": code_reward,
    }
    settings |= {name: value for name, value in asdict(options).items() if name not in RULE_OPTIONS}
    target, how, where = _trained_by(engine, start, options)
    inputs = {"world": start.world, "sft": start.sft}
    if start.pool is not None:
        inputs["pool"] = start.pool
    return Stage(
        "rl",
        target,
        {"seed": seed, "rule": rule, "settings": settings, **how},
        inputs,
        label=f"{label}, seed {seed}",
        # Measured on one core of a 2-core machine: about 35 rollouts a second, training included.
        placing=where,
        estimate_s=(CLUSTER_S if engine == VERL else 8)
        + num_steps * num_problems * group_size / 110,
    )


def _trained_by(engine: str, start: Start, options: RLOptions) -> tuple[str, dict, dict]:
    """(target of the stage, how it computes, where) of an engine; see `rl_stage`."""
    if engine != VERL:
        require_counted_parts(options, start.compute["micro_batch_tokens"])
        return "klearlib.rl.train:train_rl", {"compute": start.compute}, {}
    require_own_parts(options)
    cluster = Cluster(**asdict(load(start.profile, VERL)))
    cluster.require_fits(max_new_tokens=start.max_new_tokens)
    what, resources = parted(cluster)
    return "klearlib.scale.stage:train_rl", {"cluster": what}, {"resources": resources}
