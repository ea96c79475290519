"""The problems of a run as verl reads them: one row of a parquet file for each group of rollouts,
in the order in which the run draws them."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from klearlib.records import Problem, TestCase
from klearlib.rl.schedule import judging, problem_order
from klearlib.rl.settings import RLSettings
from klearlib.run.files import one_line_failures
from klearlib.verify.code_answers import chosen_tests
from klearlib.verify.groups import is_code

SOURCE = "klear"
"""What verl calls the source of all rows."""
AGENT = "klear"
"""The name under which `klearlib.scale.agent_loop` is registered with verl."""

_SCHEMA = pa.schema(
    [
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("data_source", pa.string()),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [("index", pa.int64()), ("problem", pa.int64()), ("problem_id", pa.string())]
            ),
        ),
        ("agent_name", pa.string()),
    ]
)


def write_parquet(
    path: Path, problems: Sequence[Problem], *, settings: RLSettings, seed: int
) -> None:
    """Write the rows of all steps of a run of `seed`: row (t - 1) * num_problems + i is the i-th
    problem of step t, as `klearlib.rl.schedule.problem_order` draws them.

    ``extra_info`` says which row it is (``index``), and which of `problems` (``problem``,
    ``problem_id``). ``reward_model.ground_truth`` holds all that a judge needs, see `problem_of`:
    of a code problem the tests that the run's seed chooses, and no other.

    Raises:
        KlearError: a problem with neither an answer nor tests, or with both; no room on the disk.
    """
    order = problem_order(len(problems), seed=seed)
    chosen = judging(settings, seed=seed)
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with one_line_failures(path):
        with pq.ParquetWriter(beside, _SCHEMA, compression="zstd") as writer:
            for step in range(settings.num_steps):
                first = step * settings.num_problems
                rows = [
                    _row(
                        problems[number],
                        index=first + place,
                        number=number,
                        max_tests=chosen["max_tests"],
                        tests_seed=chosen["tests_seed"],
                    )
                    for place, number in enumerate(itertools.islice(order, settings.num_problems))
                ]
                writer.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))
        os.replace(beside, path)


def ground_truth(problem: Problem, *, max_tests: int | None, tests_seed: int) -> str:
    """What a problem is judged by, as JSON text; see `klearlib.verify.code_answers.chosen_tests`
    for the arguments.

    >>> text = ground_truth(Problem("p", "2 + 2?", answer="4"), max_tests=None, tests_seed=0)
    >>> problem_of(text, problem_id="p").answer
    '4'
    """
    if is_code(problem):
        tests = chosen_tests(problem, max_tests=max_tests, seed=tests_seed)
        given = [{k: v for k, v in asdict(test).items() if v is not None} for test in tests]
        return json.dumps({"tests": given, "entry_point": problem.entry_point})
    return json.dumps({"answer": problem.answer})


def problem_of(text: str, *, problem_id: str) -> Problem:
    """The problem of a `ground_truth`, without what it asks."""
    held = json.loads(text)
    problem = Problem(id=problem_id, prompt="")
    if "tests" in held:
        tests = tuple(TestCase(**test) for test in held["tests"])
        return replace(problem, tests=tests, entry_point=held["entry_point"])
    answer = held["answer"]
    return replace(problem, answer=answer if isinstance(answer, str) else tuple(answer))


def _row(
    problem: Problem, *, index: int, number: int, max_tests: int | None, tests_seed: int
) -> dict:
    truth = ground_truth(problem, max_tests=max_tests, tests_seed=tests_seed)
    return {
        "prompt": [{"role": "user", "content": problem.prompt}],
        "data_source": SOURCE,
        "ability": "code" if is_code(problem) else "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": index, "problem": number, "problem_id": problem.id},
        "agent_name": AGENT,
    }
