"""Notebook 00 gathers, and judges nothing itself; the notebooks are found by their modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from klearlib.errors import ParameterError
from klearlib.experiments import catalogue
from klearlib.experiments.nb00_overview import Overview
from klearlib.experiments.shown import equations_of
from klearlib.paper import claims
from klearlib.params.options import NotebookParams as OverviewParams
from klearlib.report.formula import formula_svg
from klearlib.report.page import build_report
from klearlib.run.provenance import provenance

REPOSITORY = Path(__file__).resolve().parents[2]
NAME = Overview.name


def test_notebooks_are_found_by_the_names_of_their_modules():
    modules = (REPOSITORY / "klearlib" / "experiments").glob("nb*.py")
    assert catalogue.names() == tuple(sorted(path.stem.removeprefix("nb") for path in modules))
    assert tuple(each.name for each in catalogue.experiments()) == catalogue.names()
    assert catalogue.experiment_of(NAME) is Overview
    assert catalogue.stages_of(NAME, OverviewParams()) == {}
    with pytest.raises(ParameterError, match="did you mean '00_overview'"):
        catalogue.experiment_of("00_overviews")


def test_a_plan_of_all_notebooks_needs_no_drawing():
    heavy = "{'pandas', 'matplotlib', 'scipy', 'transformers'}"
    code = "import sys; from klearlib.experiments.catalogue import experiments; experiments()"
    code += f"; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_formula_can_be_drawn():
    for notebook in set(catalogue.names()) - {NAME, "11_beyond", "12_rules"}:
        found = equations_of(notebook)
        assert found and all("<path" in formula_svg(each.latex) and each.says for each in found)


def test_every_claim_has_its_notebook():
    table = Overview(OverviewParams()).ledger().set_index("claim")
    assert list(table.index) == [claim.id for claim in claims()]
    assert table.loc["C1", "notebook"] == "05_clipping"
    assert set(table["notebook"]) <= set(catalogue.names())


def test_the_pipeline_holds_every_notebook_once_and_every_claim():
    table = Overview(OverviewParams()).table("pipeline")
    assert sorted(table["notebook"]) == sorted(set(catalogue.names()) - {NAME})
    assert all(table["phase"]) and list(table["notebook"])[-1] == "10_headline"
    decided = ", ".join(text for text in table["decides"] if text).split(", ")
    assert sorted(decided) == sorted(each.id for each in claims())


def test_ledger_of_an_empty_profile_runs_nothing(project):
    experiment = Overview(OverviewParams())
    assert set(experiment.ledger()["verdict"]) == {"not run"}
    experiment.publish()
    section = json.loads((project / "results" / "smoke" / NAME / "section.json").read_text())
    assert section["verdicts"] == [] and section["status"] == "complete"
    page = build_report(project / "results" / "smoke", catalogue.experiments()).read_text()
    assert "Klear-Reasoner" in page


def put(
    project: Path, notebook: str, *, missing: tuple[str, ...] = (), tables: tuple[str, ...] = ()
) -> None:
    """A section of the profile mini as a notebook would leave it after 90 seconds."""
    folder = project / "results" / "mini" / notebook
    folder.mkdir(parents=True)
    for name in tables:
        (folder / f"{name}.csv").write_text("a\n1\n")
    lists = {key: [] for key in ("equations", "figures", "verdicts", "notes")}
    section = lists | {
        "notebook": notebook,
        "title": "t",
        "section": "5",
        "question": "q",
        "status": "partial" if missing else "complete",
        "missing": list(missing),
        "tables": [{"name": name, "caption": "c"} for name in tables],
        "provenance": provenance(),
        "seconds": 90.0,
        "parameters": {"profile": "mini"},
    }
    (folder / "section.json").write_text(json.dumps(section))


def test_states_and_counterparts_are_those_of_the_sections(project):
    put(project, "06_alpha_sweep", tables=("scores",))
    put(project, "10_headline", missing=("code RL, seed 0",))
    experiment = Overview(OverviewParams(profile="mini"))
    table = experiment.progress().set_index("notebook")
    assert table.loc["06_alpha_sweep", "state"] == "complete"
    assert table.loc["06_alpha_sweep", "minutes"] == 1.5
    assert table.loc["10_headline", "state"] == "interim"
    assert (table["state"] == "not run").sum() == len(table) - 2
    here = experiment.beside_the_paper().set_index("in the paper")["here"]
    assert here["Table 6"] == "scores" and here["Fig. 2a"] == "not run" == here["Table 1"]
