"""The code stages: every parameter arrives, the base model learns no specification, the teacher has
its own examples."""

import inspect
import json
from dataclasses import asdict
from importlib import import_module

import pytest
from tiny_world import TINY_MODEL

from klearlib.miniature.base import pretrain
from klearlib.miniature.code_world import build
from klearlib.miniature.stages import code_start_stages, start_stages
from klearlib.params import load
from klearlib.policy.compute import local_compute
from klearlib.policy.load import load_policy
from klearlib.run.folder import RunFolder
from klearlib.sft.train import train_sft

COMPUTE = asdict(local_compute())
SCHEDULE = {
    "seed": 0,
    "num_steps": 1,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "compute": COMPUTE,
}


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_every_stage_gets_exactly_the_parameters_of_its_target(profile):
    stages = code_start_stages(load(profile, "code_miniature"), compute=COMPUTE)
    assert list(stages) == ["world", "base", "sft", "teacher"]
    for stage in stages.values():
        module, _, name = stage.target.partition(":")
        signature = inspect.signature(getattr(import_module(module), name))
        signature.bind("folder", "inputs", **stage.params)
    assert {name: stage.name for name, stage in stages.items()} == {
        "world": "code_world",
        "base": "base",
        "sft": "sft",
        "teacher": "sft",
    }


def test_the_teacher_learns_longer_and_from_other_responses():
    for profile in ("smoke", "mini"):
        world = load(profile, "code_miniature")
        stages = code_start_stages(world, compute=COMPUTE)
        assert stages["sft"].inputs == stages["teacher"].inputs
        assert stages["teacher"].params.pop("examples") == "teacher.jsonl"
        assert stages["teacher"].params.pop("num_steps") == world.teacher_steps
        assert stages["sft"].params.pop("num_steps") == world.sft_steps < world.teacher_steps
        assert stages["sft"].params == stages["teacher"].params
        assert world.teacher_slip_share < world.slip_share


def test_maths_and_code_share_no_stage_and_maths_names_no_file():
    maths = start_stages(load("smoke", "miniature"), compute=COMPUTE)
    code = code_start_stages(load("smoke", "code_miniature"), compute=COMPUTE)
    assert not {s.key for s in maths.values()} & {s.key for s in code.values()}
    assert "examples" not in maths["sft"].params
    assert code["sft"].key != code["teacher"].key


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("code_world")
    build(
        RunFolder(path),
        {},
        seed=0,
        max_difficulty=4,
        num_tests=16,
        slip_share=0.3,
        slip_rate=0.5,
        step_noise=0.0,
        teacher_slip_share=0.1,
        flawed_share=0.25,
        base_examples=8,
        sft_examples=8,
        teacher_examples=8,
        num_train_problems=60,
        num_validation=3,
    )
    return path


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_specifications_are_read_and_not_learnt(world, tmp_path):
    pretrain(RunFolder(tmp_path), {"world": world}, **SCHEDULE, **TINY_MODEL)
    _, tokenizer = load_policy(tmp_path / "model", device="cpu")
    corpus = rows(world / "corpus.jsonl")
    learnt = sum(
        len(tokenizer(row["text"], add_special_tokens=False)["input_ids"]) + 1 for row in corpus
    )
    assert rows(tmp_path / "metrics.jsonl")[0]["sft/num_tokens"] == learnt
    for row in corpus:
        assert row["given"].endswith("Print n.\n") and "input()" in row["text"]


def test_the_stage_sft_reads_the_file_that_it_is_told(world, tmp_path):
    inputs = {"world": world, "base": tmp_path / "base"}
    pretrain(RunFolder(inputs["base"]), inputs, **SCHEDULE, **TINY_MODEL)
    how = SCHEDULE | {"final_learning_rate": 1e-3, "normalizer": "token"}
    _, tokenizer = load_policy(inputs["base"] / "model", device="cpu")
    for name, extra in (("sft", {}), ("teacher", {"examples": "teacher.jsonl"})):
        train_sft(RunFolder(tmp_path / name), inputs, **how, **extra)
        learnt = sum(
            len(tokenizer(row["response"], add_special_tokens=False)["input_ids"]) + 1
            for row in rows(world / f"{name}.jsonl")
        )
        assert rows(tmp_path / name / "metrics.jsonl")[0]["sft/num_tokens"] == learnt
    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("sft", "teacher")]
    assert weights[0].read_bytes() != weights[1].read_bytes()
