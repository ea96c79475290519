"""A notebook that reads another's parameter file runs again when that file changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from klearlib.errors import ParameterError
from klearlib.params import check, load_profile
from klearlib.run.notebook_cache import digests

REPOSITORY = Path(__file__).resolve().parents[2]
NAME, OTHER = "09_zero_advantage", "07_soft_reward"


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def changed_by(project: Path, file: str, old: str, new: str) -> set[str]:
    """Which digests of 09 change with one line of a parameter file."""
    notebook = json.loads((REPOSITORY / "notebooks" / f"{NAME}.ipynb").read_text(encoding="utf-8"))
    path = project / "params" / "smoke" / file
    found = []
    for text in (path.read_text(), path.read_text().replace(old, new)):
        path.write_text(text)
        found.append(digests(notebook, check(NAME, load_profile("smoke", NAME))))
    return {name for name, digest in found[0].items() if found[1][name] != digest}


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        (f"{OTHER}.yaml", "num_steps: 3", "num_steps: 2", {f"{OTHER}.yaml"}),
        (f"{OTHER}.yaml", "threshold: 0.25", "threshold: 0.5", {f"{OTHER}.yaml"}),
        # Neither a comment nor what cannot change a result counts.
        (f"{OTHER}.yaml", "# paper: 8", "# changed", set()),
        (f"{OTHER}.yaml", "workers: 0", "workers: 1", set()),
        (f"{NAME}.yaml", "num_steps: 2", "num_steps: 3", {"parameters"}),
        ("08_test_filter.yaml", "num_steps: 3", "num_steps: 2", set()),
    ],
)
def test_what_makes_the_notebook_run_again(project, file, old, new, changed):
    assert changed_by(project, file, old, new) == changed


def test_without_the_other_file_the_line_names_it(project):
    (project / "params" / "smoke" / f"{OTHER}.yaml").unlink()
    with pytest.raises(ParameterError, match=f"has no {OTHER}.yaml"):
        changed_by(project, f"{NAME}.yaml", "", "")
