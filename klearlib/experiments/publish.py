"""What a notebook publishes: section.json, written last, when its figures and tables are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.verdict_dicts import as_records
from klearlib.params import root
from klearlib.report.section import Equation, write_section
from klearlib.run.entry import DONE, read_own_json
from klearlib.run.provenance import provenance
from klearlib.run.stage import Stage, is_done

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def runs_dir() -> Path:
    """Where the stages of all profiles and notebooks are kept."""
    return root() / "results" / "runs"


def results_dir(profile: str, notebook: str) -> Path:
    """Where a notebook publishes."""
    return root() / "results" / profile / notebook


def split_done(stages: Sequence[Stage]) -> tuple[list[Stage], list[Stage]]:
    """The stages that are done and those that are not, in their order."""
    done = [stage for stage in stages if is_done(stage, runs_dir())]
    return done, [stage for stage in stages if stage not in done]


def publish_section(
    notebook: str,
    params,
    *,
    stages: Sequence[Stage],
    title: str,
    section: str,
    question: str,
    equations: Sequence[dict],
    figures: Mapping[str, tuple[Figure, str, str]],
    tables: Mapping[str, tuple[pd.DataFrame, str]],
    verdicts: Sequence[dict],
    notes: Sequence[str],
    digits: int = 3,
) -> Path:
    """Write the figures and tables of `notebook`, then its section.json; "partial" while any of
    `stages` is not done.

    The provenance is that of the last stage that ran, so publishing the same results again, at
    another time or commit, changes nothing.

    Args:
        figures: name -> (figure, caption, alternative text).
        tables: name -> (table, caption). digits: of their numbers, see `write_table`.
    """
    done, missing = split_done(stages)
    entries = [
        read_own_json(stage.folder(runs_dir()) / DONE, "provenance", "seconds") for stage in done
    ]
    records = sorted((entry["provenance"] for entry in entries), key=lambda record: record["utc"])
    return write_section(
        results_dir(params.profile, notebook),
        title=title,
        section=section,
        question=question,
        equations=[Equation(**each) for each in equations],
        figures=figures,
        tables=tables,
        verdicts=as_records(verdicts),
        notes=notes,
        missing=[stage.title for stage in missing],
        provenance=records[-1] if records else provenance(),
        seconds=sum(entry["seconds"] for entry in entries),
        parameters=asdict(params),
        digits=digits,
    )


def as_table(verdicts: Sequence[dict]) -> pd.DataFrame:
    """Verdicts as a table for the notebook."""
    import pandas as pd

    columns = ["claim", "verdict", "measured", "reason", "settle"]
    return pd.DataFrame(verdicts)[columns]


def changed_options(options: Mapping[str, object], record: type) -> dict[str, object]:
    """The entries of an `options` parameter whose value is not the default of `record`."""
    defaults = asdict(record())
    return {name: value for name, value in options.items() if value != defaults[name]}


def departures(options: Mapping[str, object], record: type) -> list[str]:
    """The note that names the options by which a run departs from the paper; none if none does."""
    changed = changed_options(options, record)
    switched = ", ".join(f"{name}: {value}" for name, value in changed.items())
    return [f"Options that depart from the paper: {switched}."] if changed else []
