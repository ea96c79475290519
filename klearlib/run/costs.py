"""The rules by which the stages of a plan cost what they cost: tokens, floating-point operations,
seconds on a GPU, memory and disk, from the stages' own parameters. Nothing is loaded: shapes come
from what makes the models.

Numbers of tokens are given twice: at most, where every response takes its whole budget, and as
assumed, by the shares of `klearlib.run.cost`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from klearlib.policy.compute import Compute
from klearlib.policy.shape import ModelShape
from klearlib.run import sharded
from klearlib.run.cost import (
    ALL_EXAMPLES,
    EXAMPLE_SHARE,
    PROMPT_TOKENS,
    RESPONSE_SHARE,
    STAGE_S,
    WINDOW_SIZE,
    Cost,
)
from klearlib.run.shapes import maker, positions_of_stage, shape_of_stage
from klearlib.run.stage import Stage
from klearlib.run.workloads import sampling, sampling_beside_training, training
from klearlib.scale.cluster import cluster_of_stage


def cost_of(stage: Stage) -> Cost:
    """The cost of one stage, without those that it needs.

    Raises:
        KeyError: a kind of stage without a rule here.
    """
    cost = RULES[stage.target](stage)
    return cost + Cost(gpu_s=STAGE_S) if cost.flops else cost


def _nothing(_: Stage) -> Cost:
    """A stage without a model: minutes of a core, and little on disk."""
    return Cost()


def _pretrain(stage: Stage) -> Cost:
    params = stage.params
    return _training(
        stage, updates=params["num_steps"], examples=params["num_steps"] * params["batch_size"]
    )


def _sft(stage: Stage) -> Cost:
    params = stage.params
    if params.get("num_steps") is not None:
        updates = params["num_steps"]
        return _training(stage, updates=updates, examples=updates * params["batch_size"])
    examples = params["num_epochs"] * _num_examples(stage.inputs["examples"])
    return _training(stage, updates=examples / params["batch_size"], examples=examples)


def _num_examples(stage: Stage) -> int:
    if stage.target == "klearlib.curation.select:select":
        return stage.params["size"] or ALL_EXAMPLES
    total = 0
    for upstream in stage.inputs.values():
        if upstream.target == "klearlib.miniature.joint:build":
            total += upstream.params["sft_long_maths"]
        else:
            total += _num_examples(upstream)
    return total


def _training(stage: Stage, *, updates: float, examples: float) -> Cost:
    """Supervised training: examples of up to as many tokens as the model, or a packed row, has."""
    compute, shape = Compute(**stage.params["compute"]), shape_of_stage(stage)
    longest = min(positions_of_stage(stage), compute.pack_tokens or positions_of_stage(stage))
    trained = examples * longest * EXAMPLE_SHARE
    cost = Cost(trained=trained, trained_most=examples * longest, disk=_kept(shape))
    return cost + training(shape, compute, trained, longest, updates)


def _rl(stage: Stage) -> Cost:
    settings = stage.params["settings"]
    compute, shape = Compute(**stage.params["compute"]), shape_of_stage(stage)
    budget = settings["max_new_tokens"]
    cost = _drawn(settings, lambda **how: _sampled(stage, **how))
    cost += _trained_on(settings, shape)
    cost += training(
        shape,
        compute,
        cost.trained,
        PROMPT_TOKENS + budget,
        _updates(settings),
        forward_again=settings["logp_old"] != "sampler",
    )
    rollouts = settings["num_problems"] * settings["group_size"]
    return _with_both(cost, sampling_beside_training(shape, compute, rollouts, budget))


def _rl_of_verl(stage: Stage) -> Cost:
    settings = stage.params["settings"]
    cluster, shape = cluster_of_stage(stage), shape_of_stage(stage)
    budget = settings["max_new_tokens"]
    cost = sharded.started(cluster)
    cost += _drawn(settings, lambda **how: sharded.sampling_on_cluster(shape, cluster, **how))
    cost += _trained_on(settings, shape)
    cost += sharded.training_on_cluster(
        shape,
        cluster,
        tokens=cost.trained,
        longest=PROMPT_TOKENS + budget,
        updates=_updates(settings),
        forward_again=settings["logp_old"] != "sampler",
    )
    return _with_both(cost, sharded.memory_beside_rollouts(shape, cluster, budget=budget))


def _drawn(settings: dict, sampled: Callable[..., Cost]) -> Cost:
    """All that an RL run samples: rollouts, the benchmarks, the validation set."""
    steps, budget = settings["num_steps"], settings["max_new_tokens"]
    rollouts = settings["num_problems"] * settings["group_size"]
    cost = sampled(calls=steps, rows=rollouts, budget=budget)
    evaluations, each = 1 + -(-steps // settings["eval_every"]), settings["eval_responses"]
    cost += _benchmarks(sampled, settings["benchmarks"], each, calls=evaluations, budget=budget)
    if settings["num_validation"]:
        rows = settings["num_validation"] * settings["validation_responses"]
        cost += sampled(calls=2, rows=rows, budget=budget)
    return cost


def _trained_on(settings: dict, shape: ModelShape) -> Cost:
    """Tokens of the rollouts that an RL run trains on, and its model as it is kept."""
    budget = settings["max_new_tokens"]
    rollouts = settings["num_steps"] * settings["num_problems"] * settings["group_size"]
    return Cost(
        trained=rollouts * (PROMPT_TOKENS + budget * RESPONSE_SHARE),
        trained_most=rollouts * (PROMPT_TOKENS + budget),
        disk=_kept(shape),
    )


def _updates(settings: dict) -> int:
    return settings["num_steps"] * -(-settings["num_problems"] // settings["mini_batch_problems"])


def _with_both(trained: Cost, beside: Cost) -> Cost:
    """A run's cost with the larger memory of training and sampling, and the parts of both."""
    total = trained + beside
    return replace(total, parts=replace(beside.parts, peak=total.parts.peak))


def _evaluate(stage: Stage) -> Cost:
    params = stage.params
    return _benchmarks(
        lambda **how: _sampled(stage, **how),
        params["benchmarks"],
        params["num_responses"],
        calls=1,
        budget=params["max_new_tokens"],
    )


def _benchmarks(
    sampled: Callable[..., Cost],
    sizes: dict[str, int | None],
    each: int,
    *,
    calls: int,
    budget: int,
) -> Cost:
    """`each` responses to every problem of benchmarks of these sizes, `calls` times."""
    total = Cost(unsized=tuple(name for name, size in sizes.items() if size is None and each))
    for size in sizes.values():
        rows = (WINDOW_SIZE if size is None else size) * each
        total += sampled(calls=calls, rows=rows, budget=budget)
    return total


def _respond(stage: Stage) -> Cost:
    rows = _num_problems(stage.inputs["problems"]) * stage.params["num_responses"]
    return _sampled(stage, calls=1, rows=rows, budget=stage.params["max_new_tokens"])


def _num_problems(stage: Stage) -> int:
    """About how many problems a stage gives to be answered."""
    params = stage.params
    if "num_train_problems" in params:
        return params["num_train_problems"]
    assert stage.target == "klearlib.curation.curate:curate"
    return stage.inputs["sources"].params["num_pool"]


def _sampled(stage: Stage, *, calls: int, rows: int, budget: int) -> Cost:
    compute, shape = Compute(**stage.params["compute"]), shape_of_stage(stage)
    name = maker(stage).params["model"] if shape is None else ""
    return sampling(shape, compute, name=name, calls=calls, rows=rows, budget=budget)


def _kept(shape: ModelShape) -> int:
    """A model as it is kept: float32 in the Hugging Face format."""
    return 4 * shape.num_parameters


RULES: dict[str, Callable[[Stage], Cost]] = {
    "klearlib.miniature.base:pretrain": _pretrain,
    "klearlib.sft.train:train_sft": _sft,
    "klearlib.rl.train:train_rl": _rl,
    "klearlib.scale.stage:train_rl": _rl_of_verl,
    "klearlib.evaluate.stage:evaluate_benchmarks": _evaluate,
    "klearlib.curation.responses:respond": _respond,
} | dict.fromkeys(
    (
        "klearlib.miniature.world:build",
        "klearlib.miniature.code_world:build",
        "klearlib.miniature.sources:build",
        "klearlib.miniature.teachers:build",
        "klearlib.miniature.joint:build",
        "klearlib.curation.combine:combine",
        "klearlib.curation.curate:curate",
        "klearlib.curation.select:select",
        "klearlib.curation.filters:keep_by_pass_rate",
        "klearlib.evaluate.benchmark_files:collect",
        "klearlib.real.data:collect_benchmarks",
        "klearlib.real.data:link_data",
        "klearlib.real.learnable:keep_learnable",
        "klearlib.real.model:link_model",
        "klearlib.real.world:build",
        "klearlib.real.world:join",
    ),
    _nothing,
)
"""Target of a stage -> the rule of its cost; `_nothing` for those that load no model."""
