"""Notebook 00 says how far a profile is."""

from __future__ import annotations

import report_fakes as fakes

from klearlib.experiments import overview
from klearlib.params.base import NotebookParams as OverviewParams


def test_states_and_counterparts_are_those_of_the_sections(tmp_path, monkeypatch):
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    (tmp_path / "params").mkdir()
    results = tmp_path / "results" / "mini"
    fakes.publish(results, fakes.section(seconds=90.0), figures=False)
    partial = fakes.section(
        notebook="06_alpha_sweep", status="partial", missing=["alpha 0.1"], verdicts=[], figures=[]
    )
    fakes.publish(results, partial, figures=False)
    params = OverviewParams(profile="mini")
    table = overview.progress(params).set_index("notebook")
    assert table.loc["05_clipping", "state"] == "complete"
    assert table.loc["05_clipping", "minutes"] == 1.5
    assert table.loc["06_alpha_sweep", "state"] == "interim"
    assert (table["state"] == "not run").sum() == len(table) - 2
    here = overview.counterparts(params).set_index("in the paper")["here"]
    assert here["Fig. 2a"] == "fig2" and here["Table 6"] == "not run" == here["Table 1"]
