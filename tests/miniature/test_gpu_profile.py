"""The profile gpu, as far as a CPU goes: its worlds in small, two steps of its model, its arms."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_worlds import rows

from klearlib.data.tables import read_samples
from klearlib.experiments.catalogue import check, notebooks_of, stages_of
from klearlib.miniature import code_world, joint, world
from klearlib.miniature.base import train_tokenizer
from klearlib.miniature.stages import code_start_stages, joint_stages, start_stages
from klearlib.params import LOCAL, load, load_profile
from klearlib.policy.load import chat_prompt
from klearlib.run.folder import RunFolder

COMPUTE = asdict(load("gpu", LOCAL))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory) -> dict[str, Path]:
    """The worlds of the profile with fewer problems and texts."""
    maths = replace(
        load("gpu", "miniature"),
        base_examples=600, sft_examples=600, num_train_problems=200, num_validation=60,
    )  # fmt: skip
    code = replace(
        load("gpu", "code_miniature"),
        base_examples=300, sft_examples=300, teacher_examples=300, num_train_problems=40,
        num_validation=20,
    )  # fmt: skip
    both = replace(
        load("gpu", "joint_miniature"),
        base_maths=100, base_long_maths=200, base_code=100, sft_long_maths=40, num_validation=20,
    )  # fmt: skip
    stages = {
        "maths": (world.build, start_stages(maths, compute=COMPUTE)["world"]),
        "code": (code_world.build, code_start_stages(code, compute=COMPUTE)["world"]),
    }
    sft = {"num_epochs": 1, "batch_size": 1, "learning_rate": 1.0, "normalizer": "token"}
    sft |= {"yarn_factor": 2.5}
    joined = joint_stages(maths, code, both, selections=[], seed=0, compute=COMPUTE, **sft)
    stages["joint"] = (joint.build, joined["world"])
    root, found = tmp_path_factory.mktemp("gpu"), {}
    for name, (build, stage) in stages.items():
        folder = RunFolder(root / name)
        folder.load_checkpoint()
        inputs = {each: found[each] for each in stage.inputs}
        build(folder, inputs, **stage.params)
        found[name] = root / name
    return found


@pytest.mark.parametrize("name", ["maths", "code", "joint"])
def test_all_texts_fit_into_the_positions(worlds, name):
    world = {"maths": "miniature", "code": "code_miniature", "joint": "joint_miniature"}[name]
    params = load("gpu", world)
    corpus, sft = rows(worlds[name] / "corpus.jsonl"), rows(worlds[name] / "sft.jsonl")
    texts = [row.get("given", "") + row["text"] for row in corpus]
    turns = [f"user\n{row['prompt']}\nassistant\n{row['response']}" for row in sft]
    tokenizer = train_tokenizer(texts + turns, vocab_size=params.vocab_size)

    def longest(found: list[str]) -> int:
        return max(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in found)

    assert longest(texts) < params.max_positions
    files = sorted(worlds[name].glob("*.jsonl"))
    problems = [row for file in files for row in rows(file) if "prompt" in row]
    prompt = max(len(chat_prompt(tokenizer, row["prompt"])[1]) for row in problems)
    assert prompt + params.max_new_tokens <= params.max_positions
    # A response of the writers fits into the budget, and takes a good part of it.
    short = [row["response"] for row in sft] if name != "joint" else []
    if short:
        assert params.max_new_tokens / 2 < longest(short) < params.max_new_tokens


def test_the_long_chains_of_the_joint_world_need_the_longer_budget(worlds):
    params = load("gpu", "joint_miniature")
    corpus = [row.get("given", "") + row["text"] for row in rows(worlds["joint"] / "corpus.jsonl")]
    tokenizer = train_tokenizer(corpus, vocab_size=params.vocab_size)
    samples = read_samples(worlds["joint"] / "examples.parquet")
    lengths = [len(tokenizer(sample.response)["input_ids"]) for sample in samples]
    assert params.max_new_tokens < max(lengths) < params.extended_max_new_tokens
    assert min(lengths) < params.max_new_tokens


def test_the_notebooks_share_runs_as_in_mini():
    """What mini's notebooks share, as its parameter files promise, these share too; 09's arms on
    the soft code reward, which mini has none of, share 07's and 08's runs."""

    def shared(profile: str) -> set[tuple[str, str]]:
        seen = {
            name: {
                digest
                for digest, stage in stages_of(
                    name, check(name, load_profile(profile, name))
                ).items()
                if stage.target in ("klearlib.rl.train:train_rl", "klearlib.sft.train:train_sft")
                and stage.params["seed"] in (1, 2)
            }
            for name in notebooks_of(profile)
        }
        return {(a, b) for a in seen for b in seen if a < b and seen[a] & seen[b]}

    soft = {(name, "09_zero_advantage") for name in ("07_soft_reward", "08_test_filter")}
    assert shared("gpu") == shared("mini") | soft
    assert ("05_clipping", "06_alpha_sweep") in shared("gpu")
