"""The paths of a real.yaml."""

from __future__ import annotations

from pathlib import Path

from klearlib.hub import is_path
from klearlib.params import root


def located(path: str) -> Path:
    """A path of real.yaml; one that is not absolute starts at the project's folder."""
    return root() / Path(path).expanduser()


def model_path(model: str) -> Path | None:
    """The folder that a model of real.yaml names, whether it is there or not; None for a hub id.

    ``models/tiny`` looks like a hub id: it is a path where the project has a folder ``models``.
    """
    place = located(model)
    return place if is_path(model) or place.parent.is_dir() else None
