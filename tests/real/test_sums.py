"""The sums of the profile smol: right, apart, and the same everywhere."""

import hashlib
import json
import re

from klearlib.data.sources import read_source
from klearlib.real.sums import NUM_HELD_OUT, NUM_OF_KIND, NUM_PROBLEMS, write
from klearlib.verify.answers import verify_answer

FILES = {"held_out": NUM_HELD_OUT, "problems": NUM_PROBLEMS, "examples": 3 * NUM_OF_KIND}


def test_each_answer_is_right_and_no_question_is_in_two_files(tmp_path):
    write(tmp_path)
    asked = {}
    for name, count in FILES.items():
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert len(rows) == count
        asked[name] = {row["question"] for row in rows}
        for row in rows:
            found = re.fullmatch(r"What is ([-+ \d]+)\?", row["question"])
            if found:
                assert eval(found[1]) == int(row["answer"]) > 0
    assert len(asked["problems"]) == NUM_PROBLEMS
    for first, second in (
        ("held_out", "problems"),
        ("held_out", "examples"),
        ("problems", "examples"),
    ):
        assert not asked[first] & asked[second]


def test_each_response_is_one_that_the_judge_pays(tmp_path):
    write(tmp_path)
    rows = [*read_source("rows", tmp_path / "examples.jsonl")]
    assert len({row.problem.prompt for row in rows}) > 180
    for row in rows:
        (response,) = row.responses
        verdict = verify_answer(response.text, row.problem.answer, require_think=False)
        assert verdict.correct, response.text
    assert sum("= " in row.responses[0].text for row in rows) == 2 * NUM_OF_KIND


def test_a_seed_writes_the_same_bytes(tmp_path):
    write(tmp_path)
    digest = hashlib.sha256()
    for name in FILES:
        digest.update((tmp_path / f"{name}.jsonl").read_bytes())
    assert digest.hexdigest()[:12] == "53bc901435d5"
