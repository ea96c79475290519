"""Notebook 00: what the paper says, which notebook decides it, and the ledger as it stands."""

from __future__ import annotations

from functools import cached_property

from klearlib import paper
from klearlib.experiments.catalogue import experiments
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.shown import Frame, Rows, table
from klearlib.params.options import NotebookParams
from klearlib.report.section import NOT_RUN, Section, in_paper_order, read_sections
from klearlib.report.verdicts import ledger


class Overview(Experiment):
    """Gathers what the other notebooks have published; it has no stages of its own."""

    name = "00_overview"
    title = "Overview"
    section = "1 to 5"
    question = "What does the paper claim, and what has been measured of it here?"
    Params = NotebookParams
    gathers = True

    @table(
        "The phases of the pipeline and the notebooks that study each.",
        columns="phase, notebook, decides",
    )
    def pipeline(self) -> Rows:
        studied = [each for each in experiments() if each.phase]
        phases = list(dict.fromkeys(each.phase for each in studied))
        for each in sorted(studied, key=lambda each: phases.index(each.phase)):
            decides = ", ".join(c.id for c in paper.claims() if c.notebook == each.name)
            yield [each.phase, each.name, decides]

    def progress(self) -> Frame:
        """`pipeline` with the state of each notebook at this profile, and its runs' minutes (NaN
        where nothing has run)."""
        published, shown = {each.notebook: each for each in self.sections}, self.table("pipeline")
        found = [published.get(notebook) for notebook in shown["notebook"]]
        minutes = [round(each.seconds / 60, 1) if each else float("nan") for each in found]
        states = [each.status.replace("partial", "interim") if each else NOT_RUN for each in found]
        return shown.assign(state=states, minutes=minutes)

    def beside_the_paper(self) -> Frame:
        """Every table and figure of the paper with the names of its counterpart here, or "not
        run"."""
        import pandas as pd

        published = {each.notebook: each for each in self.sections}
        rows = []
        for notebook, each in in_paper_order(experiments()):
            here = published[notebook].published(each.names) if notebook in published else []
            rows.append((each.item, each.shows, notebook, ", ".join(here) or NOT_RUN))
        return pd.DataFrame(rows, columns=["in the paper", "what it shows", "notebook", "here"])

    def ledger(self) -> Frame:
        import pandas as pd

        columns = ["claim", "title", "notebook", "verdict", "measured", "reason", "settle"]
        entries = ledger(self.sections, experiments(), place=self.place)
        return pd.DataFrame(entries)[columns]

    @cached_property
    def sections(self) -> list[Section]:
        return [each for each in read_sections(self.place.folder) if each.notebook != self.name]

    def notes(self) -> list[str]:
        return [
            "The pipeline: curated sources, long chain-of-thought SFT, RL with verifiable rewards "
            "for mathematics and then for code by GPPO, evaluation by avg@n."
        ]
