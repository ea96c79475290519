"""A project of toy notebooks."""

import pytest
import toy_suite

from klearlib.experiments import catalogue
from klearlib.run import preload


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with notebooks 00 and 05, in this process."""
    toy_suite.make(tmp_path, {"00_gather": toy_suite.GATHER, "05_toy": toy_suite.TOY})
    (tmp_path / "params" / "smoke" / "05_toy.yaml").write_text("num_steps: 3\n")
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    monkeypatch.syspath_prepend(toy_suite.HERE)
    for name in ("names", "experiment_of"):
        monkeypatch.setattr(catalogue, name, getattr(catalogue, name))
    toy_suite.install()
    monkeypatch.setattr(preload, "PRELOADED", ())  # toy stages need no torch
    return tmp_path
