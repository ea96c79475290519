"""What holds of every world: equal seeds give equal files, benchmarks do not depend on how much is
trained on, and nothing that is trained on was held out."""

import json

import pytest
from made_worlds import WORLDS, build, rows

from klearlib.data.problems import read_problems
from klearlib.miniature.problems import held_out

# Files that another seed leaves as they are.
SEEDLESS = {
    "joint": {"math_a.jsonl", "math_b.jsonl", "code_a.jsonl", "code_b.jsonl", "validation.jsonl"},
    "sources": {"sources.json"},
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [name for name in WORLDS if name != "maths 7"])
def test_same_seed_same_bytes(worlds, tmp_path, name, seed):
    build(name, tmp_path, worlds.inputs_of(name), seed=seed)
    files = sorted(file.name for file in worlds(name).iterdir())
    assert files == sorted(file.name for file in tmp_path.iterdir()) and len(files) > 5
    for file in files:
        same = (tmp_path / file).read_bytes() == (worlds(name) / file).read_bytes()
        assert same is (seed == 0 or file in SEEDLESS.get(name, ())), file


EVALUATED = {
    "maths": ("math_a", "math_b", "validation"),
    "code": ("contest", "code_a", "code_b", "validation"),
    "joint": ("math_a", "math_b", "math_c", "code_a", "code_b", "validation"),
}


@pytest.mark.parametrize("name", ["maths", "code"])
def test_more_training_rows_leave_the_benchmarks_alone(worlds, tmp_path, name):
    build(name, tmp_path, {}, sft_examples=10, num_train_problems=90)
    for file in ("corpus", *EVALUATED[name]):
        found, expected = (folder / f"{file}.jsonl" for folder in (tmp_path, worlds(name)))
        assert found.read_bytes() == expected.read_bytes()


def asked_in(row: dict) -> str:
    """The prompt of a row of corpus.jsonl or of a file of turns."""
    text = row.get("prompt") or row.get("given") or row["text"]
    return text.rpartition("user\n")[2].partition("<|im_end|>")[0].partition("\n")[0]


@pytest.mark.parametrize("name", EVALUATED)
def test_held_out_prompts_are_in_no_training_text(worlds, name):
    world = worlds(name)
    evaluation = {p.prompt for n in EVALUATED[name] for p in read_problems(world / f"{n}.jsonl")}
    trained = [world / f"{file}.jsonl" for file in ("sft", "teacher", "train", "corpus")]
    training = {asked_in(row) for path in trained if path.exists() for row in rows(path)}
    assert len(evaluation) > 60 and not evaluation & training
    assert all(map(held_out, evaluation)) and not any(map(held_out, training))
    everything = "".join(path.read_text() for path in trained if path.exists())
    assert not any(json.dumps(prompt)[1:-1] in everything for prompt in evaluation)
