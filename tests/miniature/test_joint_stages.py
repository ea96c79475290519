"""The stages of the joint model: parameters arrive, inputs are shared, limits are checked."""

import dataclasses
import inspect
from importlib import import_module

import pytest

from klearlib.errors import ParameterError
from klearlib.experiments.origins import origin
from klearlib.miniature.stages import code_start_stages, joint_stages, start_stages
from klearlib.params import LOCAL, DataOptions, load

SFT = {
    "seed": 0,
    "num_epochs": 4,
    "batch_size": 14,
    "learning_rate": 2e-3,
    "normalizer": "sequence",
}


def stages_of(profile, joint=None, **changes):
    joint = joint or load(profile, "joint_miniature")
    arms = origin(profile, DataOptions())
    selections = [
        arms.chosen_sources("math", most=2, size=joint.sft_maths),
        arms.chosen_sources("code", most=2, size=joint.sft_code),
    ]
    worlds = load(profile, "miniature"), load(profile, "code_miniature"), joint
    how = SFT | changes | {"compute": dataclasses.asdict(load(profile, LOCAL))}
    return joint_stages(*worlds, selections=selections, **how), selections


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_every_stage_gets_exactly_the_parameters_of_its_target(profile):
    stages, _ = stages_of(profile)
    assert list(stages) == ["world", "base", "examples", "sft"]
    for stage in stages.values():
        module, _, name = stage.target.partition(":")
        signature = inspect.signature(getattr(import_module(module), name))
        signature.bind("folder", "inputs", **stage.params)


def test_worlds_are_those_of_the_other_notebooks_and_examples_those_of_the_selections():
    stages, selections = stages_of("mini")
    compute = dataclasses.asdict(load("mini", LOCAL))
    maths = start_stages(load("mini", "miniature"), compute=compute)["world"]
    assert stages["world"].inputs["maths"].key == maths.key
    code = code_start_stages(load("mini", "code_miniature"), compute=compute)["world"]
    assert stages["world"].inputs["code"].key == code.key
    combined = [stage.key for stage in stages["examples"].inputs.values()]
    assert combined == [*(stage.key for stage in selections), stages["world"].key]
    assert stages["sft"].inputs == {"base": stages["base"], "examples": stages["examples"]}
    assert stages["sft"].params["final_learning_rate"] == pytest.approx(1e-3)


def test_only_the_sft_depends_on_its_seed():
    first, _ = stages_of("mini")
    second, _ = stages_of("mini", seed=1)
    same = [name for name in first if first[name].key == second[name].key]
    assert same == ["world", "base", "examples"]


def test_the_longer_budget_needs_positions_that_only_yarn_gives():
    for profile in ("smoke", "mini"):
        joint = load(profile, "joint_miniature")
        assert joint.extended_max_new_tokens >= joint.max_positions
        assert joint.extended_max_new_tokens < 2.5 * joint.max_positions


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_kv_heads": 3}, "must divide num_heads"),
        ({"head_dim": 7}, "head_dim must be even"),
        ({"num_validation": 9}, "num_validation must be even"),
        ({"max_new_tokens": 4096, "extended_max_new_tokens": 8192}, "must be below max_positions"),
        ({"extended_max_new_tokens": 64}, "must exceed max_new_tokens"),
    ],
)
def test_bad_parameters(changes, words):
    with pytest.raises(ParameterError, match=words):
        dataclasses.replace(load("mini", "joint_miniature"), **changes)
