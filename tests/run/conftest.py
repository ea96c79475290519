"""Workers of these tests import their stages from `toy_stages.py` beside this file."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def toy_stages_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
