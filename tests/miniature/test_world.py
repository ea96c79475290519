"""The world's files: benchmarks of 30 that training never sees, answers that are right."""

import json

import pytest
from prompt_reader import answer_of, step_holds
from tiny_world import TINY_WORLD

from klearlib.data.problems import read_problems
from klearlib.miniature.problems import held_out
from klearlib.miniature.world import BENCHMARK_SIZE, BENCHMARKS, DECIDING, build
from klearlib.run.folder import RunFolder

FILES = ("corpus", "sft", "train", "validation", *BENCHMARKS, DECIDING)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("world")
    build(RunFolder(path), {}, **TINY_WORLD)
    return path


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def problems_of(world):
    return {name: read_problems(world / f"{name}.jsonl") for name in FILES[2:]}


def test_sizes(world):
    found = problems_of(world)
    assert {name: len(problems) for name, problems in found.items()} == {
        "train": 60,
        "validation": 6,
        "math_a": BENCHMARK_SIZE,
        "math_b": BENCHMARK_SIZE,
        "math_decide": 6,
    }
    assert BENCHMARK_SIZE == 30
    assert len(rows(world / "sft.jsonl")) == 600 and len(rows(world / "corpus.jsonl")) == 200


def test_answers_are_right_and_ids_and_prompts_unique(world):
    problems = [problem for part in problems_of(world).values() for problem in part]
    assert len({problem.id for problem in problems}) == len(problems)
    assert len({problem.prompt for problem in problems}) == len(problems)
    assert all(problem.answer == str(answer_of(problem.prompt)) for problem in problems)


def test_held_out_prompts_are_in_no_training_text(world):
    found = problems_of(world)
    evaluation = {problem.prompt for name in FILES[3:] for problem in found[name]}
    training = {problem.prompt for problem in found["train"]}
    training |= {row["prompt"] for row in rows(world / "sft.jsonl")}
    training |= {row["text"].partition("\n")[0] for row in rows(world / "corpus.jsonl")}
    assert not evaluation & training
    assert all(map(held_out, evaluation)) and not any(map(held_out, training))
    everything = (world / "corpus.jsonl").read_text() + (world / "sft.jsonl").read_text()
    assert not any(json.dumps(prompt)[1:-1] in everything for prompt in evaluation)


def test_benchmarks_hold_all_families_and_no_easy_chains(world):
    for name in BENCHMARKS:
        problems = problems_of(world)[name]
        assert {p.family for p in problems} == {"chain", "recurrence", "polynomial"}
        assert {p.difficulty for p in problems if p.family == "chain"} <= {3, 4}
        assert {p.source for p in problems} == {name}


def test_pretraining_text_is_always_right(world):
    for row in rows(world / "corpus.jsonl"):
        prompt, *lines, last = row["text"].split("\n")
        assert all(step_holds(line, 5) for line in lines)
        assert last == f"The answer is {answer_of(prompt)}."


def test_chains_for_sft_go_wrong_as_asked(world):
    right, wrong = 0, 0
    for row in rows(world / "sft.jsonl"):
        opening, *lines, closing, box = row["response"].split("\n")
        assert (opening, closing) == ("<think>", "</think>")
        assert box == f"\\boxed{{{lines[-1].partition('=')[2]}}}"
        holds = sum(step_holds(line, 5) for line in lines)
        right, wrong = right + holds, wrong + len(lines) - holds
    # A fifth of the steps at 0.5 and the rest at 0.02, on the few steps there are modulo 5.
    assert 0.05 < wrong / (right + wrong) < 0.2


@pytest.mark.parametrize("seed", [0, 1])
def test_same_seed_same_bytes(world, tmp_path, seed):
    build(RunFolder(tmp_path), {}, **TINY_WORLD | {"seed": seed})
    for name in FILES:
        same = (tmp_path / f"{name}.jsonl").read_bytes() == (world / f"{name}.jsonl").read_bytes()
        assert same is (seed == 0)


def test_more_training_rows_leave_the_benchmarks_alone(world, tmp_path):
    build(RunFolder(tmp_path), {}, **TINY_WORLD | {"sft_examples": 10, "num_train_problems": 20})
    for name in ("corpus", *BENCHMARKS, "validation"):
        assert (tmp_path / f"{name}.jsonl").read_bytes() == (world / f"{name}.jsonl").read_bytes()


def test_the_deciding_benchmark_has_a_stream_of_its_own(world, tmp_path):
    """However many it has, no other file of the world changes, and it repeats no problem."""
    build(RunFolder(tmp_path), {}, **TINY_WORLD | {"num_deciding": 3})
    for name in FILES[:-1]:
        assert (tmp_path / f"{name}.jsonl").read_bytes() == (world / f"{name}.jsonl").read_bytes()
    few, many = (read_problems(path / f"{DECIDING}.jsonl") for path in (tmp_path, world))
    assert [problem.prompt for problem in few] == [problem.prompt for problem in many[:3]]
