"""The environment that requirements-verl.lock makes: what its distributions ask of one another."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from klearlib.scale.require import require_ray, require_verl

ROOT = Path(__file__).resolve().parents[2]
# verl names them and runs without; this suite is made for newer ones and runs with older ones.
ABSENT = {("verl", "wandb"), ("verl", "pylatexenc")}
OLDER = {("klear", "transformers"), ("klear", "tokenizers")}


def test_every_distribution_has_what_it_needs():
    there = {
        canonicalize_name(each.metadata["Name"]): each
        for each in importlib.metadata.distributions()
    }
    lines = (ROOT / "requirements-verl.lock").read_text().splitlines()
    locked = [Requirement(line).name for line in lines if line and not line.startswith("#")]
    wrong = set()
    for name in {"klear", *map(canonicalize_name, locked)} & there.keys():
        for need in map(Requirement, there[name].requires or []):
            if need.marker is not None and not need.marker.evaluate({"extra": ""}):
                continue
            other = there.get(canonicalize_name(need.name))
            if other is None or not need.specifier.contains(other.version, prereleases=True):
                wrong.add((name, canonicalize_name(need.name)))
    assert wrong <= ABSENT | OLDER


def test_nothing_is_said_to_be_missing():
    require_verl()
    require_ray()
