"""Where the project is."""

from __future__ import annotations

import os
from pathlib import Path

from klearlib.errors import ParameterError


def root() -> Path:
    """The project's folder: ``KLEAR_ROOT``, or the nearest parent that has params/ and notebooks/.

    Parents of the working directory are asked first (a kernel starts in notebooks/ under
    JupyterLab, in the caller's folder under papermill), then those of this package.

    Raises ParameterError: there is none.
    """
    named = os.environ.get("KLEAR_ROOT")
    if named:
        if not (Path(named) / "params").is_dir():
            raise ParameterError(f"KLEAR_ROOT={named} has no params/: set it to the clone")
        return Path(named).resolve()
    here, package = Path.cwd(), Path(__file__).resolve().parent
    for folder in (here, *here.parents, *package.parents):
        if (folder / "params").is_dir() and (folder / "notebooks").is_dir():
            return folder
    raise ParameterError("no folder above here has params/ and notebooks/: run inside the clone")
