"""The parquet of a run: which problem in which row, and all that a judge needs in it."""

import dataclasses
import itertools
import json

import pandas as pd
import pytest
from rollout_fakes import settings

from klearlib.errors import KlearError
from klearlib.records import Problem, TestCase
from klearlib.rl.schedule import judging, problem_order
from klearlib.scale.problems import ground_truth, problem_of, write_parquet
from klearlib.verify.code_answers import chosen_tests

MATHS = [Problem(f"m{i}", f"What is {i} + {i}?", answer=str(2 * i)) for i in range(4)]
CODE = [
    Problem(
        f"c{i}",
        f"Print {i} times the number that you read.",
        tests=tuple(TestCase(stdin=str(n), expected=str(i * n)) for n in range(9)),
    )
    for i in range(3)
]


def rows(tmp_path, problems, *, seed=3, **changes):
    path = tmp_path / "problems.parquet"
    write_parquet(path, problems, settings=settings(**changes), seed=seed)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # nothing half-written
    return pd.read_parquet(path).to_dict("records")


def test_rows_are_the_problems_in_the_order_in_which_the_local_run_draws_them(tmp_path):
    problems = MATHS + CODE
    orders = []
    for seed in (4, 3):
        how = {"num_steps": 5, "num_problems": 3, "mini_batch_problems": 1}
        found = rows(tmp_path, problems, seed=seed, **how)
        order = problem_order(len(problems), settings(**how), seed=seed)
        drawn = list(itertools.islice(order, 15))
        orders.append([row["extra_info"]["problem"] for row in found])
        assert orders[-1] == drawn
    assert orders[0] != orders[1]
    assert [row["extra_info"]["index"] for row in found] == list(range(15))
    for row in found:
        problem = problems[row["extra_info"]["problem"]]
        assert [dict(turn) for turn in row["prompt"]] == [
            {"role": "user", "content": problem.prompt}
        ]
        assert row["extra_info"]["problem_id"] == problem.id
        assert row["ability"] == ("code" if problem.tests else "math")
        assert (row["data_source"], row["agent_name"]) == ("klear", "klear")
        assert row["reward_model"]["style"] == "rule"


@pytest.mark.parametrize("max_tests", [None, 1, 4, 9, 20])
def test_a_row_holds_the_tests_that_the_seed_chooses_and_no_other(tmp_path, max_tests):
    for row in rows(tmp_path, CODE, num_steps=2, num_problems=3, max_tests=max_tests):
        problem = CODE[row["extra_info"]["problem"]]
        held = problem_of(row["reward_model"]["ground_truth"], problem_id=problem.id)
        chosen = judging(settings(max_tests=max_tests), seed=3)
        expected = chosen_tests(problem, max_tests=max_tests, seed=chosen["tests_seed"])
        assert held.tests == expected
        # What is in the row is what a judge runs that is given the run's keywords again.
        again = chosen_tests(held, max_tests=max_tests, seed=chosen["tests_seed"])
        assert again == expected


@pytest.mark.parametrize(
    "problem",
    [
        Problem("a", "?", answer="4"),
        Problem("a", "?", answer=("4", "four \u00fc \ud800")),
        Problem("a", "?", tests=(TestCase(stdin="", expected=""),), preset="lcb"),
        Problem("a", "?", tests=(TestCase(call="[1]", expected="2"),), entry_point="f"),
        Problem("a", "?", tests=(TestCase(asserts="assert f(1)\n"),), entry_point="f"),
    ],
)
def test_what_a_problem_is_judged_by_survives_as_text(problem):
    text = ground_truth(problem, max_tests=None, tests_seed=0)
    found = problem_of(text, problem_id="a")
    assert found == dataclasses.replace(problem, prompt="")


def test_large_test_lists_stay_out_of_the_row(tmp_path):
    tests = tuple(TestCase("1" * 10_000, stdin=str(i)) for i in range(50))
    how = {"num_steps": 1, "num_problems": 1, "mini_batch_problems": 1, "max_tests": 2}
    (row,) = rows(tmp_path, [Problem("big", "?", tests=tests)], **how)
    assert len(row["reward_model"]["ground_truth"]) < 21_000
    assert len(json.loads(row["reward_model"]["ground_truth"])["tests"]) == 2


def test_a_problem_that_cannot_be_judged_is_refused_and_leaves_no_file(tmp_path):
    path = tmp_path / "problems.parquet"
    with pytest.raises(KlearError, match="'x' has neither an answer nor tests"):
        write_parquet(path, [Problem("x", "?")], settings=settings(), seed=0)
    assert not path.exists()
