"""The two ways through the code that docs/architecture.md shows are there, name by name."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_PLACE = re.compile(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)")


def way(title: str) -> list[tuple[str, str]]:
    """(file, function) in the order in which a reader meets them."""
    part = TEXT.partition(f"**{title}")[2].partition("\n**")[0].partition("\n## ")[0]
    return [
        (file, name)
        for file, names in _PLACE.findall(part)
        for name in re.findall(r"`(\w+)`", names)
    ]


def source(file: str, name: str) -> str:
    """The text of all functions and classes of this name in a file."""
    text = (ROOT / "klearlib" / file).read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = [
        ast.get_source_segment(text, node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, kinds) and node.name == name
    ]
    assert found, f"{file} has no {name}"
    return "\n".join(found)


# What is handed over by name, in the spec file of a stage, and so is in no text.
BY_NAME = {("_trained_by", "run"), ("ForkedWorker", "main"), ("_run", "train_rl")}


@pytest.mark.parametrize(
    ("title", "most_files", "last"),
    [("From notebook 06", 8, "Eq. 14"), ("From `verdict_table()`", 5, "SUPPORTED")],
)
def test_each_function_of_a_way_calls_the_next(title, most_files, last):
    steps = way(title)
    assert len({file for file, _ in steps}) <= most_files
    for (file, name), (_, called) in itertools.pairwise(steps):
        if (name, called) not in BY_NAME:
            assert re.search(rf"\b{called}\b", source(file, name)), f"{file}: {name} -> {called}"
    assert last in source(*steps[-1])
    assert "train_rl" in source("experiments/rl_stages.py", "_trained_by")
