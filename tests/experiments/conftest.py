"""A folder of its own for what experiments read and write."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(Path(__file__).resolve().parents[2] / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "params" / "smoke" / "statistics.yaml"  # which decides nothing
    text = path.read_text().replace("decides: false", "decides: true")
    path.write_text(re.sub(r"(students|_rl): 1", r"\1: 3", text))
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path
