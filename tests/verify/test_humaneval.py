"""HumanEval's reference solutions, judged by its own assert tests."""

import gzip
import json
import os
from pathlib import Path

import pytest

import klearlib
from klearlib.data.sources import read_source
from klearlib.verify.programs import ProgramJob, run_many

ROOT = Path(klearlib.__file__).resolve().parents[1]
SHARED = Path(os.environ.get("KLEAR_SHARED", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="module")
def rows():
    path = SHARED / "HumanEval.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path.name}: set KLEAR_SHARED to the folder that holds it")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def judge(rows, sources):
    problems = [row.problem for row in read_source("humaneval", rows)]
    return run_many(
        ProgramJob(source, problem.tests, 20.0, 1024, problem.entry_point)
        for source, problem in zip(sources, problems, strict=True)
    )


def test_all_reference_solutions_pass(rows):
    assert len(rows) == 164
    reports = judge(rows, [row["prompt"] + row["canonical_solution"] for row in rows])
    failed = {
        row["task_id"]: (report.outcomes, report.messages)
        for row, report in zip(rows, reports, strict=True)
        if report.pass_rate != 1
    }
    assert failed == {}


def test_programs_that_do_nothing_fail(rows):
    reports = judge(rows, [row["prompt"] + "    return None\n" for row in rows])
    assert {report.pass_rate for report in reports} == {0.0}
