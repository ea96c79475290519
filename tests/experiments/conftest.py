"""A folder of its own for what experiments read and write."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from tiny_world import TINY_MODEL, TINY_WORLD


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(Path(__file__).resolve().parents[2] / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "params" / "smoke" / "statistics.yaml"  # which decides nothing
    text = path.read_text().replace("decides: false", "decides: true")
    path.write_text(re.sub(r"(students|_rl): \[0\]", r"\1: [0, 1, 2]", text))
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def tiny_project(project, made_once):
    """The profile smoke with a world that takes seconds, whose policy gets some answers right and
    is trained already."""
    path = project / "params" / "smoke" / "worlds.yaml"
    worlds = yaml.safe_load(path.read_text())
    steps = {"base_steps": 40, "base_batch": 24, "base_learning_rate": 6e-3}
    steps |= {"sft_steps": 120, "sft_batch": 24, "sft_learning_rate": 1e-2}
    worlds["miniature"] |= TINY_WORLD | TINY_MODEL | steps | {"max_new_tokens": 48}
    path.write_text(yaml.safe_dump(worlds))
    shutil.copytree(made_once("tiny_start", _make_start), project / "results" / "runs")
    return project


def _make_start(folder):
    from klearlib.experiments.catalogue import check
    from klearlib.experiments.nb05_clipping import Clipping
    from klearlib.run.pool import run_stages

    first = Clipping(check("05_clipping", {"code": False})).stages()[0]
    run_stages(tuple(first.inputs.values()), runs_dir=folder)
