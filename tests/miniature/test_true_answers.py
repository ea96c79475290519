"""The true answers that the arms of equal errors are judged by."""

import json
from dataclasses import replace

import pytest

from klearlib.data.problems import read_problems, write_problems
from klearlib.errors import KlearError
from klearlib.miniature.sources import add_true_answers
from klearlib.records import Problem
from klearlib.run.folder import RunFolder


def test_every_problem_gets_the_answer_of_its_prompt(tmp_path):
    known = [Problem("a", "1+1?", "3"), Problem("b", "2+2?"), Problem("c", "3+3?", "6")]
    for name in ("curated", "sources"):
        (tmp_path / name).mkdir()
    write_problems(known, tmp_path / "curated" / "problems.jsonl")
    rows = [{"prompt": f"{n}+{n}?", "answer": str(2 * n)} for n in (3, 2, 1, 9)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "sources" / "answers.jsonl").write_text(text)
    inputs = {name: tmp_path / name for name in ("curated", "sources")}
    add_true_answers(RunFolder(tmp_path / "out"), inputs)
    found = read_problems(tmp_path / "out" / "problems.jsonl")
    assert found == [replace(p, answer=a) for p, a in zip(known, "246", strict=True)]
    write_problems([*known, Problem("d", "a benchmark's")], tmp_path / "curated" / "problems.jsonl")
    with pytest.raises(KlearError, match="1 problems of benchmarks passed"):
        add_true_answers(RunFolder(tmp_path / "again"), inputs)
