"""All notebooks, found by the names of their modules: nb06_alpha_sweep.py is 06_alpha_sweep."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import import_module
from pathlib import Path

from klearlib.errors import ParameterError
from klearlib.experiments.experiment import Experiment
from klearlib.params import SMOKE, did_you_mean, files_of, require_profile, root
from klearlib.params.fields import check_values
from klearlib.run.stage import Stage


@cache
def names() -> tuple[str, ...]:
    """The names of all notebooks, by number."""
    return tuple(sorted(path.stem[2:] for path in Path(__file__).parent.glob("nb[0-9]*.py")))


def experiment_of(name: str) -> type[Experiment]:
    """The class of a notebook.

    Raises:
        ParameterError: there is no such notebook.
    """
    if name not in names():
        raise ParameterError(f"unknown notebook {name!r}; {did_you_mean(name, names())}")
    module = import_module(f"{__package__}.nb{name}")
    (found,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Experiment)
        and each.__module__ == module.__name__
    )
    assert found.name == name
    return found


def experiments() -> tuple[type[Experiment], ...]:
    """The classes of all notebooks, by number."""
    return tuple(map(experiment_of, names()))


def check(name: str, values: dict):
    """The parameters of a notebook with `values`; what is absent takes its default, smoke's value.

    Raises:
        ParameterError: an unknown name (with the nearest known one), a wrong type, a value out of
            range, an unknown profile. One line, which names the parameter and the fix.

    >>> check("05_clipping", {"num_steps": 2}).num_steps
    2
    """
    params = check_values(experiment_of(name).Params, values, name)
    require_profile(params.profile)
    return params


def notebooks_of(profile: str) -> list[str]:
    """The notebooks that `profile` has, in the order in which they run: by number, and those that
    gather what the others published last.

    They are those with a file of values; `SMOKE`, whose values are the defaults, has every
    notebook, and every profile has those that gather.
    """
    named = files_of(profile)
    for name in names():
        here = (root() / "notebooks" / f"{name}.ipynb").is_file()
        if here and (profile == SMOKE or experiment_of(name).gathers):
            named.add(name)
    return sorted(named, key=lambda name: (name in names() and experiment_of(name).gathers, name))


def stages_of(name: str, params) -> dict[str, Stage]:
    """All stages that a notebook with these parameters runs, those that they need included, in an
    order in which they can run; none for one that gathers.

    Each stands once, under a digest of what it computes. That of the code is left out, which a
    stage's key has: the digests tell the stages of one moment apart, and take no file to make.

    Raises:
        ParameterError: the profile lacks what the notebook needs.
    """
    found: dict[str, Stage] = {}
    known: dict[int, str] = {}
    asked = experiment_of(name)(params).stages()  # kept: `known` goes by the objects

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
