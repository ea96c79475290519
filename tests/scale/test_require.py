"""What a machine without verl is told, and one with the wrong company for it."""

import importlib.metadata

import pytest

from klearlib.errors import MissingAsset
from klearlib.scale import require


def there(monkeypatch, *modules):
    monkeypatch.setattr(require, "_is_there", lambda module: module in modules)


def test_one_line_says_what_to_install(monkeypatch):
    there(monkeypatch)
    with pytest.raises(MissingAsset, match="^Ray is not installed: pip install 'ray"):
        require.require_ray()
    with pytest.raises(MissingAsset, match="^verl and Ray are not installed: run make verl"):
        require.require_verl()
    there(monkeypatch, "ray")
    require.require_ray()
    with pytest.raises(MissingAsset, match="^verl is not installed: run make verl"):
        require.require_verl()


def test_an_antlr_that_judges_otherwise_is_refused(monkeypatch):
    there(monkeypatch, "ray", "verl")
    require.require_verl()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.9.3")
    with pytest.raises(MissingAsset, match=r"antlr4-python3-runtime is 4\.9\.3.*make verl"):
        require.require_verl()
