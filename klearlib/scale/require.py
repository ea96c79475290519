"""verl and Ray as packages that may be absent: one line that says what to install."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from klearlib.errors import MissingAsset

INSTALL_RAY = "pip install 'ray[default]==2.60.0'"
INSTALL_VERL = "run make verl, which sets up .venv-verl, and klear from there"


def require_ray() -> None:
    """Raises MissingAsset where Ray is not installed."""
    if not _is_there("ray"):
        raise MissingAsset(f"Ray is not installed: {INSTALL_RAY}")


ANTLR, ANTLR_VERSION = "antlr4-python3-runtime", "4.13"


def require_verl() -> None:
    """Raises MissingAsset where verl is not installed, or Ray, which it stands on; or where an
    older antlr4, which verl's usual hydra brings, would judge some answers otherwise."""
    missing = [name for name, module in (("verl", "verl"), ("Ray", "ray")) if not _is_there(module)]
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise MissingAsset(f"{' and '.join(missing)} {verb} not installed: {INSTALL_VERL}")
    found = importlib.metadata.version(ANTLR)
    if not found.startswith(ANTLR_VERSION + "."):
        raise MissingAsset(
            f"{ANTLR} is {found}, with which math-verify reads some answers otherwise: "
            f"{INSTALL_VERL}"
        )


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
