"""Where the project is, and how an installed klear begins one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from klearlib.errors import ParameterError

PARTS = ("params", "notebooks")
_INSTALLED = Path(__file__).resolve().parents[1] / "project"  # which a wheel has, see setup.py


def root() -> Path:
    """The project's folder: ``KLEAR_ROOT``, or the nearest parent with params/ and notebooks/.

    Parents of the working directory are asked first (a kernel starts in notebooks/ under
    JupyterLab, in the caller's folder under papermill), then those of this package.

    Raises ParameterError: there is none.
    """
    named = os.environ.get("KLEAR_ROOT")
    if named:
        if not (Path(named) / "params").is_dir():
            raise ParameterError(f"KLEAR_ROOT={named} has no params/: set it to the clone")
        return Path(named).resolve()
    if folder := _found():
        return folder
    raise ParameterError(
        "no folder above here has params/ and notebooks/: run inside a clone, or begin a project "
        "with klear run"
    )


def begin() -> None:
    """Copy the params/ and notebooks/ of an installed wheel here, where no project is found and
    this folder has neither."""
    here = Path.cwd()
    has_one = any((here / name).exists() for name in PARTS)
    if os.environ.get("KLEAR_ROOT") or _found() or has_one or not _INSTALLED.is_dir():
        return
    for name in PARTS:  # by another name first: half a folder is no project
        shutil.copytree(_INSTALLED / name, here / f".{name}.part", dirs_exist_ok=True)
        (here / f".{name}.part").rename(here / name)
    print(f"new project in {here}: copied {' and '.join(f'{name}/' for name in PARTS)}", flush=True)


def _found() -> Path | None:
    here, package = Path.cwd(), Path(__file__).resolve().parent
    every = (here, *here.parents, *package.parents)
    return next((f for f in every if all((f / name).is_dir() for name in PARTS)), None)
