"""One page for each profile, results/<profile>/report.html: no network and no script. Its figures
are the files next to it.

The page follows from the published sections alone, so it is byte for byte the same until one of
them changes: it holds the time of the runs and never that of its building.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from klearlib.params.files import has_notebook
from klearlib.params.place import read_place
from klearlib.report.forest import forest_svg
from klearlib.report.formula import formula_svg
from klearlib.report.render import render
from klearlib.report.section import (
    Notebook,
    Section,
    in_paper_order,
    is_paper_scale,
    read_sections,
)
from klearlib.report.tables import read_csv
from klearlib.report.verdicts import ledger
from klearlib.run.files import write_text

_FOREST = "claims.svg"


def build_report(results_dir: Path, notebooks: Sequence[Notebook]) -> Path:
    """Write report.html, README.md, claims.json and claims.svg of a results folder from what its
    notebooks published; the path of the first.

    results_dir: see `klearlib.params.place.read_place`; it is made if it is absent. notebooks: all
    that the suite has. Files are replaced whole, and left alone where nothing changed. Raises
    KlearError for a section that is damaged or names an artefact that is not there.
    """
    place, sections = read_place(results_dir), read_sections(results_dir)
    published = {section.notebook: section for section in sections}
    entries = ledger(sections, notebooks, place=place)
    counterparts = [
        (name, each, published[name].published(each.names) if name in published else [])
        for name, each in in_paper_order(notebooks)
    ]
    shared = {
        "place": place,
        "paper_scale": is_paper_scale(place.profile),
        "facts": header_facts(sections),
        "sections": sections,
        "published": published,
        "answers": [answer for section in sections for answer in section.answers],
        "entries": entries,
        "counterparts": counterparts,
    }
    deviations = results_dir.resolve().parent.parent / "docs" / "deviations.md"
    if forest := forest_svg(entries):
        _write_changed(results_dir / _FOREST, forest)
    else:
        (results_dir / _FOREST).unlink(missing_ok=True)
    page = render(
        "page.html.j2",
        **shared,
        title=f"klear: {'changed from ' if place.changes else ''}profile {place.profile}",
        css=Path(__file__).with_name("page.css").read_text(encoding="utf-8"),
        num_complete=sum(section.complete for section in sections),
        # A folder of changed parameters has the notebooks that were asked for.
        absent=[]
        if place.changes
        else _absent(
            [each.name for each in notebooks if each.name not in published], entries, place.profile
        ),
        forest=forest,
        in_paper={(notebook, name) for notebook, each, _ in counterparts for name in each.names},
        has_deviations=deviations.is_file(),
        formula=formula_svg,
        read_csv=read_csv,
    )
    _write_changed(results_dir / "README.md", render("readme.md.j2", **shared))
    ledger_text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    _write_changed(results_dir / "claims.json", ledger_text)
    return _write_changed(results_dir / "report.html", page)


def header_facts(sections: Iterable[Section]) -> dict[str, str]:
    """Commit, hardware and time of the runs behind the page; several values are joined by " | "."""
    records = [section.provenance for section in sections]
    time = max((str(record.get("utc") or "") for record in records), default="")
    facts = {
        "commit": [_commit_text(record.get("commit")) for record in records],
        "klear": [str(record.get("klear") or "unknown") for record in records],
        "hardware": [_hardware_text(record) for record in records],
        "time": [time.replace("T", " ").replace("Z", " UTC")],
    }
    joined = {name: " | ".join(dict.fromkeys(texts)) for name, texts in facts.items()}
    return {name: text for name, text in joined.items() if text}


def _absent(names: Iterable[str], entries: Sequence[dict], profile: str) -> list[str]:
    """The `names` that the profile has, or neighbouring folders, with a claim that no neighbour has
    a final verdict on; with the folders that have verdicts on others of their claims."""
    found = []
    for name in names:
        mine = [entry for entry in entries if entry["notebook"] == name]
        beside = sorted({entry["elsewhere"] for entry in mine} - {None})
        if not beside and not has_notebook(profile, name):
            continue
        if not mine or any(entry["interim"] or not entry["elsewhere"] for entry in mine):
            found.append(f"{name} (parts are in {', '.join(beside)})" if beside else name)
    return found


def _commit_text(commit: str | None) -> str:
    if not commit:
        return "unknown"
    return commit[:12] + (" with local changes" if commit.endswith("+") else "")


def _hardware_text(record: dict) -> str:
    cores, memory = record.get("cores"), record.get("memory_gb")
    parts = [record.get("cpu") or "unknown CPU", cores and f"{cores} cores"]
    parts += [memory and f"{memory:g} GB", record.get("gpu") or "no GPU"]
    return ", ".join(part for part in parts if part)


def _write_changed(path: Path, text: str) -> Path:
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text, durable=False, make_folder=True)
    return path
