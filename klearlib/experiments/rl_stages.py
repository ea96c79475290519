"""RL runs as stages, shared by all experiments that need the same one."""

from __future__ import annotations

from dataclasses import asdict, replace

from klearlib.errors import ParameterError
from klearlib.experiments.origins import Origin, Start
from klearlib.experiments.rules import RULE_OPTIONS, TITLES, rule_spec
from klearlib.params import VERL, RLOptions, load
from klearlib.params.rl import FilteredParams
from klearlib.rl.rule_table import PUBLISHED
from klearlib.rl.settings import (
    EVALUATION_TEMPERATURE,
    EVALUATION_TOP_P,
    JUDGED_BY,
    require_counted_parts,
    require_old_logprobs,
)
from klearlib.run.stage import Stage
from klearlib.scale.cluster import parted, require_own_parts

CLUSTER_S = 180.0
"""Assumed: seconds until the processes, weights and rollout engines of a run of verl are ready."""
_OF_START = ("max_new_tokens", "validation_responses", "benchmarks", "deciding", "num_validation")
_SETTINGS = (
    *("num_steps", "num_problems", "group_size", "mini_batch_problems", "learning_rate"),
    *("alpha", "eval_every", "eval_responses"),
)


def teacher_pass_rates(of: Origin, params: FilteredParams) -> Stage:
    """The teacher's responses to every training problem of the code world, judged, and its pass
    rates.

    Raises:
        ParameterError: the profile has no teacher for it.
    """
    teacher, start = of.test_teacher(), of.start("code")
    options, limits = params.filter_options, params.rl_options
    if teacher is None:
        raise ParameterError(
            f"profile {of.profile!r} has no teacher_code, so its code problems count as filtered: "
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
            **({"think_tags": tags} if (tags := limits.think_tags) != "required" else {}),
        },
        {"problems": start.world, "model": teacher},
        label=f"teacher's pass rates, {options.teacher_responses} responses a problem",
        estimate_s=10 + count / 60,
    )


def filtered_code_start(of: Origin, params: FilteredParams) -> Start:
    """The start of code RL without the problems whose tests the teacher's programs seldom pass
    (5.2.4); all of them where the profile's problems have passed the filter already."""
    start, options = of.start("code"), params.filter_options
    if of.test_teacher() is None:
        return start
    pool = Stage(
        "test_filter",
        "klearlib.curation.pass_rates:keep_by_pass_rate",
        {"threshold": options.threshold, "keep_equal": options.keep_equal},
        {"world": start.world, "pass_rates": teacher_pass_rates(of, params)},
        label="problems kept by the teacher's pass rate",
        estimate_s=2.0,
    )
    return replace(start, pool=pool)


def rl_arm(
    params,
    start: Start,
    *,
    label: str,
    seed: int,
    rule: str | dict = "gppo",
    code_reward: str = "soft",
    steps_before: int = 0,
    options: RLOptions | None = None,
    **changes,
) -> Stage:
    """One RL run with the settings of a notebook's `params`, by this suite's own loop or by verl;
    equal arms of notebooks are one run. See `klearlib.rl.settings.RLSettings`.

    Args:
        label: for people, in no key. rule: as `klearlib.experiments.rules.read_rules` gives it; the
            options that belong to a published rule are set. steps_before: of the RL run that ended
            in `start`. options: where the arm's differ from those of `params`; changes: the same
            for the schedule and alpha.

    Raises:
        ParameterError: the objective depends on how the engine cuts batches; for verl, the profile
            does not say how, a rollout does not fit into what it says, or the rule is a user's.
    """
    published = PUBLISHED.get(rule["name"]) if isinstance(rule, dict) else None
    options = options or params.rl_options
    options = replace(options, **published.options) if published else options
    settings = {name: getattr(params, name) for name in _SETTINGS if name not in changes} | changes
    rollouts = settings["num_steps"] * settings["num_problems"] * settings["group_size"]
    settings |= {name: value for name, value in asdict(options).items() if name not in RULE_OPTIONS}
    settings |= {name: getattr(start, name) for name in _OF_START}
    settings |= {"code_reward": code_reward, "steps_before": steps_before}
    clipping = rule_spec(rule, eps_low=params.eps_low, eps_high=params.eps_high, options=options)
    if params.engine == VERL and ("source" in clipping or clipping["name"] not in TITLES):
        raise ParameterError(
            f"engine is verl, which only has the rules {', '.join(TITLES)}, and {label} is another "
            "rule: set engine: local"
        )
    if params.engine == VERL and options.reward_function is not None:
        raise ParameterError("engine is verl, which only has built-in rewards: set engine: local")
    target, how, where = _trained_by(params.engine, start, options)
    if settings["logp_old"] == "auto":
        (computes,) = how.values()
        differ = computes["precision"] == "bf16" or computes.get("engine") == "vllm"
        settings["logp_old"] = "trainer" if differ else "sampler"
        require_old_logprobs(replace(options, logp_old=settings["logp_old"]))
    inputs = {"world": start.world, "sft": start.sft}
    if start.pool is not None:
        inputs["pool"] = start.pool
    if params.engine != VERL:  # verl's engines measure the start themselves
        inputs |= _measured_start(start, settings, seed=seed)
    return Stage(
        "rl",
        target,
        {"seed": seed, "rule": clipping, "settings": settings, **how},
        inputs,
        label=f"{label}, seed {seed}",
        placing=where,
        # Measured on one core of a 2-core machine: about 35 rollouts a second, training included.
        estimate_s=(CLUSTER_S if params.engine == VERL else 8) + rollouts / 110,
    )


def _measured_start(start: Start, settings: dict, *, seed: int) -> dict[str, Stage]:
    """The scores of the model that a run starts from, once for all runs of a seed."""
    how = {name: settings[name] for name in ("max_new_tokens", *JUDGED_BY)}
    validation = {"validation": start.num_validation}
    asked = {
        "start": (start.benchmarks, "eval_responses", EVALUATION_TEMPERATURE, EVALUATION_TOP_P),
        "start_validation": (validation, "validation_responses", 1.0, 1.0),
    }
    return {
        name: Stage(
            "evaluate",
            "klearlib.evaluate.harness:evaluate_benchmarks",
            {
                "seed": seed,
                "benchmarks": benchmarks,
                "num_responses": settings[responses],
                "temperature": temperature,
                "top_p": top_p,
                "compute": start.compute,
                **how,
            },
            {"world": start.world, "model": start.sft},
            label=f"{name.replace('_', ', ')}, seed {seed}",
            estimate_s=4.0,
        )
        for name, (benchmarks, responses, temperature, top_p) in asked.items()
        if benchmarks
    }


def _trained_by(engine: str, start: Start, options: RLOptions) -> tuple[str, dict, dict]:
    """(target of the stage, how it computes, where) for an engine."""
    if engine != VERL:
        require_counted_parts(options, start.compute["micro_batch_tokens"])
        return "klearlib.rl.train:train_rl", {"compute": start.compute}, {}
    require_own_parts(options)
    cluster = load(start.profile, VERL)
    cluster.require_fits(max_new_tokens=start.max_new_tokens)
    what, resources = parted(cluster)
    return "klearlib.scale.stage:train_rl", {"cluster": what}, {"resources": resources}
