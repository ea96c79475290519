"""What an experiment does for a person in a notebook: its last cell, the stop button, intervals of
rates that are rates."""

from __future__ import annotations

import pytest

from klearlib.errors import Interrupted
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.experiments.nb00_overview import Overview
from klearlib.experiments.nb05_clipping import Clipping
from klearlib.experiments.score_tables import seed_interval
from klearlib.params.options import NotebookParams
from klearlib.run import pool
from klearlib.run.progress import PROGRESS_LOG


def test_the_last_cell_builds_the_report_and_links_what_is_there(project, monkeypatch):
    monkeypatch.chdir(project / "notebooks")
    monkeypatch.delenv(PROGRESS_LOG, raising=False)
    shown = Overview(NotebookParams()).finish().data
    report = project / "results" / "smoke" / "report.html"
    assert "Overview" in report.read_text()
    assert "[results/smoke/report.html](../results/smoke/report.html)" in shown
    assert "[pipeline](../results/smoke/00_overview/pipeline.csv)" in shown


def test_what_a_cell_writes_into_a_table_is_not_published(project):
    e = Overview(NotebookParams())
    mine = e.table("pipeline")
    mine["of mine"] = "of mine"
    mine.iloc[0, 0] = "of mine"
    file = e.publish().parent / "pipeline.csv"
    assert "of mine" not in file.read_text()
    assert "of mine" not in e.table("pipeline").to_csv()
    written = file.read_bytes()
    Overview(NotebookParams()).publish()
    assert file.read_bytes() == written


def test_klear_run_builds_the_report_itself(project, monkeypatch):
    monkeypatch.setenv(PROGRESS_LOG, str(project / "run.log"))
    Overview(NotebookParams()).finish()
    assert (project / "results/smoke/00_overview/section.json").is_file()
    assert not (project / "results/smoke/report.html").exists()


@pytest.mark.parametrize(("presses", "words"), [(1, "state saved"), (2, "last checkpoints")])
def test_the_stop_button_ends_in_one_line(project, monkeypatch, presses, words):
    def pressed(*_, **__):
        try:
            raise KeyboardInterrupt
        finally:
            if presses == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(pool, "run_stages", pressed)
    with pytest.raises(Interrupted) as raised:
        Clipping(ClippingParams()).run()
    (line,) = raised.value._render_traceback_()
    assert words in line and line.endswith("run again to go on") and "\n" not in line
    assert isinstance(raised.value, KeyboardInterrupt)


@pytest.mark.parametrize(
    ("values", "lowest", "wanted"),
    [
        ([0.9, 1.0], 0.0, (0.95, 0.31469, 1.0)),
        ([0.0, 0.1], 0.0, (0.05, 0.0, 0.68531)),
        ([-0.5, 0.5], -1.0, (0.0, -1.0, 1.0)),
    ],
)
def test_an_interval_of_a_rate_is_cut_to_what_a_rate_can_be(values, lowest, wanted):
    found = seed_interval(values, lowest=lowest)
    assert found == pytest.approx(wanted, abs=1e-5)
