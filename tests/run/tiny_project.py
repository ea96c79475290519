"""A project with notebooks of a few lines, for the tests of the runner."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from klearlib.experiments.catalogue import experiment_of
from klearlib.params import parameters_cell

REPOSITORY = Path(__file__).resolve().parents[2]


def make(project: Path, sources: dict[str, str]) -> Path:
    """Put a profile smoke with a notebook of one cell for each of `sources` into a folder."""
    profile = project / "params" / "smoke"
    profile.mkdir(parents=True)
    (project / "notebooks").mkdir()
    for path in (REPOSITORY / "params" / "smoke").glob("*.yaml"):
        shutil.copy(path, profile)
    for name, source in sources.items():
        put(project, name, source)
    return project


def notebook(name: str, *sources: str) -> str:
    code = {"cell_type": "code", "execution_count": None, "outputs": []}
    parameters = {**code, "id": "p", "metadata": {"tags": ["parameters"]}}
    cells = [{**parameters, "source": parameters_cell(experiment_of(name).Params)}]
    cells += [
        {**code, "id": f"c{i}", "metadata": {}, "source": source}
        for i, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    return json.dumps({**content, "nbformat_minor": 5})


def put(project: Path, name: str, *sources: str) -> None:
    (project / "notebooks" / f"{name}.ipynb").write_text(notebook(name, *sources))


def ran(project: Path) -> list[str]:
    path = project / "ran.txt"
    return path.read_text().split() if path.exists() else []


def files(project: Path) -> set[str]:
    found = (path for path in (project / "results").rglob("*") if path.is_file())
    return {str(path.relative_to(project / "results")) for path in found}


def environment(project: Path) -> dict[str, str]:
    paths = {"KLEAR_ROOT": str(project), "PYTHONPATH": str(REPOSITORY)}
    return {**os.environ, **paths, "OMP_NUM_THREADS": "1"}
