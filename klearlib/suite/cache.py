"""Whether a notebook's published results still are what its cells, parameters and code would give.

``results/<profile>/<notebook>/cache.json`` holds a digest of each of these and of every artefact.
Nothing heavy is imported: a run in which all is cached takes well under two seconds.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
from pathlib import Path

import klearlib
from klearlib.errors import DamagedEntry, ParameterError
from klearlib.params import is_real, load, worlds_of
from klearlib.params.place import keyed_values
from klearlib.run.files import read_json, sha256_file, write_json
from klearlib.run.fingerprint import library_fingerprint
from klearlib.run.provenance import computing_versions

LOG, CACHE, SECTION = "run.log", "cache.json", "section.json"


def digests(notebook: dict, experiment) -> dict[str, str]:
    """sha256 of everything that the results of a notebook follow from, by what it is.

    notebook: the .ipynb as read from JSON; experiment: with its checked parameters. Fields that
    cannot change a result (``keyed=False``) do not count, comments and docstrings of the library
    neither. Other notebooks' files that it reads count as its own values do, and, where it gathers,
    what the others published.

    Raises:
        ParameterError: a cell imports a module of klearlib that there is not, or a file that the
            experiment reads is absent or wrong.
    """
    params = experiment.params
    found = {
        "cells": _digest(
            [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
        ),
        "parameters": _digest(keyed_values(params)),
        "library": library_fingerprint(imported_modules(notebook)),
        "libraries": _digest(computing_versions()),
    }
    for name, other in experiment.reads().items():
        found[f"parameters of {name}"] = _digest(keyed_values(other))
    for name, world in worlds_of(params).items():
        found[name] = _digest(dataclasses.asdict(world))
    if is_real(params.profile):
        from klearlib.real.assets import stamps

        found["data files"] = _digest(stamps(load(params.profile, "real")))
    if experiment.gathers:
        sections = sorted(experiment.place.folder.glob(f"*/{SECTION}"))
        others = [path for path in sections if path.parent.name != experiment.name]
        found["gathered results"] = _digest([sha256_file(path) for path in others])
    return found


def read_notebook(path: Path) -> dict:
    """An .ipynb as JSON, with all that this library reads of one.

    Raises:
        ParameterError: the file is cut off or no notebook.
    """
    try:
        notebook = read_json(path)
        wrong = _wrong_with(notebook)
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise ParameterError(f"{path} is no notebook ({wrong}): restore it from version control")
    return notebook


def _wrong_with(notebook: object) -> str:
    if not isinstance(notebook, dict):
        return "no JSON object"
    for name, kind in (("cells", list), ("metadata", dict)):
        if not isinstance(notebook.get(name), kind):
            return f"no {name}"
    for index, cell in enumerate(notebook["cells"]):
        if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
            return f"cell {index} has no cell_type"
        source = cell.get("source")
        lines = source if isinstance(source, list) else [source]
        if not all(isinstance(line, str) for line in lines):
            return f"cell {index} has no source"
    return ""


def imported_modules(notebook: dict) -> list[str]:
    """The modules of klearlib that a notebook's cells import."""
    names: set[str] = set()
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        try:
            tree = ast.parse("".join(cell["source"]))
        except SyntaxError as error:
            raise ParameterError(
                f"a cell is no Python ({error.msg}): {(error.text or '').strip()}"
            ) from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                inside = (f"{node.module}.{alias.name}" for alias in node.names)
                names.update(name for name in inside if _is_module(name))
    return sorted(name for name in names if name.split(".")[0] == "klearlib")


def why_not_cached(folder: Path, wanted: dict[str, str]) -> str:
    """Why the results in `folder` cannot be used as they are; "" where they can.

    wanted: what `digests` returns now.
    """
    try:
        entry = read_json(folder / CACHE)
        known, artefacts = entry["digests"], entry["artefacts"]
    except FileNotFoundError:
        return "not run here yet"
    except (ValueError, KeyError, TypeError):
        return f"{CACHE} is damaged"
    if not isinstance(known, dict) or not isinstance(artefacts, dict):
        return f"{CACHE} is damaged"
    changed = [name for name, digest in wanted.items() if known.get(name) != digest]
    if changed:
        return f"{' and '.join(changed)} changed"
    return _why_changed(folder, artefacts)


def _why_changed(folder: Path, artefacts: dict[str, str]) -> str:
    for name, digest in artefacts.items():
        path = folder.parent / name
        if not path.is_file():
            return f"{name} is missing"
        if sha256_file(path) != digest:
            return f"{name} was changed"
    return ""


def changed_by_hand(results: Path) -> list[str]:
    """What was changed in a results folder since its notebooks ran, a line for each notebook; it is
    known only where ``cache.json`` is, on the machine that ran them."""
    lines = []
    for file in sorted(results.glob(f"*/{CACHE}")):
        try:
            lines.append(_why_changed(file.parent, read_json(file)["artefacts"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            lines.append(f"{file.parent.name}/{CACHE} is damaged")
    return [line for line in lines if line]


def remember(folder: Path, of: dict[str, str], *, executed: Path) -> None:
    """Write down that the results in `folder` and the `executed` notebook follow from `of`.

    A section that calls itself partial is not remembered: the next run has to complete it.
    """
    (folder / CACHE).unlink(missing_ok=True)
    if section(folder).get("status") == "partial":
        return
    published = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    artefacts = {
        str(path.relative_to(folder.parent)): sha256_file(path)
        for path in [executed, executed.with_suffix(".html"), *published]
        if path.name not in (LOG, CACHE)
    }
    write_json(folder / CACHE, {"digests": of, "artefacts": artefacts}, durable=False)


def section(folder: Path) -> dict:
    """What a notebook published about itself in ``section.json``; empty where there is none.

    Raises:
        DamagedEntry: the file is no JSON object.
    """
    path = folder / SECTION
    if not path.is_file():
        return {}
    try:
        content = read_json(path)
    except ValueError as error:
        raise DamagedEntry(f"{path} is damaged ({error}): run again with --force") from None
    if not isinstance(content, dict):
        raise DamagedEntry(f"{path} is damaged (no object): run again with --force")
    return content


def _is_module(name: str) -> bool:
    """Whether `name` is a module and no attribute, without importing its package."""
    path = Path(klearlib.__file__).parent.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _digest(value) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
