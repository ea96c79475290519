"""What the project's profiles say: ``params/<profile>/*.yaml``."""

from __future__ import annotations

from pathlib import Path

import yaml

from klearlib.errors import ParameterError, did_you_mean
from klearlib.params.fields import check_values
from klearlib.params.options import LOCAL, VERL, NotebookParams
from klearlib.params.project import root
from klearlib.params.real import RealParams
from klearlib.params.statistics import StatisticsParams
from klearlib.params.worlds import (
    CodeMiniatureParams,
    DataMiniatureParams,
    JointMiniatureParams,
    MiniatureParams,
)
from klearlib.policy.compute import Compute
from klearlib.run.files import read_own_text
from klearlib.scale.cluster import Cluster

STATISTICS = "statistics"
RECORDS: dict[str, tuple[str, type]] = {
    "miniature": ("worlds.yaml", MiniatureParams),
    "code_miniature": ("worlds.yaml", CodeMiniatureParams),
    "data_miniature": ("worlds.yaml", DataMiniatureParams),
    "joint_miniature": ("worlds.yaml", JointMiniatureParams),
    "real": ("real.yaml", RealParams),
    STATISTICS: ("statistics.yaml", StatisticsParams),
    LOCAL: ("compute.yaml", Compute),
    VERL: ("compute.yaml", Cluster),
}
"""What all notebooks of a profile share: the file and the record of each. A file with another name
than the record has a section for it."""
_SHARED = {file for file, _ in RECORDS.values()}
SMOKE, OVERVIEW = "smoke", "00_overview"
"""The profile whose values are the records' defaults, and the notebook without values."""


def profiles() -> list[str]:
    """The names of the profiles, which are the folders in params/."""
    entries = (root() / "params").iterdir()
    return sorted(each.name for each in entries if each.is_dir() and each.name[0] != ".")


def require_profile(profile: str) -> str:
    """`profile`, or ParameterError with the names of the existing ones."""
    known = profiles()
    if profile not in known:
        raise ParameterError(f"unknown profile {profile!r}; there are: {', '.join(known)}")
    return profile


def is_real(profile: str) -> bool:
    """Whether `profile` has a real model and named data sets, by its real.yaml."""
    return (root() / "params" / require_profile(profile) / "real.yaml").is_file()


def files_of(profile: str) -> set[str]:
    """The notebooks that have a file of values in `profile`."""
    folder = root() / "params" / require_profile(profile)
    return {path.stem for path in folder.glob("*.yaml") if path.name not in _SHARED}


def has_notebook(profile: str, notebook: str) -> bool:
    """Whether `profile` has values for it: a file, or the defaults, as `SMOKE` and the overview
    do."""
    return notebook in files_of(profile) or notebook == OVERVIEW or profile == SMOKE


def load_profile(profile: str, notebook: str) -> dict:
    """The values of one parameter file, unchecked but with `profile` filled in; empty for `SMOKE`,
    which has the defaults, and for the overview, which has no values.

    Raises ParameterError: no such profile or file, no valid YAML, or a `profile` that differs.
    """
    if notebook in files_of(profile):
        values = _read(root() / "params" / profile / f"{notebook}.yaml")
    elif has_notebook(profile, notebook):
        values = {}
    else:
        near = did_you_mean(notebook, sorted(files_of(profile)))
        raise ParameterError(f"profile {profile!r} has no {notebook}.yaml; {near}")
    if values.setdefault("profile", profile) != profile:
        raise ParameterError(
            f"params/{profile}/{notebook}.yaml says profile: {values['profile']}; "
            f"write profile: {profile}"
        )
    return values


def load(profile: str, name: str):
    """What all notebooks of `profile` share under a name in `RECORDS`; all values are required.

    Raises ParameterError: no such profile, file or section, no valid YAML, or a wrong value.
    """
    file, record = RECORDS[name]
    path = root() / "params" / require_profile(profile) / file
    values = _read(path) if path.is_file() else {}
    if file != f"{name}.yaml":
        sections = [each for each, (its_file, _) in RECORDS.items() if its_file == file]
        for each in values.keys() - {*sections}:
            near = did_you_mean(each, sections)
            raise ParameterError(f"params/{profile}/{file}: unknown section {each!r}; {near}")
        values = values.get(name)
    if not values:
        raise ParameterError(
            f"profile {profile!r} has no {name} in params/{profile}/{file}: start from another "
            "profile's"
        )
    return check_values(record, values, f"params/{profile}/{_place(name)}")


def _place(name: str) -> str:
    """File and section under which a profile has `name`."""
    file, _ = RECORDS[name]
    return file if file == f"{name}.yaml" else f"{file}, {name}"


def worlds_of(params: NotebookParams) -> dict[str, object]:
    """What a notebook with these parameters shares with others of its profile, by file and section:
    the worlds that it needs, or the real model in their place, how its stages compute, the cluster
    if verl trains, and how claims are decided. Empty for a notebook that needs no world.

    Raises ParameterError as `load`.
    """
    if not params.worlds:
        return {}
    names = [STATISTICS, *(["real"] if is_real(params.profile) else params.worlds)]
    names += [VERL, LOCAL] if getattr(params, "engine", LOCAL) == VERL else [LOCAL]
    return {_place(name): load(params.profile, name) for name in names}


def uses_miniature(params: NotebookParams) -> bool:
    """Whether a notebook with these parameters runs in the embedded world: what it measures there
    only stands for the paper's models and benchmarks."""
    return bool(params.worlds) and not is_real(params.profile)


def parse_yaml(text: str) -> object:
    """The value of a YAML text.

    Raises ValueError: no YAML, or a name written twice: the line and what is wrong there.
    """
    try:
        return yaml.load(text, Loader=_Strict)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # a letter that no file has; the date 2025-99-99
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None


class _Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # in C it takes a tenth of the time
    """YAML that refuses a name written twice; plain YAML takes the last."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"{key.value} is written twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _read(path: Path) -> dict:
    name = f"params/{path.parent.name}/{path.name}"
    try:
        values = parse_yaml(read_own_text(path)) or {}
    except ValueError as error:
        raise ParameterError(f"{name}: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ParameterError(f"{name} must hold lines of the form name: value")
    return values
