"""The notebooks that there are: each is an experiment in a file of its own in this folder."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from pathlib import Path

from klearlib.errors import ParameterError
from klearlib.experiments.experiment import Experiment
from klearlib.params.checking import did_you_mean
from klearlib.run.stage import Stage


def names() -> tuple[str, ...]:
    """The names of all notebooks in their order; `nb06_alpha_sweep.py` is 06_alpha_sweep.

    >>> names()[0]
    '00_overview'
    """
    return tuple(sorted(path.stem[2:] for path in Path(__file__).parent.glob("nb[0-9]*.py")))


def experiment_of(name: str) -> type[Experiment]:
    """The experiment of a notebook.

    Raises:
        ParameterError: there is no such notebook.
    """
    if name not in names():
        raise ParameterError(f"no notebook {name!r}; {did_you_mean(name, names())}")
    module = import_module(f"klearlib.experiments.nb{name}")
    found = [each for each in vars(module).values() if getattr(each, "name", None) == name]
    assert len(found) == 1, f"{module.__name__} needs one Experiment whose name is {name!r}"
    return found[0]


def experiments() -> tuple[type[Experiment], ...]:
    """The experiments of all notebooks in their order."""
    return tuple(experiment_of(name) for name in names())


def stages_of(notebook: str, params) -> dict[str, Stage]:
    """All stages that a notebook with these parameters runs, those that they need included, in an
    order in which they can run; none for 00_overview, which gathers.

    Each stands once, under a digest of what it computes. That of the code is left out, which a
    stage's key has: the digests tell the stages of one moment apart, and take no file to make.

    Raises:
        ParameterError: there is no such notebook, or the profile lacks what it needs.
    """
    found: dict[str, Stage] = {}
    known: dict[int, str] = {}
    asked = experiment_of(notebook)(params).stages()  # kept: `known` goes by the objects

    def visit(stage: Stage) -> str:
        if id(stage) not in known:
            inputs = {name: visit(upstream) for name, upstream in stage.inputs.items()}
            content = [stage.name, stage.target, stage.params, inputs]
            digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
            known[id(stage)] = digest
            found.setdefault(digest, stage)
        return known[id(stage)]

    for stage in asked:
        visit(stage)
    return found
