"""What the first cells of a notebook call: check the parameters, then show them beside the paper's;
and what the last one shows: where everything is.

A notebook runs under ``klear run``, under bare papermill, in JupyterLab and by Run All; papermill
checks no parameter, so the check is made here, inside the kernel, where it holds for all of them.
"""

from __future__ import annotations

import ast
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from klearlib.params import check_values, files_of, load_profile, require_profile, root
from klearlib.params.fields import shown_fields
from klearlib.params.place import in_brief
from klearlib.report.render import render
from klearlib.run.entry import LOG

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_LITERALS = (bool, int, float, str, list, tuple, dict, type(None))
_IPYTHON_NAMES = {"In", "Out"}
_DONE = "_klear_setup_done"
_INJECTED = "# Parameters"
NOTEBOOK_PATH = "JPY_SESSION_NAME"
"""Environment variable of a kernel: the path of its notebook, as JupyterLab's server sets it."""


def setup(notebook: str, record: type, namespace: dict):
    """The parameters of `notebook` as a checked `record`, read from `namespace`, the notebook's
    ``globals()``.

    Every public name that holds a plain value counts as a parameter, so one that papermill injected
    under a wrong name is found. A name that a corrected cell no longer assigns is left out, though
    the kernel still holds it. Where setup runs again in a living kernel, values computed by later
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
    cells = _assignments(namespace.get("In", []))
    if namespace.get(_DONE) == notebook:
        stated = (names for names, injected in cells if injected or names & known)
        meant = known.union(*stated)
        given = {name: value for name, value in given.items() if name in meant}
    given = {name: value for name, value in given.items() if not _is_stale(name, known, cells)}
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

    filed = {}
    if notebook in files_of(params.profile):
        values = load_profile(params.profile, notebook)
        filed = dataclasses.asdict(check_values(type(params), values, notebook))
    rows = []
    for field in shown_fields(type(params)):
        value, about = getattr(params, field.name), field.metadata
        rows.append([field.name, value, about.get("paper", ""), _meaning(about)])
        if filed.get(field.name, value) != value:
            rows[-1][3] += f"; the profile's file says {_text(filed[field.name])}"
        if "record" in about:
            known = {each.name: each for each in dataclasses.fields(about["record"])}
            for name, each in (value or {}).items():
                about = known[name].metadata
                paper = about.get("paper", f"{_text(known[name].default)} (default)")
                rows.append([f"{field.name}.{name}", each, paper, _meaning(about)])
    return pandas.DataFrame(
        [[name, _text(value), _text(paper), note] for name, value, paper, note in rows],
        columns=["parameter", "value", "paper", "note"],
    )


def watch(*runs: str) -> Figure:
    """The curves of runs, named by their keys or the starts of them; without names, of the runs
    that go on now.

    Raises:
        ParameterError: no such run, or nothing to draw.
    """
    from klearlib.report.watch import find_run, watch_figure
    from klearlib.run.stage import folder_state

    place = root() / "results" / "runs"
    folders = [find_run(word, place) for word in runs]
    if not runs:
        folders = [path for path in sorted(place.glob("*/*")) if folder_state(path) == "running"]
    return watch_figure(folders)


def whereabouts(folder: Path, runs: Sequence[tuple[str, Path]]) -> str:
    """Markdown with links to what there is of a notebook, as seen from where the notebook lies:
    report, tables, figures, the executed notebook and runs.

    folder: results/<profile>/<notebook>. runs: title and folder of each. Under papermill, which
    does not say where its notebook will be, the links start in the working directory.
    """
    told = Path(os.environ.get(NOTEBOOK_PATH, ""))
    here = told.resolve().parent if told.is_absolute() else Path.cwd()

    def link(text: str, path: Path) -> dict[str, str]:
        return {"text": text, "url": quote(Path(os.path.relpath(path, here)).as_posix())}

    def named(kind: str) -> list[dict]:
        return [link(path.stem, path) for path in sorted(folder.glob(f"*.{kind}"))]

    executed = folder.with_suffix(".ipynb")
    is_there = here != folder.parent and executed.is_file()  # not this very notebook
    report = folder.parent / "report.html"
    return render(
        "whereabouts.md.j2",
        report=link(Path(os.path.relpath(report, root())).as_posix(), report),
        tables=named("csv"),
        figures=named("svg"),
        executed=[link(executed.name, executed)] if is_there else [],
        runs=[link(title, place / LOG) for title, place in runs if (place / LOG).is_file()],
    )


def _meaning(about) -> str:
    return about["help"] + (f" (paper: {about['place']})" if about.get("place") else "")


def _text(value) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, dict):
        return str(in_brief(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _assignments(sources: list[str]) -> list[tuple[set[str], bool]]:
    """The names that each cell assigned, in the order in which they ran, and whether papermill
    injected it."""
    cells = []
    for source in sources:
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a cell with IPython's own syntax assigns no parameter
            continue
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        names = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
        cells.append((names, source.lstrip().startswith(_INJECTED)))
    return cells


def _is_stale(name: str, known: set[str], cells: list[tuple[set[str], bool]]) -> bool:
    """Whether the cell that assigned `name` was run again without it: a later cell assigns most of
    the parameters that stood beside it, or any where none did."""
    last = max((i for i, (names, _) in enumerate(cells) if name in names), default=len(cells))
    beside = cells[last][0] & known if last < len(cells) else set()
    return any(
        2 * len(names & beside) > len(beside) if beside else bool(names & known)
        for names, injected in cells[last + 1 :]
        if not injected
    )
