"""The shape of the model that a stage makes or trains, from what first made it."""

from __future__ import annotations

from dataclasses import fields

from klearlib.policy.shape import ModelShape
from klearlib.run.stage import Stage


def shape_of_stage(stage: Stage) -> ModelShape | None:
    """The shape of the model that a stage makes or trains; None where nothing says it."""
    first = maker(stage)
    params = first.params
    if first.target == "klearlib.miniature.base:pretrain":
        names = {each.name for each in fields(ModelShape)} - {"tie_word_embeddings"}
        return ModelShape(tie_word_embeddings=True, **{name: params[name] for name in names})
    if first.target == "klearlib.real.model:link_model":
        return ModelShape(**params["shape"]) if params["shape"] else None
    raise KeyError(first.target)


def positions_of_stage(stage: Stage) -> int:
    """The longest sequence of the model that a stage makes or trains."""
    first = maker(stage)
    is_linked = first.target == "klearlib.real.model:link_model"
    return first.params["positions" if is_linked else "max_positions"]


def maker(stage: Stage) -> Stage:
    """The stage that first made the model of a stage."""
    while stage.target in _MODEL:
        stage = stage.inputs[_MODEL[stage.target]]
    return stage


# The input that a stage's model comes from.
_MODEL = {
    "klearlib.sft.train:train_sft": "base",
    "klearlib.rl.train:train_rl": "sft",
    "klearlib.scale.stage:train_rl": "sft",
    "klearlib.evaluate.stage:evaluate_benchmarks": "model",
    "klearlib.curation.responses:respond": "model",
}
