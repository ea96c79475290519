"""What docs/exploring.md promises: the notebook to explore with runs from top to bottom, and its
update by hand is the update of training."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_notebook_runs_and_shows(tiny_project):
    pytest.importorskip("ipywidgets")
    shutil.copy(REPOSITORY / "notebooks" / "explore.ipynb", tiny_project / "notebooks")
    command = "papermill --no-progress-bar notebooks/explore.ipynb explored.ipynb"
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=tiny_project,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "KLEAR_ROOT": str(tiny_project)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((tiny_project / "explored.ipynb").read_text())["cells"]
    shown = json.dumps([cell.get("outputs", []) for cell in cells])
    for words in ("image/png", "ratio, sign of A", "tokens, ratios", "half", "GPPO", "undecided"):
        assert words in shown, words


def test_the_examples_of_the_page_read_published_results(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    page = (REPOSITORY / "docs" / "exploring.md").read_text()
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    names: dict = {}
    exec(first, names)
    exec(second, names)
    assert {"learning rate 5e-05: gppo"} <= set(names["curves"]["series"])
    assert len(names["ends"]) > 100
