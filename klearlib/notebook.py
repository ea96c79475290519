"""What the first cells of a notebook call: check the parameters, then show them beside the paper's.

A notebook runs under ``klear run``, under bare papermill, in JupyterLab and by Run All; papermill
checks no parameter, so the check is made here, inside the kernel, where it holds for all of them.
"""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING

from klearlib.errors import ParameterError
from klearlib.params import check_values, did_you_mean, files_of, load_profile, require_profile

if TYPE_CHECKING:
    import pandas

_LITERALS = (bool, int, float, str, list, tuple, dict, type(None))
_IPYTHON_NAMES = {"In", "Out"}
_DONE = "_klear_setup_done"
_INJECTED = "# Parameters"


def setup(notebook: str, record: type, namespace: dict):
    """The parameters of `notebook` as a checked `record`, read from `namespace`, the notebook's
    ``globals()``.

    Every public name that holds a plain value counts as a parameter, so one that papermill injected
    under a wrong name is found. Where setup runs again in a living kernel, values computed by later
    cells are no parameters: then only names from cells that assign a declared parameter, or that
    papermill injected, count. No torch is imported.

    Raises:
        ParameterError: unknown name ("did you mean"), wrong type, out of range, unknown profile.
    """
    known = {field.name for field in dataclasses.fields(record)}
    given = {name: value for name, value in namespace.items() if _is_literal(name, value)}
    if namespace.get(_DONE) == notebook:
        meant = known | _assigned_with(known, namespace.get("In", []))
        given = {name: value for name, value in given.items() if name in meant}
    unknown = [name for name in given if name not in known]
    if unknown:
        hints = "; ".join(f"{name!r}: {did_you_mean(name, sorted(known))}" for name in unknown)
        raise ParameterError(f"{notebook}: unknown parameter {hints}")
    params = check_values(record, given, notebook)
    require_profile(params.profile)
    namespace[_DONE] = notebook
    return params


def show_resolved(notebook: str, params) -> pandas.DataFrame:
    """A table of every parameter: its value, the paper's value, and a note.

    The note says what the parameter means, where the paper states its value, and the value of the
    profile's file where this run departs from it. Options that are set get a line each.
    """
    import pandas

    # The notes are sentences: pandas would cut them at 50 characters in the notebook.
    pandas.set_option("display.max_colwidth", None)
    filed = _filed(notebook, params)
    rows = []
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        rows.append(_row(field.name, value, field.metadata, filed.get(field.name, value)))
        if "record" in field.metadata:
            known = {each.name: each for each in dataclasses.fields(field.metadata["record"])}
            for name, each in value.items():
                about = known[name].metadata
                default = f"{_text(known[name].default)} (default)"
                paper = _text(about["paper"]) if "paper" in about else default
                meaning = about["help"]
                if about.get("place"):
                    meaning += f" (paper: {about['place']})"
                rows.append([f"{field.name}.{name}", _text(each), paper, meaning])
    return pandas.DataFrame(rows, columns=["parameter", "value", "paper", "note"])


def _filed(notebook: str, params) -> dict:
    """The values of the file that this run's profile holds for the notebook, if it has one."""
    if notebook not in files_of(params.profile):
        return {}
    values = load_profile(params.profile, notebook)
    return dataclasses.asdict(check_values(type(params), values, notebook))


def _row(name: str, value, metadata, filed) -> list[str]:
    note = metadata["help"]
    if metadata.get("place"):
        note += f" (paper: {metadata['place']})"
    if value != filed:
        note += f"; the profile's file says {_text(filed)}"
    return [name, _text(value), _text(metadata.get("paper", "")), note]


def _text(value) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_literal(name: str, value) -> bool:
    return not name.startswith("_") and name not in _IPYTHON_NAMES and isinstance(value, _LITERALS)


def _assigned_with(known: set[str], cells: list[str]) -> set[str]:
    """Names assigned in cells that papermill injected or that assign a name of `known` as well."""
    names: set[str] = set()
    for source in cells:
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a cell with IPython's own syntax assigns no parameter
            continue
        assigned = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if source.lstrip().startswith(_INJECTED) or assigned & known:
            names |= assigned
    return names
