"""Where the project is and what its profiles say: ``params/<profile>/<notebook>.yaml``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import yaml

from klearlib.errors import ParameterError
from klearlib.params.checking import did_you_mean

WORLD_FILE = "miniature.yaml"
CODE_WORLD_FILE = "code_miniature.yaml"
DATA_WORLD_FILE = "data_miniature.yaml"
JOINT_WORLD_FILE = "joint_miniature.yaml"
REAL_FILE = "real.yaml"
COMPUTE_FILE = "compute.yaml"
VERL_FILE = "verl.yaml"
WORLD_FILES = (
    WORLD_FILE,
    CODE_WORLD_FILE,
    DATA_WORLD_FILE,
    JOINT_WORLD_FILE,
    REAL_FILE,
    COMPUTE_FILE,
    VERL_FILE,
)
"""The files of a profile that describe a world, or how it computes, and no notebook."""


def root() -> Path:
    """The project's folder: ``KLEAR_ROOT``, or the nearest parent that has params/ and notebooks/.

    Parents of the working directory are asked first (a kernel starts in notebooks/ under
    JupyterLab, in the caller's folder under papermill), then those of this package.

    Raises:
        ParameterError: there is none.
    """
    named = os.environ.get("KLEAR_ROOT")
    if named:
        if not (Path(named) / "params").is_dir():
            raise ParameterError(f"KLEAR_ROOT={named} has no params/: set it to the clone")
        return Path(named).resolve()
    for folder in _parents():
        if (folder / "params").is_dir() and (folder / "notebooks").is_dir():
            return folder
    raise ParameterError("no folder above here has params/ and notebooks/: run inside the clone")


def _parents() -> Iterator[Path]:
    here = Path.cwd()
    package = Path(__file__).resolve().parent
    yield from (here, *here.parents, *package.parents)


def profiles() -> list[str]:
    """The names of the profiles, which are the folders in params/."""
    return sorted(entry.name for entry in (root() / "params").iterdir() if entry.is_dir())


def require_profile(profile: str) -> str:
    """`profile`, or ParameterError with the names of those that there are."""
    known = profiles()
    if profile not in known:
        raise ParameterError(f"unknown profile {profile!r}; there are: {', '.join(known)}")
    return profile


def notebooks_of(profile: str) -> list[str]:
    """The notebooks that `profile` has parameters for, in the order in which they run: by number,
    and 00_overview, which gathers what the others published, last."""
    folder = root() / "params" / require_profile(profile)
    names = (path.stem for path in folder.glob("*.yaml") if path.name not in WORLD_FILES)
    return sorted(names, key=lambda name: (name.startswith("00"), name))


def load_profile(profile: str, notebook: str) -> dict:
    """The values of one parameter file, unchecked but with `profile` filled in.

    Raises:
        ParameterError: no such profile or file, no valid YAML, or a `profile` that differs.
    """
    names = notebooks_of(profile)
    if notebook not in names:
        raise ParameterError(
            f"profile {profile!r} has no {notebook}.yaml; {did_you_mean(notebook, names)}"
        )
    values = _read(root() / "params" / profile / f"{notebook}.yaml")
    if values.setdefault("profile", profile) != profile:
        raise ParameterError(
            f"params/{profile}/{notebook}.yaml says profile: {values['profile']}; "
            f"write profile: {profile}"
        )
    return values


def is_real(profile: str) -> bool:
    """Whether `profile` has a real model and named data sets, by its `REAL_FILE`."""
    return (root() / "params" / require_profile(profile) / REAL_FILE).is_file()


def world_values(profile: str, file: str) -> dict:
    """The values of one of the profile's `WORLD_FILES`, unchecked.

    Raises:
        ParameterError: no such profile or file, or no valid YAML.
    """
    path = root() / "params" / require_profile(profile) / file
    if not path.is_file():
        raise ParameterError(
            f"profile {profile!r} has no {file}: start from the one of another profile, "
            f"as params/{profile}/{file}"
        )
    return _read(path)


class _UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key written twice, of which plain YAML silently takes the last."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                problem = f"{key.value} is written twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _read(path: Path) -> dict:
    name = f"params/{path.parent.name}/{path.name}"
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except UnicodeDecodeError as error:
        raise ParameterError(
            f"{name} is not UTF-8 (byte {error.start}): save it in this encoding"
        ) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ParameterError(f"{name}, line {line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError for the date 2025-99-99
        raise ParameterError(f"{name} is no YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ParameterError(f"{name} must hold lines of the form name: value")
    for key in values:
        if not isinstance(key, str):
            raise ParameterError(f"{name} has the key {key!r}: write the name of a parameter")
    return values
