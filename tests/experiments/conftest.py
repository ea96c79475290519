"""A folder of its own for what experiments read and write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(Path(__file__).resolve().parents[2] / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path
