"""Stage ``sft``: what it reads, and that it is the same every time."""

import json
from dataclasses import asdict

import pytest
from sft_runs import lines

from klearlib.data.tables import Sample, write_samples
from klearlib.errors import MissingAsset, ParameterError
from klearlib.policy.compute import local_compute
from klearlib.run.folder import RunFolder
from klearlib.sft.train import read_turns, train_sft

HOW = {
    "seed": 0,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "final_learning_rate": 5e-4,
    "normalizer": "token",
    "compute": asdict(local_compute()),
}


@pytest.fixture(scope="module")
def inputs(tiny_stages, tmp_path_factory):
    """A world of forty turns, and the base model."""
    world = tmp_path_factory.mktemp("few")
    turns = (tiny_stages.world / "sft.jsonl").read_text().splitlines(keepends=True)
    (world / "sft.jsonl").write_text("".join(turns[:40]))
    return {"world": world, "base": tiny_stages.base}


def test_stage_trains_on_the_worlds_chains(tiny_stages):
    found = lines(tiny_stages.sft)
    assert [line["step"] for line in found] == list(range(1, 121))
    assert found[-1]["sft/loss"] < 0.5 * found[0]["sft/loss"]
    assert found[-1]["sft/learning_rate"] == pytest.approx(1e-3)
    assert (tiny_stages.sft / "model" / "model.safetensors").exists()
    timings = lines(tiny_stages.sft, "timings.jsonl")
    for line, timing in zip(found, timings, strict=True):
        rate = line["sft/num_tokens"] / timing["seconds/training"]
        assert timing["tokens_per_second/training"] == pytest.approx(rate)


def test_stage_is_the_same_every_time(inputs, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_sft(RunFolder(tmp_path / name), inputs, **HOW | {"seed": seed}, num_steps=3)
    a, b, c = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in "abc")
    assert a == b != c


def test_samples_of_a_table_and_of_a_world_train_alike(inputs, tmp_path):
    turns = list(read_turns(inputs["world"] / "sft.jsonl"))
    samples = [Sample(str(number), *turn, "world") for number, turn in enumerate(turns)]
    (tmp_path / "chosen").mkdir()
    assert write_samples(samples, tmp_path / "chosen" / "examples.parquet") == len(turns)
    train_sft(RunFolder(tmp_path / "a"), inputs, **HOW, num_steps=2)
    chosen = {"base": inputs["base"], "examples": tmp_path / "chosen"}
    train_sft(RunFolder(tmp_path / "b"), chosen, **HOW, num_steps=2)
    assert lines(tmp_path / "a") == lines(tmp_path / "b")


def test_examples_take_the_place_of_the_world(inputs, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"examples\.parquet"):
        train_sft(RunFolder(tmp_path / "a"), inputs | {"examples": tmp_path}, **HOW, num_steps=1)
    with pytest.raises(FileNotFoundError, match=r"other\.jsonl"):
        train_sft(RunFolder(tmp_path / "b"), inputs, **HOW, num_steps=1, examples="other.jsonl")


def test_a_line_ends_at_its_line_feed_alone(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps({"prompt": "a", "response": "b\u2028c"}, ensure_ascii=False) + "\n")
    assert list(read_turns(path)) == [("a", "b\u2028c")]


def test_attention_that_is_not_there_is_a_line(inputs, tmp_path):
    how = HOW | {"compute": HOW["compute"] | {"attention": "other"}}
    with pytest.raises(ParameterError, match=r"attention must be one of .* got 'other'"):
        train_sft(RunFolder(tmp_path), inputs, **how, num_steps=1)
    try:
        import flash_attn  # noqa: F401
    except ImportError:
        how = HOW | {"compute": asdict(local_compute(attention="flash_attention_2"))}
        with pytest.raises(MissingAsset, match="'flash_attention_2' is not installed"):
            train_sft(RunFolder(tmp_path), inputs, **how, num_steps=1)
