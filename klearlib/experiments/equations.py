"""The equations of the paper that a notebook shows: paper/data/equations.yaml."""

from __future__ import annotations

from functools import cache

from klearlib.paper import DATA
from klearlib.report.section import Equation


@cache
def equations_of(notebook: str) -> tuple[Equation, ...]:
    import yaml

    found = yaml.safe_load((DATA / "equations.yaml").read_text(encoding="utf-8"))
    latex, shown = found["latex"], found["shown"].get(notebook, {})
    return tuple(Equation(number, latex[number], says) for number, says in shown.items())
