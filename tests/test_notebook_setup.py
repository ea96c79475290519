"""The setup cell: it sees what papermill injects, in any folder, and can be run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klearlib import notebook
from klearlib.errors import ParameterError
from klearlib.experiments.clipping_arms import ClippingParams
from klearlib.params import parameters_cell

REPOSITORY = Path(__file__).resolve().parents[1]
SETUP = """from klearlib.experiments.nb05_clipping import Clipping

experiment = Clipping.setup(globals())
print("steps", experiment.params.num_steps)"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with the profile smoke and a notebook 05 that only sets up."""
    (tmp_path / "params" / "smoke").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "params" / "smoke" / "05_clipping.yaml").write_text("num_steps: 3\n")
    code = {"cell_type": "code", "execution_count": None, "outputs": []}
    cells = [
        {**code, "id": "a", "metadata": {"tags": ["parameters"]}},
        {**code, "id": "b", "metadata": {}, "source": SETUP},
        {**code, "id": "c", "metadata": {}},
    ]
    cells[0]["source"] = parameters_cell(ClippingParams)
    cells[2]["source"] = "import sys\nprint(sys.executable, 'torch' in sys.modules)"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    path = tmp_path / "notebooks" / "05_clipping.ipynb"
    path.write_text(json.dumps({**content, "nbformat_minor": 5}))
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def namespace(**names) -> dict:
    """The globals of a kernel in which the parameters cell ran and then a cell for each of `names`,
    with IPython's own names."""
    cell = parameters_cell(ClippingParams)
    cells = ["", cell, *(f"{name} = ..." for name in names)]
    ours: dict = {"In": cells, "Out": {1: 3}, "_i": "x", "_": "", "exit": print, "os": os}
    exec(cell, ours)
    return ours | names


def test_reads_the_namespace_and_nothing_else(project):
    params = notebook.setup(
        "05_clipping", ClippingParams, namespace(num_steps=3, check=len, Path=Path)
    )
    assert params == ClippingParams(num_steps=3)


@pytest.mark.parametrize("value", [1, 1.0, "a", True, None, [1], {"a": 1}, (1,)])
def test_every_unknown_literal_is_refused(project, value):
    with pytest.raises(ParameterError, match="'num_step': did you mean 'num_steps'"):
        notebook.setup("05_clipping", ClippingParams, namespace(num_step=value))


def test_a_list_given_as_text_is_told_how_papermill_takes_one(project):
    with pytest.raises(ParameterError, match=r"got '\[0\]': .*, write -y '\{seeds: \[0\]\}'"):
        notebook.setup("05_clipping", ClippingParams, namespace(seeds="[0]"))


def test_rerun_ignores_what_later_cells_computed(project):
    names = namespace()
    notebook.setup("05_clipping", ClippingParams, names)
    names |= {"best": 0.4, "num_steps": 7}
    names["In"] += ["best = 0.4"]
    assert notebook.setup("05_clipping", ClippingParams, names).num_steps == 7


@pytest.mark.parametrize("cell", ["# Parameters\nnum_step = 7", "num_step = 7\nnum_steps = 7"])
def test_rerun_still_finds_a_misspelt_parameter(project, cell):
    names = namespace()
    notebook.setup("05_clipping", ClippingParams, names)
    names["num_step"] = 7
    names["In"] += ["%matplotlib inline", cell]
    with pytest.raises(ParameterError, match="did you mean 'num_steps'"):
        notebook.setup("05_clipping", ClippingParams, names)


OWN_CELL = "num_step = 7"  # between the parameters and setup


@pytest.mark.parametrize(
    ("mistyped", "right"), [("num_step", "num_steps"), ("profil", "profile"), (OWN_CELL, "")]
)
@pytest.mark.parametrize("was_right_before", [False, True])
def test_a_corrected_name_is_gone_though_the_kernel_holds_it(
    project, mistyped, right, was_right_before
):
    names = namespace()
    cell = names["In"][1]
    wrong = cell.replace(f"{right}:", f"{mistyped}:") if right else f"{cell}\n{OWN_CELL}"
    if was_right_before:
        notebook.setup("05_clipping", ClippingParams, names)
    for source in (wrong, "e = Clipping.setup(globals())"):
        names["In"].append(source)
    exec(wrong, names)
    for _ in range(2):  # setup alone, run again, is refused as well
        with pytest.raises(ParameterError, match="did you mean"):
            notebook.setup("05_clipping", ClippingParams, names)
    names["In"].append(cell)
    exec(cell, names)
    assert notebook.setup("05_clipping", ClippingParams, names) == ClippingParams()


@pytest.mark.parametrize(
    "injected", ["# Parameters\nnum_steps = 3", parameters_cell(ClippingParams)]
)
def test_what_papermill_injects_hides_no_mistyped_name_of_the_notebook(project, injected):
    names = namespace() | {"num_step": 7}
    names["In"][1] += "\nnum_step = 7"
    names["In"].append("# Parameters\n" + injected)
    with pytest.raises(ParameterError, match="did you mean 'num_steps'"):
        notebook.setup("05_clipping", ClippingParams, names)


def test_links_start_where_the_notebook_lies(project, monkeypatch):
    folder, run = project / "results" / "smoke" / "05_clipping", project / "results/runs/rl/a b"
    for path in (folder / "scores.csv", folder / "fig2.svg", folder / "fig2.png", run / "log.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    runs = [("GPPO, seed 0 [x]", run), ("absent", project)]
    monkeypatch.chdir(project / "notebooks")
    seen = notebook.whereabouts(folder, runs).splitlines()
    assert "[results/smoke/report.html](../results/smoke/report.html)" in seen[0]
    assert seen[1] == "- **Tables**: [scores](../results/smoke/05_clipping/scores.csv)"
    assert seen[2] == "- **Figures**: [fig2](../results/smoke/05_clipping/fig2.svg)"
    assert seen[3] == r"- **Runs**: [GPPO, seed 0 \[x\]](../results/runs/rl/a%20b/log.txt)"
    assert len(seen) == 4
    monkeypatch.setenv("JPY_SESSION_NAME", str(folder.with_suffix(".ipynb")))
    seen = notebook.whereabouts(folder, runs)
    assert "(report.html)" in seen and "Executed notebook" not in seen  # it is this one


def test_table_shows_value_paper_and_departures(project):
    params = notebook.setup("05_clipping", ClippingParams, namespace(options={"dual_clip": 10.0}))
    table = notebook.show_resolved("05_clipping", params).set_index("parameter")
    assert table.loc["learning_rates", "value"] == "0.0003"
    assert table.loc["learning_rates", "paper"] == "1e-06"
    assert table.loc["rules", "value"] == "clip_higher, gppo, cispo"
    assert "the profile's file says 3" in table.loc["num_steps", "note"]
    assert "profile's file" not in table.loc["group_size", "note"]
    assert table.loc["options.dual_clip", "value"] == "10"


def test_setup_needs_no_torch_and_no_pandas():
    code = (
        "import sys; from klearlib.experiments.nb05_clipping import Clipping; Clipping.setup({});"
        "print({'torch', 'pandas', 'papermill'} & set(sys.modules))"
    )
    environment = {**os.environ, "KLEAR_ROOT": str(REPOSITORY), "PYTHONPATH": str(REPOSITORY)}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"


def papermill(project: Path, *arguments: str, folder: str = ".") -> subprocess.CompletedProcess:
    """Bare papermill, called by its full path: the interpreter's folder is not on PATH."""
    source = project / "notebooks" / "05_clipping.ipynb"
    command = [sys.executable, "-m", "papermill", str(source), str(project / "out.ipynb")]
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
    environment.pop("KLEAR_ROOT")
    return subprocess.run(
        [*command, *arguments],
        cwd=project / folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def prints(project: Path) -> str:
    cells = json.loads((project / "out.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join("".join(output.get("text", "")) for output in outputs)


def test_bare_papermill_with_a_parameter_file(project):
    file = project / "params" / "smoke" / "05_clipping.yaml"
    done = papermill(project, "-f", str(file), folder="notebooks")
    assert done.returncode == 0, done.stderr
    assert "steps 3" in prints(project)
    assert f"{sys.executable} False" in prints(project)


def test_bare_papermill_refuses_an_unknown_parameter_in_one_line(project):
    done = papermill(project, "-p", "num_step", "3")
    assert done.returncode == 1
    assert "unknown parameter 'num_step': did you mean 'num_steps'?" in done.stderr
    assert "klearlib/notebook.py" not in done.stderr  # one line instead of a traceback
