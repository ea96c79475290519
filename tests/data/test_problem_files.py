"""Files of problems and responses: what goes in comes out, and equal rows are equal bytes."""

import dataclasses
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from klearlib.data import tables
from klearlib.data.lines import read_lines
from klearlib.data.problems import iter_problems, read_problems, write_problems
from klearlib.data.tables import Sample, read_rows, read_samples, write_samples
from klearlib.errors import KlearError, MissingAsset
from klearlib.records import Problem, TestCase

PROBLEMS = [
    Problem("a", "What is\u2028 2 + 2?", "4", family="chain", difficulty=3, source="x"),
    Problem("b", "Ελλάς, π, 😀, \u0085 and \r\n in it", ("1/2", "0.5"), source="x"),
    Problem("c", "Echo.", tests=(TestCase("", stdin=""), TestCase("ü\n", stdin="ü")), date="2024"),
    Problem("d", "f", tests=(TestCase("[1]", call="[[2]]"),), entry_point="f"),
    Problem("e", "g", tests=(TestCase(asserts="assert g(1)"),), entry_point="g", preset="lcb"),
    Problem("f", "Nothing to judge by"),
    Problem("g", "One of one", ("7",)),
]
EXAMPLES = [
    Sample("a", "?", "<think>…</think>4", "x", "t", label, reason)
    for label, reason in (
        (True, ""),
        (False, "no_answer"),
        (None, "timeout"),
        (None, ""),
    )
]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "x.jsonl"
    assert write_problems(iter(PROBLEMS), path) == 7
    assert read_problems(path) == PROBLEMS == list(iter_problems(path))
    assert read_problems(path, expected_size=7) == PROBLEMS
    rows = [dataclasses.asdict(problem) for problem in PROBLEMS]
    assert list(read_lines(path)) == json.loads(json.dumps(rows))
    path = tmp_path / "x.parquet"
    for samples in (EXAMPLES, []):
        assert write_samples(iter(samples), path) == len(samples)
        assert list(read_samples(path)) == samples


def test_few_keys_are_enough_and_a_mark_at_the_start_is_none(tmp_path):
    rows = [{"id": "z", "prompt": "?", "answer": "1"}, {"id": "y", "prompt": "?"}]
    text = "\ufeff" + "\n".join(map(json.dumps, rows))
    (tmp_path / "x.jsonl").write_text(text, encoding="utf-8")
    assert read_problems(tmp_path / "x.jsonl") == [Problem("z", "?", "1"), Problem("y", "?")]


def test_a_file_of_nothing_with_an_id_twice_or_none_at_all_is_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    for read in (read_problems, iter_problems):
        with pytest.raises(MissingAsset, match=r"x\.jsonl"):
            list(read(path))
    path.touch()
    with pytest.raises(KlearError, match="no problems"):
        read_problems(path)
    write_problems(PROBLEMS, path)
    for size in (0, 6, 8):
        with pytest.raises(KlearError, match=f"must hold {size} problems, got 7"):
            read_problems(path, expected_size=size)
    write_problems([PROBLEMS[0], PROBLEMS[2], PROBLEMS[0]], path)
    with pytest.raises(KlearError, match=r"x\.jsonl has 1 duplicate problem ids"):
        read_problems(path)


GOOD = {"id": "z", "prompt": "?", "answer": "1"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ""),
        ("{", ""),
        (json.dumps(GOOD)[:-3], ""),
        (json.dumps(GOOD | {"id": 7}), "id of a problem must be a text, got 7"),
        (json.dumps(GOOD | {"answer": 1}), "answer of a problem must be a text, got 1"),
        (json.dumps(GOOD | {"answer": [1]}), "answer of a problem must be a text, got 1"),
        (json.dumps(GOOD | {"promt": "?"}), "'promt'"),
        (json.dumps({"id": "y", "answer": "1"}), "'prompt'"),
        (json.dumps(GOOD | {"tests": [{"stdin": "", "output": "3"}]}), "'output'"),
        (json.dumps(GOOD | {"tests": ["3"]}), ""),
        ("[3]", ""),
    ],
)
def test_a_line_that_is_no_problem_is_named_with_its_fault(tmp_path, line, words):
    (tmp_path / "x.jsonl").write_text(f"{json.dumps(GOOD)}\n{line}\n")
    message = rf"x\.jsonl line 2 is not a problem.*{words}"
    with pytest.raises(KlearError, match=message) as error:
        read_problems(tmp_path / "x.jsonl")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rows, chars", [(1, 10**9), (3, 10**9), (10**9, 40), (4096, 10**9)])
def test_row_groups_end_by_rows_or_by_text_and_bytes_are_the_same_again(
    tmp_path, monkeypatch, rows, chars
):
    monkeypatch.setattr(tables, "ROWS_IN_GROUP", rows)
    monkeypatch.setattr(tables, "CHARS_IN_GROUP", chars)
    samples = [replace(EXAMPLES[i % 4], response="r" * (i % 5)) for i in range(20)]
    for name in ("one", "two"):
        write_samples(iter(samples), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert list(read_samples(tmp_path / "one")) == samples
    groups = pq.ParquetFile(tmp_path / "one").num_row_groups
    assert groups == {1: 20, 3: 7, 4096: 1}.get(rows, groups) and (chars > 40 or groups > 3)


def test_columns_are_chosen(tmp_path):
    write_samples(EXAMPLES, tmp_path / "t.parquet")
    assert next(read_rows(tmp_path / "t.parquet", columns=["teacher"])) == {"teacher": "t"}
