"""Problem files: what is written is read, and a short or broken benchmark is no benchmark."""

import json

import pytest

from klearlib.errors import MissingAsset
from klearlib.evaluate.benchmarks import read_problems, write_problems
from klearlib.records import Problem, TestCase

PROBLEMS = [
    Problem("a", "What is 2 + 2?", "4", family="chain", difficulty=3, source="x"),
    Problem("b", "Ελλάς, π, 😀, \u2028 \u0085 and \r\n in it", ("1/2", "0.5")),
    Problem("c", "square", tests=(TestCase(expected="9", stdin="3"), TestCase("4", call="f(2)"))),
]


@pytest.fixture
def path(tmp_path):
    write_problems(PROBLEMS, tmp_path / "x.jsonl")
    return tmp_path / "x.jsonl"


def test_round_trip(path):
    assert read_problems(path) == PROBLEMS
    assert read_problems(path, expected_size=3) == PROBLEMS


@pytest.mark.parametrize("size", [0, 2, 4, 30])
def test_another_size_is_refused(path, size):
    with pytest.raises(ValueError, match=f"must hold {size} problems, got 3"):
        read_problems(path, expected_size=size)


def test_duplicate_ids_are_refused(tmp_path):
    write_problems([PROBLEMS[0], PROBLEMS[2], PROBLEMS[0]], tmp_path / "x.jsonl")
    with pytest.raises(ValueError, match=r"x\.jsonl holds 1 problems with the id of another"):
        read_problems(tmp_path / "x.jsonl")


def test_empty_file_is_refused(tmp_path):
    (tmp_path / "x.jsonl").touch()
    with pytest.raises(ValueError, match="no problems"):
        read_problems(tmp_path / "x.jsonl")


def test_missing_file_is_a_missing_asset(tmp_path):
    with pytest.raises(MissingAsset, match=r"none\.jsonl"):
        read_problems(tmp_path / "none.jsonl")


GOOD = json.dumps({"id": "z", "prompt": "?", "answer": "1"})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        GOOD[:-3],
        "[]",
        "3",
        "null",
        json.dumps({"prompt": "?", "answer": "1"}),
        json.dumps({"id": "y", "answer": "1"}),
        json.dumps({"id": "y", "prompt": "?", "colour": "red"}),
        json.dumps({"id": "y", "prompt": "?", "tests": [{"stdin": "3"}]}),
        json.dumps({"id": "y", "prompt": "?", "tests": 3}),
    ],
)
def test_bad_line_is_named_by_its_number(tmp_path, line):
    (tmp_path / "x.jsonl").write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(ValueError, match=r"x\.jsonl line 2 is no problem") as error:
        read_problems(tmp_path / "x.jsonl")
    assert "\n" not in str(error.value)
