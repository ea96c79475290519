"""Where results go: those of a profile's own values to results/<profile>/, those of changed
parameters to a folder that the user names, so that neither replaces the other."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from klearlib.errors import ParameterError
from klearlib.params.fields import check_values
from klearlib.params.files import load_profile, profiles
from klearlib.params.options import NotebookParams
from klearlib.params.project import root
from klearlib.run.entry import read_own_json
from klearlib.run.files import write_json

CHANGES = "changes.json"
"""In a folder that is not named after its profile: the profile, and what differs from it."""
OUT = "KLEAR_OUT"
"""The environment variable that names the results folder, as ``--out`` does."""
PUBLISHED = "KLEAR_PUBLISHED"
"""Set where notebooks read their runs from the tables in the results folder, and train nothing."""
OWN = "own-"
"""The start of the names of unnamed folders for changed values; later results replace earlier."""


@dataclass(frozen=True)
class Place:
    """A results folder, its profile, and the values that its notebooks had in place of those in the
    profile's files, by parameter name."""

    folder: Path
    profile: str
    changes: dict[str, object]

    @property
    def command(self) -> str:
        """The ``klear run`` that fills it."""
        words = ["klear", "run", "--profile", self.profile]
        for name, value in self.changes.items():
            words += ["--set", f"{name}={in_yaml(value)}"]
        if self.folder.name != self.profile:
            words += ["--out", f"{self.folder.parent.name}/{self.folder.name}"]
        return shlex.join(words)

    def says(self) -> str:
        """Its changes in words: "seeds: [0], num_steps: 3"; "" for none."""
        changes = in_brief(self.changes)
        return ", ".join(f"{name}: {in_yaml(value)}" for name, value in changes.items())

    def claim(self) -> None:
        """Write down what its results are of; the profile's own folder needs no such file.

        Raises ParameterError if it holds results of other parameters, unless it is an `OWN` one.
        """
        there = _written(self.folder)
        if there not in (None, self) and not self.folder.name.startswith(OWN):
            raise _mixed(there, self)
        if self.folder.name != self.profile:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = {"profile": self.profile, "changes": self.changes}
            write_json(self.folder / CHANGES, content, durable=False)


def keyed_values(params: NotebookParams) -> dict[str, object]:
    """The values of a record that can change a result."""
    return {
        field.name: getattr(params, field.name)
        for field in dataclasses.fields(params)
        if field.metadata.get("keyed", True)
    }


def differences(notebook: str, params: NotebookParams) -> dict[str, tuple[object, object]]:
    """What can change a result and differs from the profile's file for `notebook`: parameter -> its
    value there, its value here.

    Raises ParameterError where the profile has no such notebook.
    """
    profiled = load_profile(params.profile, notebook)
    own = keyed_values(check_values(type(params), profiled, notebook))
    here = keyed_values(params)
    return {name: (own[name], here[name]) for name in sorted(own) if own[name] != here[name]}


def changes_of(checked: Mapping[str, NotebookParams]) -> dict[str, object]:
    """The `Place.changes` of notebooks that get the same values."""
    changed = [differences(notebook, each) for notebook, each in checked.items()]
    values = {name: here for each in changed for name, (_, here) in each.items()}
    return dict(sorted(values.items()))


def place_of(profile: str, changes: dict[str, object], out: str | None = None) -> Place:
    """The results folder of `profile` with `changes`; out: the folder that the user names, required
    for changes.

    Raises ParameterError for changes without an `out`, and for an `out` that is not a folder in
    results/, or another profile's.
    """
    results = root() / "results"
    if out is None:
        if changes:
            raise ParameterError(
                f"{Place(results, profile, changes).says()} is not what profile {profile} has: "
                "name a folder for these results, such as --out results/mine"
            )
        return Place(results / profile, profile, changes)
    asked = (root() / out).resolve()  # in every way to run: a kernel works in notebooks/
    if asked.parent != results.resolve() or asked.name == "runs":
        raise ParameterError(f"--out {out}: name a folder in {results}, such as results/mine")
    folder = results / asked.name
    if folder.name in profiles() and (changes or folder.name != profile):
        raise ParameterError(
            f"--out {out} is for profile {folder.name}'s own results: name another folder"
        )
    return Place(folder, profile, changes)


def place_for(notebook: str, params: NotebookParams) -> Place:
    """Where a notebook that runs with `params` publishes: in the folder that the environment
    variable `OUT` names, else in the profile's, or in results/own-NN with other values.

    Raises ParameterError if `OUT` names a folder with results of other parameters.
    """
    changes = changes_of({notebook: params})
    if OUT not in os.environ:
        own = f"results/{OWN}{notebook.partition('_')[0]}" if changes else None
        return place_of(params.profile, changes, own)
    place = place_of(params.profile, changes, os.environ[OUT])
    there = _written(place.folder) or place
    asked = {name: value for name, value in there.changes.items() if hasattr(params, name)}
    same = all(getattr(params, name) == value for name, value in asked.items())
    if there.profile != params.profile or not same or changes.keys() - asked.keys():
        raise _mixed(there, place)
    return there


def read_place(folder: Path) -> Place:
    """What `folder` was filled with; unless it says otherwise, its name is the profile."""
    folder = folder.resolve()
    return _written(folder) or Place(folder, folder.name, {})


def own_places(place: Place) -> list[Place]:
    """The folders next to `place` of the same profile, with changed parameters or named by
    ``--out``."""
    folders = sorted(path.parent for path in place.folder.parent.glob(f"*/{CHANGES}"))
    return [each for each in map(read_place, folders) if each.profile == place.profile]


def _written(folder: Path) -> Place | None:
    if not (folder / CHANGES).is_file():
        return None
    content = read_own_json(folder / CHANGES)
    return Place(folder, content["profile"], content["changes"])


def _mixed(there: Place, wanted: Place) -> ParameterError:
    holds, these = (f"{p.profile} with {p.says() or 'its own values'}" for p in (there, wanted))
    return ParameterError(
        f"results/{there.folder.name} holds results of profile {holds}, and these are of profile "
        f"{these}: delete it, or name another folder (--out, in a notebook %env {OUT})"
    )


def in_brief(value):
    """`value` with texts of several lines, such as the source of a rule, as a number of lines.

    >>> in_brief([{"name": "mine.py:half", "source": "a = 1\\nb = 2\\n"}])
    [{'name': 'mine.py:half', 'source': '2 lines'}]
    """
    if isinstance(value, Mapping):
        return {name: in_brief(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [in_brief(each) for each in value]
    lines = value.count("\n") if isinstance(value, str) else 0
    return f"{lines} lines" if lines > 1 else value


def in_yaml(value: object) -> str:
    """`value` as ``--set`` takes it, on one line.

    >>> in_yaml([0, 1]), in_yaml(1e-05), in_yaml({"dual_clip": 10.0})
    ('[0, 1]', '1.0e-05', '{dual_clip: 10.0}')
    """
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True
    )
    return text.removesuffix("...\n").strip()
