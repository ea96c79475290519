"""The stages of the worlds: every parameter arrives, worlds and bases are shared, teachers are
graded, limits are checked."""

import dataclasses
import inspect
import json
from importlib import import_module
from random import Random

import pytest
from prompt_reader import step_holds

from klearlib.errors import ParameterError
from klearlib.experiments.origins import origin
from klearlib.miniature.problems import draw, held_out
from klearlib.miniature.stages import code_start_stages, data_stages, joint_stages, start_stages
from klearlib.miniature.world import TEACHERS, build_teacher_examples
from klearlib.params import LOCAL, DataOptions, load
from klearlib.params.worlds import CodeText, JointText, MathsText, RawSources
from klearlib.policy.compute import local_compute
from klearlib.run.folder import RunFolder

COMPUTE = dataclasses.asdict(local_compute())
SFT = {
    "seed": 0,
    "num_epochs": 4,
    "batch_size": 14,
    "yarn_factor": 2.5,
    "learning_rate": 2e-3,
    "normalizer": "sequence",
}


def maths_of(profile):
    return start_stages(load(profile, "miniature"), compute=COMPUTE)


def code_of(profile):
    return code_start_stages(load(profile, "code_miniature"), compute=COMPUTE)


def data_of(profile):
    names = ("miniature", "code_miniature", "data_miniature")
    return data_stages(*(load(profile, name) for name in names), compute=COMPUTE)


def selections_of(profile):
    joint, arms = load(profile, "joint_miniature"), origin(profile, DataOptions())
    sizes = {"math": joint.sft_maths, "code": joint.sft_code}
    return [
        arms.chosen_sources(domain, ranks=[1, 2], size=size, words="top 2")
        for domain, size in sizes.items()
    ]


def joint_of(profile, selections=(), **changes):
    names = ("miniature", "code_miniature", "joint_miniature")
    how = SFT | {"compute": dataclasses.asdict(load(profile, LOCAL))} | changes
    return joint_stages(*(load(profile, n) for n in names), selections=list(selections), **how)


PARTS = {
    "world": MathsText,
    "code_world": CodeText,
    "joint_world": JointText,
    "sources": RawSources,
}
BESIDES = {
    "joint_world": {"modulus", "max_difficulty", "code_max_difficulty"},
    "sources": {
        *("modulus", "max_difficulty", "code_max_difficulty", "num_tests"),
        *("slip_seed", "code_slip_seed"),
    },
}
"""What a world gets of the worlds that it is made from."""


@pytest.mark.parametrize("profile", ["smoke", "mini"])
@pytest.mark.parametrize("stages_of", [maths_of, code_of, data_of, joint_of])
def test_every_stage_gets_exactly_the_parameters_of_its_target(stages_of, profile):
    for stage in stages_of(profile).values():
        module, _, name = stage.target.partition(":")
        inspect.signature(getattr(import_module(module), name)).bind("", "", **stage.params)
        if stage.name in PARTS:
            declared = {field.name for field in dataclasses.fields(PARTS[stage.name])}
            assert stage.params.keys() == declared | BESIDES.get(stage.name, set())


def test_worlds_bases_and_checkpoints_are_those_of_the_other_notebooks():
    stages = data_of("mini")
    maths, code = maths_of("mini"), code_of("mini")
    for name, other in (
        ("world", maths["world"]),
        ("base", maths["base"]),
        ("reference", maths["sft"]),
        ("code_world", code["world"]),
        ("code_base", code["base"]),
        ("code_reference", code["sft"]),
        ("code_teacher", code["teacher"]),
    ):
        assert stages[name].key == other.key
    assert stages["sources"].inputs == {"math": maths["world"], "code": code["world"]}
    keys = [stages[f"teacher_{name}"].key for name in TEACHERS]
    assert len(set(keys)) == 3 and stages["reference"].key not in keys
    for name in TEACHERS:
        assert stages[f"teacher_{name}"].inputs["base"].key == stages["base"].key


def test_a_better_teacher_learns_longer_from_more_and_better_chains(tmp_path):
    params = data_of("mini")["teacher_examples"].params
    writers = params["writers"]
    assert list(writers) == list(TEACHERS) == ["weak", "middle", "strong"]
    steps = [data_of("mini")[f"teacher_{name}"].params["num_steps"] for name in TEACHERS]
    sizes = [writers[name]["num_examples"] for name in TEACHERS]
    assert steps == sorted(steps) and sizes == sorted(sizes)
    for writer in writers.values():
        writer["num_examples"] = 400
    how = {"difficulties": range(2, 3), "modulus": 10, "held_out_part": False, "seen": set()}
    asked = [draft.prompt for draft in draw(Random(0), 40, **how)]
    pool = [{"prompt": [{"role": "user", "content": prompt}]} for prompt in asked]
    (tmp_path / "math_pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pool))
    build_teacher_examples(RunFolder(tmp_path), {"sources": tmp_path}, **params)
    shares = []
    for name in TEACHERS:
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert len(rows) == 400 and not any(held_out(row["prompt"]) for row in rows)
        assert not {row["prompt"] for row in rows} & set(asked)
        wrong = [
            not all(step_holds(line, 10) for line in row["response"].split("\n")[1:-2])
            for row in rows
        ]
        shares.append(sum(wrong) / len(wrong))
    assert shares[0] > shares[1] + 0.15 > shares[2] + 0.3 and shares[2] == 0


def test_the_joint_worlds_are_those_of_the_other_notebooks_and_examples_those_of_the_selections():
    selections = selections_of("mini")
    stages = joint_of("mini", selections)
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
    first, second = joint_of("mini"), joint_of("mini", seed=1)
    same = [name for name in first if first[name].key == second[name].key]
    assert same == ["world", "base", "examples"]


@pytest.mark.parametrize(
    ("world", "changes", "words"),
    [
        ("joint", {"num_kv_heads": 3}, "must divide num_heads"),
        ("joint", {"head_dim": 7}, "head_dim must be even"),
        ("joint", {"num_validation": 9}, "num_validation must be even"),
        (
            "joint",
            {"max_new_tokens": 4096, "extended_max_new_tokens": 8192},
            "must be below max_positions",
        ),
        ("joint", {"extended_max_new_tokens": 64}, "must exceed max_new_tokens"),
    ],
)
def test_bad_parameters(world, changes, words):
    with pytest.raises(ParameterError, match=words):
        dataclasses.replace(load("mini", f"{world}_miniature"), **changes)
