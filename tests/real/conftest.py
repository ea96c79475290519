"""A project of a tiny profile, whose stages run in this process."""

import pytest
from real_project import make


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return make(tmp_path)
