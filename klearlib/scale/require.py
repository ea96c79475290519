"""verl and Ray as packages that may be absent: one line that says what to install."""

from __future__ import annotations

from klearlib.errors import MissingAsset
from klearlib.run.provenance import version

INSTALL_RAY = "pip install 'ray[default]==2.60.0'"
INSTALL_VERL = "run make verl, which sets up .venv-verl, and klear from there"
_VERSIONS = {"verl": "0.9.1", "ray": "2.60.0", "antlr4-python3-runtime": "4.13.2"}


def require_ray() -> None:
    """Raises MissingAsset where Ray is not installed."""
    if version("ray") is None:
        raise MissingAsset(f"Ray is not installed: {INSTALL_RAY}")


def require_verl() -> None:
    """Raises MissingAsset where verl cannot be used: see `lacks`."""
    if lack := lacks():
        raise MissingAsset(f"{lack}: {INSTALL_VERL}")


def lacks() -> str:
    """Why verl cannot be used in this environment; "" where it can.

    It, or Ray, which it needs, is not installed; or one of them has another version than this suite
    was made with; or an older antlr4, which verl's usual hydra brings, would judge some answers
    differently.
    """
    missing = [name for name in ("verl", "Ray") if version(name) is None]
    if missing:
        return f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not installed"
    for name, wanted in _VERSIONS.items():
        if (installed := version(name)) != wanted:
            return f"{name} is {installed} and this suite was made with {wanted}"
    return ""
