"""The maths world's files: benchmarks of 30, answers that are right, chains that go wrong as
asked."""

import pytest
from made_worlds import rows
from prompt_reader import answer_of, step_holds

from klearlib.data.problems import read_problems
from klearlib.miniature.world import BENCHMARKS

SIZES = {"train": 60, "validation": 6, "math_a": 30, "math_b": 30}


@pytest.fixture(scope="module")
def world(worlds):
    return worlds("maths")


@pytest.fixture(scope="module")
def problems(world):
    return {
        name: read_problems(world / f"{name}.jsonl", expected_size=SIZES[name]) for name in SIZES
    }


def test_answers_are_right_and_ids_and_prompts_unique(problems):
    flat = [problem for part in problems.values() for problem in part]
    assert len({problem.id for problem in flat}) == len(flat)
    assert len({problem.prompt for problem in flat}) == len(flat)
    assert all(problem.answer == str(answer_of(problem.prompt)) for problem in flat)


def test_benchmarks_hold_all_families_and_no_easy_chains(problems):
    assert BENCHMARKS == ("math_a", "math_b")
    for name in BENCHMARKS:
        assert {p.family for p in problems[name]} == {"chain", "recurrence", "polynomial"}
        assert {p.difficulty for p in problems[name] if p.family == "chain"} <= {3, 4}
        assert {p.source for p in problems[name]} == {name}


def test_pretraining_text_is_always_right(world):
    corpus = rows(world / "corpus.jsonl")
    for row in corpus:
        prompt, *lines, last = row["text"].split("\n")
        assert all(step_holds(line, 5) for line in lines)
        assert last == f"The answer is {answer_of(prompt)}."
    assert len(corpus) == 200


def test_chains_for_sft_go_wrong_as_asked(world):
    found = rows(world / "sft.jsonl")
    right, wrong = 0, 0
    for row in found:
        opening, *lines, closing, box = row["response"].split("\n")
        assert (opening, closing) == ("<think>", "</think>")
        assert box == f"\\boxed{{{lines[-1].partition('=')[2]}}}"
        holds = sum(step_holds(line, 5) for line in lines)
        right, wrong = right + holds, wrong + len(lines) - holds
    assert len(found) == 600
    # A fifth of the steps at 0.5 and the rest at 0.02, on the few steps there are modulo 5.
    assert 0.05 < wrong / (right + wrong) < 0.2
