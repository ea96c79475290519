"""HumanEval's reference solutions, judged by its own assert tests."""

import pytest
from shared_data import shared_rows

from klearlib.data.sources import read_source
from klearlib.verify.programs import ProgramJob, run_many


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_all_reference_solutions_pass_and_programs_that_do_nothing_fail(every):
    rows = shared_rows("HumanEval.jsonl.gz")
    reader = read_source("humaneval", rows)
    rows, given = rows[::every], list(reader)[::every]
    assert (reader.num_read, reader.num_kept, len(given)) == (164, 164, len(rows))
    for body, rate in (("canonical_solution", 1.0), (None, 0.0)):
        sources = [row["prompt"] + row.get(body, "    return None\n") for row in rows]
        reports = run_many(
            ProgramJob(source, row.problem.tests, 20.0, 1024, row.problem.entry_point)
            for source, row in zip(sources, given, strict=True)
        )
        found = {row["task_id"]: report for row, report in zip(rows, reports, strict=True)}
        assert {name: r.messages for name, r in found.items() if r.pass_rate != rate} == {}
