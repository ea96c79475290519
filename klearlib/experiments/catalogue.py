"""All notebooks, found by the names of their modules: nb06_alpha_sweep.py is 06_alpha_sweep."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import ParameterError
from klearlib.params import SMOKE, did_you_mean, files_of, require_profile, root
from klearlib.params.fields import check_values
from klearlib.run.stage import Stage, with_inputs

if TYPE_CHECKING:
    from klearlib.experiments.experiment import Experiment
    from klearlib.report.section import Section


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
    mine = (each for each in vars(module).values() if getattr(each, "name", None) == name)
    (found,) = (each for each in mine if each.__module__ == module.__name__)
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
    """The notebooks that `profile` has, in the order in which they run: those that lead, the
    others by number, and last those that gather what the others published.

    They are those with a file of values; `SMOKE`, whose values are the defaults, has every
    notebook, and every profile has those that gather.
    """
    named = files_of(profile)
    for name in names():
        here = (root() / "notebooks" / f"{name}.ipynb").is_file()
        if here and (profile == SMOKE or experiment_of(name).gathers):
            named.add(name)

    def place(name: str) -> tuple[int, str]:
        known = experiment_of(name) if name in names() else None
        return (known.gathers - known.leads if known else 0, name)

    return sorted(named, key=place)


def stages_of(name: str, params) -> dict[str, Stage]:
    """All stages that a notebook with these parameters runs, as `with_inputs` gives them; none if
    it gathers.

    Raises:
        ParameterError: the profile lacks what the notebook needs.
    """
    return with_inputs(experiment_of(name)(params).stages())


def rebuild(results: Path) -> None:
    """Rewrite what the notebooks of a results folder show and decide, from their published tables
    of runs alone; a notebook without such tables, from before version 0.18, is left as it is."""
    from klearlib.experiments.tidy import Published
    from klearlib.params.place import read_place

    for experiment, section in with_tables(results):
        published = Published.of_notebook(section.folder, gathers=experiment.gathers)
        params = check(section.notebook, section.parameters)
        experiment(params, read_place(results), published).publish()


def with_tables(results: Path) -> list[tuple[type[Experiment], Section]]:
    """The notebooks of a results folder whose tables of runs are published; last those that gather
    what the others published."""
    from klearlib.experiments.tidy import RUNS
    from klearlib.report.section import read_sections

    every = [(experiment_of(section.notebook), section) for section in read_sections(results)]
    found = [(e, section) for e, section in every if e.gathers or (section.folder / RUNS).is_file()]
    return sorted(found, key=lambda each: each[0].gathers)
