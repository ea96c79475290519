"""Whether a notebook's published results are still what its cells, parameters and code would give.

``results/<profile>/<notebook>/cache.json`` holds a digest of each, and the artefacts' names.
Nothing heavy is imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from klearlib.errors import ParameterError
from klearlib.params import LOCAL, is_real, load, worlds_of
from klearlib.params.place import keyed_values
from klearlib.params.statistics import replicates_asked
from klearlib.run.entry import read_own_json
from klearlib.run.files import read_json, sha256_file, write_json
from klearlib.run.fingerprint import code_fingerprint
from klearlib.run.provenance import computing_versions

LOG, CACHE, SECTION = "run.log", "cache.json", "section.json"


def digests(notebook: dict, experiment) -> dict[str, str]:
    """sha256 of everything that the results of a notebook follow from, by what it is.

    notebook: the .ipynb as read from JSON; experiment: with its checked parameters. The library
    counts with the experiment's module and all that it imports, without comments and docstrings.
    Fields that cannot change a result (``keyed=False``) do not count. Other notebooks' files that
    it reads count like its own values, and, if it gathers, so does what the others published.

    Raises ParameterError where a file that the experiment reads is missing or wrong.
    """
    params = experiment.params
    cells = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    digests_of = {
        "cells": _digest(cells),
        "parameters": _digest(keyed_values(params)),
        "library": code_fingerprint(type(experiment).__module__, without=()),
        "libraries": _digest(computing_versions(load(params.profile, LOCAL).engine)),
    }
    for name, other in experiment.reads().items():
        digests_of[f"parameters of {name}"] = _digest(keyed_values(other))
    for name, world in worlds_of(params).items():
        digests_of[name] = _digest(dataclasses.asdict(world))
    if is_real(params.profile):
        from klearlib.real.assets import stamps

        digests_of["data files"] = _digest(stamps(load(params.profile, "real")))
    if piece := replicates_asked():
        digests_of["replicates"] = _digest(piece)
    if experiment.gathers:
        sections = sorted(experiment.place.folder.glob(f"*/{SECTION}"))
        others = [path for path in sections if path.parent.name != experiment.name]
        digests_of["gathered results"] = _digest([sha256_file(path) for path in others])
    return digests_of


def read_notebook(path: Path) -> dict:
    """An .ipynb as JSON; ParameterError if it is missing or damaged, as by merge conflicts."""
    try:
        return read_json(path)
    except (FileNotFoundError, ValueError) as error:
        why = f"{path} is not a notebook ({error}): restore it from version control"
        raise ParameterError(why) from None


def why_not_cached(folder: Path, wanted: dict[str, str]) -> str:
    """Why the results in `folder` cannot be used as they are; "" if they can.

    wanted: what `digests` returns now.
    """
    if not (folder / CACHE).is_file():
        return "not run here yet"
    try:
        entry = read_json(folder / CACHE)
    except ValueError:
        return f"{CACHE} is damaged"
    known, artefacts = entry["digests"], entry["artefacts"]
    if changed := [name for name, digest in wanted.items() if known.get(name) != digest]:
        return f"{' and '.join(changed)} changed"
    lost = [name for name in artefacts if not (folder.parent / name).is_file()]
    return f"{lost[0]} is missing" if lost else ""


def remember(folder: Path, of: dict[str, str], *, executed: Path) -> None:
    """Write down that the results in `folder` and the `executed` notebook follow from `of`.

    A partial section is not remembered: the next run has to complete it.
    """
    (folder / CACHE).unlink(missing_ok=True)
    if section(folder).get("status") == "partial":
        return
    files = [executed, *(file for file in sorted(folder.rglob("*")) if file.is_file())]
    artefacts = [str(file.relative_to(folder.parent)) for file in files if file.name != LOG]
    write_json(folder / CACHE, {"digests": of, "artefacts": artefacts}, durable=False)


def section(folder: Path) -> dict:
    """What a notebook published about itself in ``section.json``; empty if it published nothing.
    Raises DamagedEntry where the file is not JSON."""
    return read_own_json(folder / SECTION) if (folder / SECTION).is_file() else {}


def _digest(value) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
