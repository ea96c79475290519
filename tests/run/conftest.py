"""Workers of these tests import their stages from `toy_stages.py` beside this file."""

from pathlib import Path

import pytest

from klearlib.run import preload


@pytest.fixture(autouse=True)
def toy_stages_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def _own_fork_server():
    """None is left that a test before these has started, which would have its environment."""
    for server in preload._servers:
        server.end()
    preload._servers.clear()
