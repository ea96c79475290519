"""git sees what a user changed in a notebook, and nothing that running it left there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klearlib.suite.clean import after_save, cleaned

REPOSITORY = Path(__file__).resolve().parents[2]
NAME = "notebooks/05_clipping.ipynb"
# Of an environment: it opens no JupyterLab, and runs what git asks for.
STAND_IN = f"""#!/bin/sh
case "$*" in *jupyterlab*) ;; *) PYTHONPATH={REPOSITORY} exec {sys.executable} "$@" ;; esac
"""


def as_run(text: str) -> str:
    """The notebook as JupyterLab saves it when its cells have run."""
    notebook = json.loads(text)
    notebook["metadata"] |= {"widgets": {}, "kernelspec": {"display_name": "Python 3 (ipykernel)"}}
    notebook["metadata"]["language_info"] = {"name": "python", "version": "3.13.1"}
    for count, cell in enumerate(notebook["cells"]):
        cell["metadata"] |= {"scrolled": True, "execution": {"iopub.status.busy": "now"}}
        if cell["cell_type"] == "code":
            output = {"output_type": "stream", "name": "stdout", "text": ["seen\n"]}
            cell |= {"execution_count": count, "outputs": [output]}
    empty = {"cell_type": "code", "id": "new", "metadata": {}, "source": []}
    notebook["cells"].append(empty | {"execution_count": None, "outputs": []})
    return json.dumps(notebook, indent=1)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "notebooks").glob("*.ipynb")), ids=str)
def test_notebooks_in_git_are_clean(path):
    command = ["git", "show", f":notebooks/{path.name}"]  # the file may have been run since
    in_git = subprocess.run(command, cwd=REPOSITORY, capture_output=True)
    text = (in_git.stdout if in_git.returncode == 0 else path.read_bytes()).decode()
    assert cleaned(text) == text
    assert cleaned(as_run(text)) == text


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', "<<<<<<< ours\n{}\n", '{"cells": [3]}'])
def test_what_is_no_notebook_stays(text):
    assert cleaned(text) == text


@pytest.mark.skipif(not (shutil.which("make") and shutil.which("git")), reason="no make, no git")
def test_make_lab_has_git_see_changed_cells_alone(tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    for path in (tmp_path / "notebooks", python.parent):
        path.mkdir(parents=True)
    python.write_text(STAND_IN)
    python.chmod(0o755)
    for name in (NAME, "Makefile", ".gitattributes", "requirements.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    notebook, original = tmp_path / NAME, cleaned((REPOSITORY / NAME).read_text())
    notebook.write_text(original)
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}

    def call(*command: str) -> str:
        words = {"cwd": tmp_path, "env": environment, "check": True, "text": True}
        return subprocess.run(command, **words, stdout=subprocess.PIPE).stdout

    call("git", "init", "-q")
    call("git", "add", NAME)  # without the filter, which this clone does not have yet
    call("git", "-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "first")
    notebook.write_text(as_run(original))
    assert call("git", "status", "--short", "notebooks").startswith(" M")
    (python.parents[1] / ".klear-ready").touch()
    call("make", "-o", "venv/.klear-ready", "lab", "KLEAR_VENV=venv")
    assert call("git", "diff", "notebooks") == ""
    after_save({"type": "notebook"}, str(notebook))
    new = notebook.with_name("new.ipynb")
    new.write_text(original)
    after_save({"type": "notebook"}, str(new))
    assert call("git", "status", "--short", "notebooks") == "?? notebooks/new.ipynb\n"
    new.unlink()
    notebook.write_text(as_run(original).replace("num_steps: int = 2", "num_steps: int = 9"))
    after_save({"type": "notebook"}, str(notebook))
    assert call("git", "diff", "--cached") == ""
    changed = call("git", "diff", "-U0", "notebooks").splitlines()
    changed = [line for line in changed if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 2 and "num_steps: int = 9" in changed[1]
    python.unlink()  # and a clone whose environment has gone still works
    assert call("git", "status", "--short", "notebooks").startswith(" M")
