"""Workers of these tests import their stages from `toy_stages.py` beside this file."""

from multiprocessing import forkserver
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def toy_stages_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def _own_fork_server():
    """None is left that a test before these has started, which would have its environment."""
    forkserver._forkserver._stop()
