"""The stages of the data experiments: parameters arrive, worlds and bases are shared, teachers are
graded."""

import dataclasses
import inspect
import json
from importlib import import_module
from random import Random

import pytest
from prompt_reader import step_holds

from klearlib.errors import ParameterError
from klearlib.miniature.problems import draw, held_out
from klearlib.miniature.stages import code_start_stages, data_stages, start_stages
from klearlib.miniature.teachers import TEACHERS, build
from klearlib.params import load
from klearlib.policy.compute import local_compute
from klearlib.run.folder import RunFolder

COMPUTE = dataclasses.asdict(local_compute())


def stages_of(profile):
    return data_stages(
        load(profile, "miniature"),
        load(profile, "code_miniature"),
        load(profile, "data_miniature"),
        compute=COMPUTE,
    )


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_every_stage_gets_exactly_the_parameters_of_its_target(profile):
    for stage in stages_of(profile).values():
        module, _, name = stage.target.partition(":")
        signature = inspect.signature(getattr(import_module(module), name))
        signature.bind("folder", "inputs", **stage.params)


def test_worlds_bases_and_checkpoints_are_those_of_the_other_notebooks():
    stages = stages_of("mini")
    maths = start_stages(load("mini", "miniature"), compute=COMPUTE)
    code = code_start_stages(load("mini", "code_miniature"), compute=COMPUTE)
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
    params = stages_of("mini")["teacher_examples"].params
    writers = params["writers"]
    assert list(writers) == list(TEACHERS) == ["weak", "middle", "strong"]
    steps = [stages_of("mini")[f"teacher_{name}"].params["num_steps"] for name in TEACHERS]
    sizes = [writers[name]["num_examples"] for name in TEACHERS]
    assert steps == sorted(steps) and sizes == sorted(sizes)
    for writer in writers.values():
        writer["num_examples"] = 400
    easy = draw(
        Random(0), 40, difficulties=range(2, 3), modulus=10, held_out_part=False, seen=set()
    )
    asked = [draft.prompt for draft in easy]
    pool = [{"prompt": [{"role": "user", "content": prompt}]} for prompt in asked]
    (tmp_path / "math_pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pool))
    build(RunFolder(tmp_path), {"sources": tmp_path}, **params)
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weak_steps": 9999}, "weak_steps 9999 must not be above middle_steps"),
        ({"strong_slip_share": 0.9}, "middle_slip_share .* must not be below strong_slip_share"),
    ],
)
def test_teachers_in_another_order_are_refused(change, message):
    with pytest.raises(ParameterError, match=message):
        dataclasses.replace(load("mini", "data_miniature"), **change)
