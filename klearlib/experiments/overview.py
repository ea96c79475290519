"""Notebook 00: what the paper says, which notebook decides it, and the ledger as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.counterparts import notebooks
from klearlib.experiments.publish import publish_section, results_dir
from klearlib.paper import claims, table
from klearlib.params.notebooks import OverviewParams
from klearlib.report.ledger import ledger
from klearlib.report.section import NOT_RUN, Section, in_paper_order, read_sections

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "00_overview"

PIPELINE = {
    "long chain-of-thought SFT": (
        "01_data_curation",
        "02_data_correctness",
        "03_teacher_ablation",
        "04_topk_diversity",
    ),
    "RL for mathematics": ("05_clipping", "06_alpha_sweep", "09_zero_advantage"),
    "RL for code": ("07_soft_reward", "08_test_filter"),
    "all phases in a row, evaluation": ("10_headline",),
}
"""The phases of the paper's pipeline, in their order, and the notebooks that study each."""


def pipeline() -> pd.DataFrame:
    """One row for each notebook: its phase of the pipeline and the claims that it decides."""
    import pandas as pd

    rows = [
        {
            "phase": phase,
            "notebook": notebook,
            "decides": ", ".join(each.id for each in claims() if each.notebook == notebook),
        }
        for phase, notebooks in PIPELINE.items()
        for notebook in notebooks
    ]
    return pd.DataFrame(rows)


def progress(params: OverviewParams) -> pd.DataFrame:
    """`pipeline` with the state of each notebook at this profile, and its runs' minutes (NaN where
    nothing has run)."""
    published = {each.notebook: each for each in _sections(params)}
    words = {"complete": "complete", "partial": "interim"}
    rows = pipeline()
    found = [published.get(notebook) for notebook in rows["notebook"]]
    rows["state"] = [words[each.status] if each else NOT_RUN for each in found]
    rows["minutes"] = [round(each.seconds / 60, 1) if each else float("nan") for each in found]
    return rows


def counterparts(params: OverviewParams) -> pd.DataFrame:
    """Every table and figure of the paper, and the names of its counterpart here, or "not run"."""
    import pandas as pd

    published = {each.notebook: each for each in _sections(params)}
    rows = []
    for notebook, each in in_paper_order(notebooks()):
        names = published[notebook].published(each.names) if notebook in published else []
        rows.append(
            {
                "in the paper": each.item,
                "what it shows": each.shows,
                "notebook": notebook,
                "here": ", ".join(names) or NOT_RUN,
            }
        )
    return pd.DataFrame(rows)


def questions() -> pd.DataFrame:
    """One row for each claim: what the paper says, where, and the notebook that decides it."""
    import pandas as pd

    rows = [
        {
            "claim": each.id,
            "title": each.title,
            "place": f"{each.section}, {each.shown}",
            "kind": each.kind,
            "notebook": each.notebook,
        }
        for each in claims()
    ]
    return pd.DataFrame(rows)


def claims_ledger(params: OverviewParams) -> pd.DataFrame:
    """The verdict on every claim as this profile's notebooks have published it."""
    import pandas as pd

    columns = ["claim", "title", "verdict", "measured", "reason", "settle"]
    entries = ledger(_sections(params), notebooks(), profile=params.profile)
    return pd.DataFrame(entries)[columns]


def headline() -> pd.DataFrame:
    """Table 1 of the paper, in percent."""
    return table(1).reset_index(names="model")


def publish(params: OverviewParams) -> Path:
    """Write the tables and section.json."""
    tables = {
        "pipeline": (pipeline(), "The phases of the pipeline and the notebooks that study each."),
        "questions": (questions(), "The paper's claims, and the notebook that decides each."),
        "table1": (headline(), "The paper's Table 1, in percent."),
    }
    return publish_section(
        NOTEBOOK,
        params,
        stages=[],
        title="Overview",
        section="1 to 5",
        question="What does the paper claim, and what has been measured of it here?",
        equations=[],
        figures={},
        tables=tables,
        digits=1,
        verdicts=[],
        notes=[
            "The pipeline: curated sources, long chain-of-thought SFT, RL with verifiable rewards "
            "for mathematics and then for code by GPPO, evaluation by avg@n."
        ],
    )


def _sections(params: OverviewParams) -> list[Section]:
    """What the other notebooks have published at this profile."""
    folder = results_dir(params.profile, NOTEBOOK).parent
    return [each for each in read_sections(folder) if each.notebook != NOTEBOOK]
