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
from textwrap import indent

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def examples() -> list[str]:
    page = (REPOSITORY / "docs" / "exploring.md").read_text()
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def python(project: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "KLEAR_ROOT": str(project)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_notebook_and_the_page_run_and_show(tiny_project):
    pytest.importorskip("ipywidgets")
    shutil.copy(REPOSITORY / "notebooks" / "explore.ipynb", tiny_project / "notebooks")
    values = tiny_project / "params" / "smoke" / "05_clipping.yaml"
    values.write_text("rules: [gppo, clip_higher]\n")
    command = "papermill --no-progress-bar notebooks/explore.ipynb explored.ipynb"
    python(tiny_project, "-m", *command.split())
    cells = json.loads((tiny_project / "explored.ipynb").read_text())["cells"]
    shown = json.dumps([cell.get("outputs", []) for cell in cells])
    for words in ("image/png", "ratio, sign of A", "tokens, ratios", "half", "GPPO", "undecided"):
        assert words in shown, words
    # The page's cells after one another, with the runs that the notebook has trained.
    page = "\n".join(["import torch", *examples()[2:]]).replace(", step=20", "")
    page = page.replace('params_of("mini"))', 'params_of("smoke")).changed(code=False)')
    (tiny_project / "page.py").write_text(f"if __name__ == '__main__':\n{indent(page, '    ')}")
    python(tiny_project, "page.py")


def test_the_examples_of_the_page_read_published_results(monkeypatch):
    monkeypatch.setenv("KLEAR_ROOT", str(REPOSITORY))
    monkeypatch.chdir(REPOSITORY / "notebooks")  # where a kernel of JupyterLab starts
    first, second = examples()[:2]
    names: dict = {}
    exec(first, names)
    exec(second, names)
    assert {"learning rate 5e-05: gppo"} <= set(names["curves"]["series"])
    assert len(names["ends"]) > 100
