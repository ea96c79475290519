"""Notebooks tell the paper and hold no logic: a walk over the syntax of every cell."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path

import pytest

from klearlib.experiments.catalogue import experiment_of, names
from klearlib.params import parameters_cell
from klearlib.params.fields import default_of, shown_fields
from klearlib.suite.clean import cleaned

NOTEBOOK_FILES = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
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
    found += parameter_faults(name, source_of(code[tagged[0]]), trees[tagged[0]])
    record = experiment_of(name)
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


def parameter_faults(name: str, source: str, tree: ast.Module) -> list[str]:
    """Names, order, types and defaults of the parameters cell against the record."""
    wanted = [
        (field.name, field.type, default_of(field))
        for field in shown_fields(experiment_of(name).Params)
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
    # It may have been run here; what git has of it is checked in tests/suite/test_clean.py.
    assert faults(path.stem, json.loads(cleaned(path.read_text(encoding="utf-8")))) == []


CLIPPING = experiment_of("05_clipping")
HEAD = f"# 05 · {CLIPPING.title}\n\n**The question.** {CLIPPING.question}"


def good() -> dict:
    code = {"cell_type": "code", "execution_count": None, "outputs": [], "metadata": {}}
    return {
        "metadata": {"kernelspec": {"name": "python3"}},
        "cells": [
            {"cell_type": "markdown", "source": HEAD, "metadata": {}},
            code
            | {
                "source": parameters_cell(CLIPPING.Params),
                "metadata": {"tags": ["parameters"]},
            },
            code
            | {
                "source": [
                    "from klearlib.experiments.nb05_clipping import Clipping\n",
                    "e = Clipping.setup(globals())",
                ]
            },
            code | {"source": "e.finish()"},
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
    "def": (spoil_source(2, "e =", "def f(): pass\ne ="), "FunctionDef"),
    "comprehension": (spoil_source(2, "e =", "a = [i for i in 'ab']\ne ="), "comprehens"),
    "lambda": (spoil_source(2, "e =", "f = lambda: 1\ne ="), "Lambda"),
    "try": (spoil_source(2, "e =", "try: 1\nfinally: 2\ne ="), "Try"),
    "import": (spoil_source(2, "e =", "import numpy as np\ne ="), "imports numpy"),
    "no setup": (spoil_source(2, "setup(", "print("), "does not call e = Clipping"),
    "another's setup": (spoil_source(2, "Clipping", "Overview"), "does not call e = Clipping"),
    "title": (spoil_source(0, "# 05", "# 5"), "the first cell lacks '# 05"),
    "question": (spoil_source(0, "question.** ", "question.** Or "), "the first cell lacks '**The"),
    "long": (spoil_source(2, "e =", "\n" * 15 + "e ="), "too many lines"),
    "default": (spoil_source(1, "num_steps: int = 2", "num_steps: int = 5"), "'int', 5) where"),
    "type": (spoil_source(1, "eps_low: float", "eps_low: int"), "('eps_low', 'int', 0.2)"),
    "untyped": (spoil_source(1, "eps_low: float", "eps_low"), "more than typed values"),
    "no end": (spoil_source(3, "finish", "publish"), "the last code cell is not"),
    "help": (spoil_source(1, "  # RL steps", ""), "no help in: num_steps"),
    "two =": (spoil_source(1, "# RL steps", "# a = b"), "papermill cannot read: num_steps"),
    "name": (spoil_source(1, "num_steps", "steps"), "parameter ('steps'"),
    "missing": (spoil_source(1, "options: dict = {}", "#"), "16 parameters"),
    "output": (lambda content: content["cells"][2].update(execution_count=3), "holds output"),
    "kernel": (lambda content: content["metadata"].pop("kernelspec"), "kernelspec"),
    "no markdown": (lambda content: content["cells"].pop(0), "first cell is not markdown"),
    "no tag": (lambda content: content["cells"][1].update(metadata={}), "0 cells tagged"),
    "many cells": (
        lambda content: content["cells"].extend(copy.deepcopy(content["cells"][2:3]) * 13),
        "16 code cells",
    ),
}


@pytest.mark.parametrize(("spoil", "fault"), SPOILS.values(), ids=SPOILS)
def test_each_departure_is_found(spoil, fault):
    content = good()
    spoil(content)
    assert any(fault in found for found in faults("05_clipping", content))


def test_notebook_without_declared_parameters():
    assert faults("99_new", good()) == ["99_new has no module in klearlib.experiments"]
