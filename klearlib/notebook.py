"""What the first cells of a notebook call: check the parameters, then show them beside the paper's.

A notebook runs under ``klear run``, under bare papermill, in JupyterLab and by Run All; papermill
checks no parameter, so the check is made here, inside the kernel, where it holds for all of them.
"""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING

from klearlib.params import check_values, files_of, load_profile, require_profile, root
from klearlib.params.fields import shown_fields

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

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
    given = {
        name: value
        for name, value in namespace.items()
        if isinstance(value, _LITERALS) and name[:1] != "_" and name not in _IPYTHON_NAMES
    }
    if namespace.get(_DONE) == notebook:
        meant = known | _assigned_with(known, namespace.get("In", []))
        given = {name: value for name, value in given.items() if name in meant}
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
    for field in shown_fields(type(params)):
        value, about = getattr(params, field.name), field.metadata
        rows.append([field.name, value, about.get("paper", ""), _meaning(about)])
        if filed.get(field.name, value) != value:
            rows[-1][3] += f"; the profile's file says {_text(filed[field.name])}"
        if "record" in about:
            known = {each.name: each for each in dataclasses.fields(about["record"])}
            for name, each in value.items():
                about = known[name].metadata
                paper = about.get("paper", f"{_text(known[name].default)} (default)")
                rows.append([f"{field.name}.{name}", each, paper, _meaning(about)])
    return pandas.DataFrame(
        [[name, _text(value), _text(paper), note] for name, value, paper, note in rows],
        columns=["parameter", "value", "paper", "note"],
    )


def watch(*runs: str) -> Figure:
    """The curves of runs that go on and of finished ones, named by their keys or the starts of
    them; without any, of those that go on now.

    Raises:
        ParameterError: no such run, or nothing to draw.
    """
    from klearlib.report.watch import find_run, watch_figure, watched
    from klearlib.run.stage import folder_state

    place = root() / "results" / "runs"
    folders = [find_run(word, place) for word in runs]
    if not runs:
        found = sorted(path for path in place.glob("*/*") if path.is_dir())
        folders = [path for path in found if folder_state(path) == "running"]
    return watch_figure(watched(folders))


def _filed(notebook: str, params) -> dict:
    """The values of the file that this run's profile holds for the notebook, if it has one."""
    if notebook not in files_of(params.profile):
        return {}
    values = load_profile(params.profile, notebook)
    return dataclasses.asdict(check_values(type(params), values, notebook))


def _meaning(about) -> str:
    return about["help"] + (f" (paper: {about['place']})" if about.get("place") else "")


def _text(value) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


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
