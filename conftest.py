"""What pytest leaves out where verl is not installed: the modules that only verl's processes
import."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

SCALE = Path(__file__).parent / "klearlib" / "scale"
OF_VERL = ("hydra", "omegaconf", "ray", "tensordict", "transfer_queue", "verl")


def at_the_top(path: Path) -> set[str]:
    """The modules that a file imports as soon as it is imported itself."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def needing_verl() -> list[str]:
    """The files of klearlib/scale that cannot be imported without verl."""
    imported = {f"klearlib.scale.{path.stem}": at_the_top(path) for path in SCALE.glob("*.py")}
    found: set[str] = set()
    while more := {
        name
        for name, names in imported.items()
        if name not in found and any(n in found or n.partition(".")[0] in OF_VERL for n in names)
    }:
        found |= more
    return sorted(str(SCALE / f"{name.rpartition('.')[2]}.py") for name in found)


collect_ignore = [] if importlib.util.find_spec("verl") else needing_verl()
