"""A project of a tiny profile, whose stages run in this process."""

import pytest
from real_project import make

from klearlib.experiments.origins.real import RealOrigin


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(RealOrigin, "curate_workers", 1)
    return make(tmp_path)
