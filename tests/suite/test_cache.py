"""A notebook that reads another's parameter file runs again when that file changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from klearlib.errors import ParameterError
from klearlib.experiments.catalogue import check, experiment_of
from klearlib.params import load_profile
from klearlib.suite.cache import digests

REPOSITORY = Path(__file__).resolve().parents[2]
NAME, OTHER = "09_zero_advantage", "07_soft_reward"


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    mine = tmp_path / "params" / "mini" / f"{NAME}.yaml"
    mine.write_text(mine.read_text().replace("soft_filters: []", "soft_filters: [advantage]"))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def changed_by(project: Path, file: str, old: str, new: str) -> set[str]:
    """Which digests of 09 change with one line of a parameter file."""
    notebook = json.loads((REPOSITORY / "notebooks" / f"{NAME}.ipynb").read_text(encoding="utf-8"))
    path = project / "params" / "mini" / file
    found = []
    assert old in path.read_text()
    for text in (path.read_text(), path.read_text().replace(old, new)):
        path.write_text(text)
        found.append(
            digests(notebook, experiment_of(NAME)(check(NAME, load_profile("mini", NAME))))
        )
    return {name for name, digest in found[0].items() if found[1][name] != digest}


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        (OTHER, "num_steps: 6", "num_steps: 2", {f"parameters of {OTHER}"}),
        (OTHER, "test_filter: {}", "test_filter: {threshold: 0.4}", {f"parameters of {OTHER}"}),
        # Neither a comment nor what cannot change a result counts.
        (OTHER, "# paper: 8", "# changed", set()),
        (OTHER, "workers: 0", "workers: 1", set()),
        (NAME, "num_steps: 12", "num_steps: 3", {"parameters"}),
        ("08_test_filter", "num_steps: 6", "num_steps: 2", set()),
        ("worlds", "modulus: 10 ", "modulus: 7 ", {"worlds.yaml, miniature"}),
        ("worlds", "num_tests: 16", "num_tests: 17", {"worlds.yaml, code_miniature"}),
        ("worlds", "num_maths: 800", "num_maths: 80", set()),
        ("compute", "batch_rows: 1024", "batch_rows: 8", {"compute.yaml, local"}),
        ("compute", "nodes: 1", "nodes: 2", set()),
    ],
)
def test_what_makes_the_notebook_run_again(project, file, old, new, changed):
    assert changed_by(project, f"{file}.yaml", old, new) == changed


def test_without_the_other_file_the_line_names_it(project):
    (project / "params" / "mini" / f"{OTHER}.yaml").unlink()
    with pytest.raises(ParameterError, match=f"has no {OTHER}.yaml"):
        changed_by(project, f"{NAME}.yaml", "", "")
