"""What the first cells of a notebook call, to check the parameters and show them with the paper's,
and what the last one shows: where everything is.

A notebook runs under ``klear run``, under bare papermill, in JupyterLab and by Run All; papermill
checks no parameters, so they are checked here, inside the kernel, which covers all these ways.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from klearlib.params import check_values, require_profile, root
from klearlib.params.fields import shown_fields
from klearlib.params.place import differences, in_brief
from klearlib.report.tables import plain
from klearlib.run.entry import LOG

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_LITERALS = (bool, int, float, str, list, tuple, dict, type(None))
_DONE = "_klear_setup_done"
_INJECTED = "# Parameters"
NOTEBOOK_PATH = "JPY_SESSION_NAME"
"""Environment variable of a kernel: the path of its notebook, as JupyterLab's server sets it."""


def setup(notebook: str, record: type, namespace: dict):
    """The parameters of `notebook` as a checked `record`, read from `namespace`, the notebook's
    ``globals()``.

    Every name that a cell gave a plain value counts as a parameter, so one that papermill injected
    under a wrong name is found; see `_stated`. No torch is imported.

    Raises ParameterError: unknown name ("did you mean"), wrong type, out of range, unknown profile.
    """
    known = {field.name for field in dataclasses.fields(record)}
    stated = _stated(namespace.get("In", []), known, again=namespace.get(_DONE) == notebook)
    given = {
        name: value
        for name, value in namespace.items()
        if name in known or (name in stated and name[:1] != "_" and isinstance(value, _LITERALS))
    }
    params = check_values(record, given, notebook)
    require_profile(params.profile)
    namespace[_DONE] = notebook
    return params


def _stated(sources: list[str], known: set[str], *, again: bool) -> set[str]:
    """The names that the parameters cell assigned when it last ran, and those of the cells after
    it: a name that a corrected cell no longer has is left out, though the kernel still holds it.

    again: in a live kernel, where values that later cells computed are not parameters: only cells
    that assign a declared parameter, or that papermill injected, count.
    """
    stated: set[str] = set()
    for source in sources:
        try:
            nodes = ast.walk(ast.parse(source))
        except SyntaxError:  # a cell with IPython's own syntax assigns no parameter
            continue
        names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        injected = source.lstrip().startswith(_INJECTED)
        if not injected and 2 * len(names & known) > len(known):  # the parameters cell
            stated = names
        elif injected or names & known or not again:
            stated |= names
    return stated


def show_frames() -> None:
    """Make this notebook show tables with three decimals, all columns and texts in full, and a
    dash for what was not measured; outside a notebook nothing happens."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        import pandas as pd

        pd.set_option("display.precision", 3)
        for cut in ("display.max_columns", "display.max_colwidth"):
            pd.set_option(cut, None)
        shown = partial(pd.DataFrame.to_html, na_rep="–", notebook=True, max_rows=60)
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, shown)


def show_resolved(notebook: str, params) -> pandas.DataFrame:
    """A table of every parameter: its value, the paper's value, and a note.

    The note says what the parameter means, where the paper states its value, and the value of the
    profile's file if this run departs from it. Options that are set get a line each.
    """
    import pandas

    changed, rows = differences(notebook, params), []
    for field in shown_fields(type(params)):
        value, about = getattr(params, field.name), field.metadata
        rows.append([field.name, value, about.get("paper", ""), _meaning(about)])
        if field.name in changed:
            rows[-1][3] += f"; the profile's file says {_text(changed[field.name][0])}"
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
    """The curves of runs, named by their keys or the starts of them; without names, of the runs in
    progress.

    Raises ParameterError: no such run, or nothing to draw.
    """
    from klearlib.report.watch import find_run, watch_figure
    from klearlib.run.stage import folder_state

    place = root() / "results" / "runs"
    folders = [find_run(word, place) for word in runs]
    if not runs:
        folders = [path for path in sorted(place.glob("*/*")) if folder_state(path) == "running"]
    return watch_figure(folders)


def whereabouts(folder: Path, runs: Sequence[tuple[str, Path]]) -> str:
    """Markdown with links to what a notebook has produced, relative to where the notebook lies:
    report, tables, figures, the executed notebook and runs.

    folder: results/<profile>/<notebook>. runs: title and folder of each. Under papermill, which
    does not say where its notebook will be, the links start in the working directory.
    """
    told = Path(os.environ.get(NOTEBOOK_PATH, ""))
    here = told.resolve().parent if told.is_absolute() else Path.cwd()
    executed, report = folder.with_suffix(".ipynb"), folder.parent / "report.html"
    files = {
        "Report": [(os.path.relpath(report, root()), report)],
        "Tables": [(path.stem, path) for path in sorted(folder.glob("*.csv"))],
        "Figures": [(path.stem, path) for path in sorted(folder.glob("*.svg"))],
        # unless it is this very notebook
        "Executed notebook": [(executed.name, executed)] * (here != folder.parent),
        "Runs": [(title, place / LOG) for title, place in runs],
    }
    lines = []
    for what, places in files.items():
        links = [
            f"[{plain(text)}]({quote(os.path.relpath(path, here))})"
            for text, path in places
            if path == report or path.is_file()
        ]
        lines += [f"- **{what}**: {' · '.join(links)}"] if links else []
    return "\n".join(lines)


def _meaning(about) -> str:
    return about["help"] + (f" (paper: {about['place']})" if about.get("place") else "")


def _text(value) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, dict):
        return str(in_brief(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
