"""Notebook 00 gathers, and judges nothing itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from klearlib.experiments import overview
from klearlib.experiments.counterparts import notebooks
from klearlib.params import NOTEBOOKS, OverviewParams
from klearlib.report.page import build_report

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_claim_has_its_notebook():
    table = overview.questions().set_index("claim")
    assert list(table.index) == [f"C{number}" for number in range(1, 15)]
    assert table.loc["C1", "notebook"] == "05_clipping"
    assert set(table["notebook"]) <= set(NOTEBOOKS)


def test_the_pipeline_holds_every_notebook_once_and_every_claim():
    table = overview.pipeline()
    assert sorted(table["notebook"]) == sorted(set(NOTEBOOKS) - {"00_overview"})
    decided = ", ".join(text for text in table["decides"] if text).split(", ")
    assert sorted(decided) == sorted(overview.questions()["claim"])


def test_ledger_of_an_empty_profile_runs_nothing(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    params = OverviewParams()
    assert set(overview.claims_ledger(params)["verdict"]) == {"not run"}
    section = json.loads(overview.publish(params).read_text())
    assert section["verdicts"] == [] and section["status"] == "complete"
    page = build_report(tmp_path / "results" / "smoke", notebooks()).read_text()
    assert "Klear-Reasoner" in page
