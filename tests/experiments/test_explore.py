"""What docs/exploring.md promises: the notebook to explore with runs from top to bottom, and its
update by hand is the update of training."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def examples() -> list[str]:
    page = (REPOSITORY / "docs" / "exploring.md").read_text()
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_notebook_and_the_page_run_and_show(tiny_project):
    """The page's cells after the notebook's, with the runs that it has trained."""
    pytest.importorskip("ipywidgets")
    values = tiny_project / "params" / "smoke" / "05_clipping.yaml"
    values.write_text("rules: [gppo, clip_higher]\n")
    page = "\n".join(examples()[2:]).replace(", step=20", "")
    page = page.replace('params_of("mini"))', 'params_of("smoke")).changed(code=False)')
    notebook = nbformat.read(REPOSITORY / "notebooks" / "explore.ipynb", nbformat.NO_CONVERT)
    notebook.cells.append(nbformat.v4.new_code_cell(page))
    nbformat.write(notebook, tiny_project / "notebooks" / "explore.ipynb")
    command = "papermill --no-progress-bar notebooks/explore.ipynb explored.ipynb"
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=tiny_project,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "KLEAR_ROOT": str(tiny_project)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    explored = nbformat.read(tiny_project / "explored.ipynb", nbformat.NO_CONVERT)
    shown = json.dumps([cell.get("outputs", []) for cell in explored.cells])
    for words in ("image/png", "ratio, sign of A", "tokens, ratios", "half", "GPPO", "undecided"):
        assert words in shown, words


def test_the_examples_of_the_page_read_published_results(monkeypatch):
    monkeypatch.setenv("KLEAR_ROOT", str(REPOSITORY))
    monkeypatch.chdir(REPOSITORY / "notebooks")  # where a kernel of JupyterLab starts
    first, second = examples()[:2]
    names: dict = {}
    exec(first, names)
    exec(second, names)
    assert {"learning rate 5e-05: gppo"} <= set(names["curves"]["series"])
    assert len(names["ends"]) > 100
