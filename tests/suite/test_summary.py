"""The last lines of a run: short, in 80 columns, and what moved."""

from __future__ import annotations

import json

import pytest

from klearlib.run.stage import Stage
from klearlib.suite.summary import summary, verdicts_of

TITLE = "Correct-only data for easy problems, mixed data for hard ones"


def entry(claim: str, verdict: str, *differences: float, measured: str = "") -> dict:
    comparisons = [{"difference": each} for each in differences]
    known = {"claim": claim, "title": TITLE, "verdict": verdict, "measured": measured}
    return known | {"comparisons": comparisons}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """results/smoke with four verdicts."""
    (tmp_path / "params").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    folder = tmp_path / "results" / "smoke"
    folder.mkdir(parents=True)
    stable = "Clip-Higher: 100.0 % below the limit, median 0.7 (3 seeds); GPPO: 99.0 %"
    entries = [
        entry("C1", "undecided", 0.139, -0.0104),
        entry("C10", "supported", 0.0338),
        entry("C3", "supported", measured=stable),
        entry("C14", "reproduced", measured="largest error 5.7e-14 (tolerance 1e-06)"),
        entry("C13", "not run"),
    ]
    (folder / "claims.json").write_text(json.dumps(entries))
    return folder


def test_a_row_has_claim_verdict_and_the_smallest_difference(results):
    lines = summary(results, {}, [], 75.0).splitlines()
    ends = ["undecided -1.0 points", "supported +3.4 points", "supported 100.0 % below the limit"]
    ends.append("reproduced largest error 5.7e-14")
    for line, end in zip(lines[1:5], ends, strict=True):
        assert " ".join(line.split()).endswith(end) and "Correct-only data" in line
    assert lines[5:] == [
        "not run: 1 more claim",
        "nothing changed since the last run",
        "took 75 s",
        "report: results/smoke/report.html",
    ]
    assert max(map(len, lines)) <= 80 and "\t" not in "".join(lines)


def test_what_moved_and_what_was_computed_is_said(results):
    before = verdicts_of(results) | {"C1": "supported"}
    stages = [Stage(name, "m:f", {}) for name in ("sft", "rl", "rl")]
    lines = summary(results, before, stages, 1.0).splitlines()
    assert lines[6] == "computed: 1 sft, 2 rl"
    assert lines[7] == "verdicts that changed: C1 supported -> undecided"
    same = summary(results, verdicts_of(results), stages, 1.0)
    assert "verdicts that changed: none" in same
    assert "E6" not in summary(results, before | {"E6": "supported"}, [], 1.0)  # withdrawn since
    many = dict.fromkeys(before, "not tested")
    assert max(map(len, summary(results, many, stages, 1.0).splitlines())) <= 80


def test_before_anything_ran_there_are_no_verdicts(results, tmp_path):
    assert verdicts_of(tmp_path) == {}
    (results / "claims.json").write_text(json.dumps([entry("C1", "not run")]))
    assert verdicts_of(results) == {}
    lines = summary(results, {}, [], 1.0).splitlines()
    assert lines[0] == "not run: 1 claim"
    (results / "claims.json").write_text("{")
    assert verdicts_of(results) == {}
