"""The rules by which the stages of a plan cost what they cost: tokens, floating-point operations,
seconds on a GPU, memory and disk, from the stages' own parameters. Nothing is loaded: shapes come
from what makes the models.

Numbers of tokens are given twice: at most, where every response takes its whole budget, and as
assumed, by the shares of `klearlib.run.cost`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from klearlib.policy.compute import Compute
from klearlib.policy.shape import ModelShape
from klearlib.run.cost import (
    ALL_EXAMPLES,
    EXAMPLE_SHARE,
    PROMPT_TOKENS,
    RESPONSE_SHARE,
    STAGE_S,
    WINDOW_SIZE,
    Cost,
)
from klearlib.run.stage import Stage
from klearlib.run.workloads import sampling, sampling_beside_training, training


def cost_of(stage: Stage) -> Cost:
    """The cost of one stage, without those that it needs.

    Raises:
        KeyError: a kind of stage without a rule here.
    """
    cost = RULES[stage.target](stage)
    return cost + Cost(gpu_s=STAGE_S) if cost.flops else cost


def shape_of_stage(stage: Stage) -> ModelShape | None:
    """The shape of the model that a stage makes or trains; None where nothing says it."""
    maker = _maker(stage)
    params = maker.params
    if maker.target == "klearlib.miniature.base:pretrain":
        names = {each.name for each in fields(ModelShape)} - {"tie_word_embeddings"}
        return ModelShape(tie_word_embeddings=True, **{name: params[name] for name in names})
    if maker.target == "klearlib.real.model:link_model":
        return ModelShape(**params["shape"]) if params["shape"] else None
    raise KeyError(maker.target)


def _positions(stage: Stage) -> int:
    """The longest sequence of the model that a stage makes or trains."""
    maker = _maker(stage)
    is_linked = maker.target == "klearlib.real.model:link_model"
    return maker.params["positions" if is_linked else "max_positions"]


def _maker(stage: Stage) -> Stage:
    """The stage that first made the model of a stage."""
    while stage.target in _MODEL:
        stage = stage.inputs[_MODEL[stage.target]]
    return stage


# The input that a stage's model comes from.
_MODEL = {
    "klearlib.sft.train:train_sft": "base",
    "klearlib.rl.train:train_rl": "sft",
    "klearlib.evaluate.stage:evaluate_benchmarks": "model",
    "klearlib.curation.responses:respond": "model",
}


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
    longest = min(_positions(stage), compute.pack_tokens or _positions(stage))
    trained = examples * longest * EXAMPLE_SHARE
    cost = Cost(trained=trained, trained_most=examples * longest, disk=_kept(shape))
    return cost + training(shape, compute, trained, longest, updates)


def _rl(stage: Stage) -> Cost:
    settings = stage.params["settings"]
    compute, shape = Compute(**stage.params["compute"]), shape_of_stage(stage)
    steps, budget = settings["num_steps"], settings["max_new_tokens"]
    rollouts = settings["num_problems"] * settings["group_size"]
    cost = _sampled(stage, calls=steps, rows=rollouts, budget=budget)
    evaluations, each = 1 + -(-steps // settings["eval_every"]), settings["eval_responses"]
    cost += _benchmarks(stage, settings["benchmarks"], each, calls=evaluations, budget=budget)
    if settings["num_validation"]:
        rows = settings["num_validation"] * settings["validation_responses"]
        cost += _sampled(stage, calls=2, rows=rows, budget=budget)
    length = PROMPT_TOKENS + budget * RESPONSE_SHARE
    trained = steps * rollouts * length
    updates = steps * -(-settings["num_problems"] // settings["mini_batch_problems"])
    again = settings["logp_old"] != "sampler"
    cost += Cost(trained=trained, trained_most=steps * rollouts * (PROMPT_TOKENS + budget))
    cost += Cost(disk=_kept(shape))
    cost += training(shape, compute, trained, PROMPT_TOKENS + budget, updates, forward_again=again)
    beside = sampling_beside_training(shape, compute, rollouts, budget)
    peak = (cost + beside).parts.peak
    return replace(cost + beside, parts=replace(beside.parts, peak=peak))


def _evaluate(stage: Stage) -> Cost:
    params = stage.params
    return _benchmarks(
        stage,
        params["benchmarks"],
        params["num_responses"],
        calls=1,
        budget=params["max_new_tokens"],
    )


def _benchmarks(
    stage: Stage, sizes: dict[str, int | None], each: int, *, calls: int, budget: int
) -> Cost:
    """`each` responses to every problem of benchmarks of these sizes, `calls` times."""
    total = Cost(unsized=tuple(name for name, size in sizes.items() if size is None and each))
    for size in sizes.values():
        rows = (WINDOW_SIZE if size is None else size) * each
        total += _sampled(stage, calls=calls, rows=rows, budget=budget)
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
    name = _maker(stage).params["model"] if shape is None else ""
    return sampling(shape, compute, name=name, calls=calls, rows=rows, budget=budget)


def _kept(shape: ModelShape) -> int:
    """A model as it is kept: float32 in the Hugging Face format."""
    return 4 * shape.num_parameters


RULES: dict[str, Callable[[Stage], Cost]] = {
    "klearlib.miniature.base:pretrain": _pretrain,
    "klearlib.sft.train:train_sft": _sft,
    "klearlib.rl.train:train_rl": _rl,
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
