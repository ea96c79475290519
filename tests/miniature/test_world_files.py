"""What holds of every world: equal seeds give equal files, benchmarks do not depend on how much is
trained on, and nothing that is trained on was held out."""

import json

import pytest
from made_worlds import WORLDS, build, rows

from klearlib.data.problems import read_problems
from klearlib.miniature.problems import held_out

# Files that another seed leaves as they are.
SEEDLESS = {
    "joint": {
        f"{name}.jsonl"
        for name in ("math_a", "math_b", "code_a", "code_b", "code_decide", "validation")
    }
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
    "maths": ("math_a", "math_b", "math_decide", "validation"),
    "code": ("contest", "code_a", "code_b", "code_decide", "validation"),
    "joint": ("math_a", "math_b", "math_c", "code_a", "code_b", "code_decide", "validation"),
}


@pytest.mark.parametrize("name", ["maths", "code"])
def test_more_training_rows_leave_the_benchmarks_alone(worlds, tmp_path, name):
    build(name, tmp_path, {}, sft_examples=10, num_train_problems=90)
    for file in ("corpus", *EVALUATED[name]):
        found, expected = (folder / f"{file}.jsonl" for folder in (tmp_path, worlds(name)))
        assert found.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("name, file", [("maths", "math_decide"), ("code", "code_decide")])
def test_the_deciding_benchmark_has_a_stream_of_its_own(worlds, tmp_path, name, file):
    """However many it has, no other file of the world changes, and it repeats no problem."""
    build(name, tmp_path, {}, num_deciding=3)
    files = {path.name for path in worlds(name).iterdir()} - {f"{file}.jsonl"}
    for other in files:
        assert (tmp_path / other).read_bytes() == (worlds(name) / other).read_bytes(), other
    few, many = (read_problems(path / f"{file}.jsonl") for path in (tmp_path, worlds(name)))
    assert [problem.prompt for problem in few] == [problem.prompt for problem in many[:3]]
    others = [read_problems(worlds(name) / f"{n}.jsonl") for n in EVALUATED[name] if n != file]
    prompts = [problem.prompt for part in (many, *others) for problem in part]
    assert len(set(prompts)) == len(prompts) - (60 if name == "code" else 0)  # windows of contest


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
