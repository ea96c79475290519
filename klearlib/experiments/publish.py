"""What a notebook publishes: section.json, written last, when its figures and tables are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from klearlib.params import root
from klearlib.run.entry import DONE, read_own_json
from klearlib.run.files import write_json
from klearlib.run.provenance import provenance
from klearlib.run.stage import Stage, is_done


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
    figures: Sequence[dict],
    tables: Sequence[dict],
    verdicts: Sequence[dict],
    notes: Sequence[str],
) -> Path:
    """Write section.json of `notebook`; "partial" while any of `stages` is not done.

    The provenance is that of the last stage that ran, so publishing the same results again, at
    another time or commit, changes nothing.
    """
    done, missing = split_done(stages)
    entries = [
        read_own_json(stage.folder(runs_dir()) / DONE, "provenance", "seconds") for stage in done
    ]
    records = sorted((entry["provenance"] for entry in entries), key=lambda record: record["utc"])
    path = results_dir(params.profile, notebook) / "section.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        path,
        {
            "notebook": notebook,
            "title": title,
            "section": section,
            "question": question,
            "status": "partial" if missing else "complete",
            "missing": [stage.title for stage in missing],
            "equations": list(equations),
            "figures": list(figures),
            "tables": list(tables),
            "verdicts": list(verdicts),
            "notes": list(notes),
            "provenance": records[-1] if records else provenance(),
            "seconds": round(sum(entry["seconds"] for entry in entries), 1),
            "parameters": asdict(params),
        },
    )
    return path
