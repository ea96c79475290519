"""Notebooks tell the paper and hold no logic: a walk over the syntax of every cell."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from klearlib.experiments.catalogue import experiment_of, names
from klearlib.params import parameters_cell
from klearlib.suite.clean import cleaned

NOTEBOOK_FILES = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("[0-9]*.ipynb"))
MAX_CELLS, MAX_LINES = 15, 15
LOGIC = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
    ast.TryStar,
    ast.Lambda,
    ast.comprehension,
)


def faults(name: str, content: dict) -> list[str]:
    """Everything in which the notebook departs from the shape of all notebooks."""
    if name not in names():
        return [f"{name} has no module in klearlib.experiments"]
    found = []
    cells = content["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    if content["metadata"].get("kernelspec", {}).get("name") != "python3":
        found.append("the kernelspec is not python3")
    if cells[0]["cell_type"] != "markdown":
        found.append("the first cell is not markdown")
    if len(code) > MAX_CELLS:
        found.append(f"{len(code)} code cells")
    trees = [ast.parse(source_of(cell)) for cell in code]
    for index, (cell, tree) in enumerate(zip(code, trees, strict=True)):
        found += [f"code cell {index}: {fault}" for fault in cell_faults(cell, tree)]
    tagged = [i for i, cell in enumerate(code) if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1:
        return [*found, f"{len(tagged)} cells tagged parameters"]
    record = experiment_of(name)
    if source_of(code[tagged[0]]) != parameters_cell(record.Params):
        found.append("the parameters cell is not what klearlib.params.parameters_cell writes")
    following = source_of(code[tagged[0] + 1])
    called = f"e = {record.__name__}.setup(globals())"
    if called not in following or f"import {record.__name__}" not in following:
        found.append(f"the cell after the parameters does not call {called}")
    if source_of(code[-1]) != "e.finish()":
        found.append("the last code cell is not e.finish()")
    number, words = name.partition("_")[0], source_of(cells[0])
    for text in (f"# {number} · {record.title}", f"**The question.** {record.question}"):
        if text not in words:
            found.append(f"the first cell lacks {text!r}")
    return found


def source_of(cell: dict) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def cell_faults(cell: dict, tree: ast.AST) -> list[str]:
    found = []
    # That of the parameters has a line for each, which is compared with the record.
    is_parameters = "parameters" in cell["metadata"].get("tags", [])
    if len(source_of(cell).splitlines()) > MAX_LINES and not is_parameters:
        found.append("too many lines")
    if cell["outputs"] or cell["execution_count"] is not None:
        found.append("holds output")
    for node in ast.walk(tree):
        if isinstance(node, LOGIC):
            found.append(f"has logic of its own: {type(node).__name__}")
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        found += [f"imports {module}" for module in modules if module.split(".")[0] != "klearlib"]
    return found


@pytest.mark.parametrize("path", NOTEBOOK_FILES, ids=lambda path: path.stem)
def test_notebook_has_the_shape(path):
    # It may have been run here; what git has of it is checked in tests/suite/test_clean.py.
    assert faults(path.stem, json.loads(cleaned(path.read_text(encoding="utf-8")))) == []
