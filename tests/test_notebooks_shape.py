"""Notebooks tell the paper and hold no logic: a walk over the syntax of every cell."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path

import pytest

from klearlib.params import NOTEBOOKS, parameters_cell
from klearlib.params.fields import default_of, shown_fields

NOTEBOOK_FILES = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
MAX_CELLS, MAX_LINES = 12, 15
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
    if name not in NOTEBOOKS:
        return [f"{name} declares no parameters in klearlib.params"]
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
    found += parameter_faults(name, source_of(code[tagged[0]]), trees[tagged[0]])
    following = [ast.unparse(node) for tree in trees[tagged[0] + 1 : tagged[0] + 2]
                 for node in ast.walk(tree) if isinstance(node, ast.Call)]  # fmt: skip
    if f"setup('{name}', globals())" not in following:
        found.append("the cell after the parameters does not call setup")
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


def parameter_faults(name: str, source: str, tree: ast.Module) -> list[str]:
    """Names, order, types and defaults of the parameters cell against the record."""
    wanted = [
        (field.name, field.type, default_of(field)) for field in shown_fields(NOTEBOOKS[name])
    ]
    if not all(isinstance(node, ast.AnnAssign) for node in tree.body):
        return ["the parameters cell holds more than typed values"]
    got = [
        (ast.unparse(node.target), ast.unparse(node.annotation), ast.literal_eval(node.value))
        for node in tree.body
    ]
    found = [f"parameter {g} where the record has {w}" for g, w in zip(got, wanted) if g != w]  # noqa: B905
    if len(got) != len(wanted):
        found.append(f"{len(got)} parameters where the record has {len(wanted)}")
    for line in source.splitlines():
        if "  # " not in line:
            found.append(f"no help in: {line}")
        if line.count("=") != 1 or line.count("#") != 1:
            found.append(f"papermill cannot read: {line}")
    return found


@pytest.mark.parametrize("path", NOTEBOOK_FILES, ids=lambda path: path.stem)
def test_notebook_has_the_shape(path):
    assert faults(path.stem, json.loads(path.read_text(encoding="utf-8"))) == []


def good() -> dict:
    code = {"cell_type": "code", "execution_count": None, "outputs": [], "metadata": {}}
    return {
        "metadata": {"kernelspec": {"name": "python3"}},
        "cells": [
            {"cell_type": "markdown", "source": "# Question", "metadata": {}},
            code
            | {
                "source": parameters_cell(NOTEBOOKS["05_clipping"]),
                "metadata": {"tags": ["parameters"]},
            },
            code
            | {
                "source": [
                    "from klearlib.notebook import setup\n",
                    'params = setup("05_clipping", globals())',
                ]
            },
        ],
    }


def test_good_shape_has_no_fault():
    assert faults("05_clipping", good()) == []


def spoil_source(index: int, old: str, new: str):
    def spoil(content: dict) -> None:
        source = source_of(content["cells"][index])
        assert old in source
        content["cells"][index]["source"] = source.replace(old, new)

    return spoil


SPOILS = {
    "def": (spoil_source(2, "params =", "def f(): pass\nparams ="), "FunctionDef"),
    "comprehension": (spoil_source(2, "params =", "a = [i for i in 'ab']\nparams ="), "comprehens"),
    "lambda": (spoil_source(2, "params =", "f = lambda: 1\nparams ="), "Lambda"),
    "try": (spoil_source(2, "params =", "try: 1\nfinally: 2\nparams ="), "Try"),
    "import": (spoil_source(2, "params =", "import numpy as np\nparams ="), "imports numpy"),
    "no setup": (spoil_source(2, "setup(", "print("), "does not call setup"),
    "another's setup": (spoil_source(2, "05_clipping", "00_overview"), "does not call setup"),
    "long": (spoil_source(2, "params =", "\n" * 15 + "params ="), "too many lines"),
    "default": (spoil_source(1, "num_steps: int = 2", "num_steps: int = 5"), "'int', 5) where"),
    "type": (spoil_source(1, "eps_low: float", "eps_low: int"), "('eps_low', 'int', 0.2)"),
    "untyped": (spoil_source(1, "eps_low: float", "eps_low"), "more than typed values"),
    "help": (spoil_source(1, "  # RL steps", ""), "no help in: num_steps"),
    "two =": (spoil_source(1, "# RL steps", "# a = b"), "papermill cannot read: num_steps"),
    "name": (spoil_source(1, "num_steps", "steps"), "parameter ('steps'"),
    "missing": (spoil_source(1, "options: dict = {}", "#"), "15 parameters"),
    "output": (lambda content: content["cells"][2].update(execution_count=3), "holds output"),
    "kernel": (lambda content: content["metadata"].pop("kernelspec"), "kernelspec"),
    "no markdown": (lambda content: content["cells"].pop(0), "first cell is not markdown"),
    "no tag": (lambda content: content["cells"][1].update(metadata={}), "0 cells tagged"),
    "many cells": (
        lambda content: content["cells"].extend(copy.deepcopy(content["cells"][2:3]) * 11),
        "13 code cells",
    ),
}


@pytest.mark.parametrize(("spoil", "fault"), SPOILS.values(), ids=SPOILS)
def test_each_departure_is_found(spoil, fault):
    content = good()
    spoil(content)
    assert any(fault in found for found in faults("05_clipping", content))


def test_notebook_without_declared_parameters():
    assert faults("99_new", good()) == ["99_new declares no parameters in klearlib.params"]
