"""A suite of two notebooks of a few lines, with experiments of toy stages, for tests of the runner.

``python -c "import toy_suite; toy_suite.main()" run ...`` is the command with these experiments.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from klearlib.errors import Stopped
from klearlib.experiments import catalogue
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.shown import table
from klearlib.params import parameters_cell, root
from klearlib.params.fields import parameter
from klearlib.params.options import NotebookParams
from klearlib.run import preload
from klearlib.run.stage import Stage

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = str(Path(__file__).parent)

GATHER = """with open("ran.txt", "a") as file: file.write("00\\n")"""
TOY = """import json, os, sys
from pathlib import Path
from ipykernel.connect import get_connection_info
out = Path("results") / profile / "05_toy"
out.mkdir(parents=True, exist_ok=True)
with open("ran.txt", "a") as file: file.write("05\\n")
sums = [path.read_text() for path in sorted(Path("results/runs").glob("*/*/sum.txt"))]
here = {"python": sys.executable, "cwd": os.getcwd(), "steps": num_steps, "workers": workers}
here |= {"transport": json.loads(get_connection_info())["transport"], "stages": len(sums)}
here |= {"out": os.environ["KLEAR_OUT"]}
(out / "here.json").write_text(json.dumps(here))
print("hello")"""


@dataclass(frozen=True)
class GatherParams(NotebookParams):
    """Of a notebook that gathers."""


@dataclass(frozen=True)
class ToyParams(NotebookParams):
    """Of a notebook with stages: `kind` says which."""

    num_steps: int = parameter(2, minimum=1, help="steps of each stage")
    rates: list[float] = parameter([1.0e-4], above=0.0, help="a list of numbers")
    kind: str = parameter("walk", help="what its second stage does, or both do")
    workers: object = parameter(0, keyed=False, help="stages at once")


class Gather(Experiment):
    """It comes last."""

    name, title, section, question = "00_gather", "Gather", "1", "What is there?"
    gathers = True
    Params = GatherParams


class Toy(Experiment):
    """Two stages, the second of which needs the first."""

    name, title, section, question = "05_toy", "Toy", "5", "Does it run?"
    Params = ToyParams

    def stages(self):
        p = self.params
        how = {"num_steps": p.num_steps}
        first_kind, _, second_kind = p.kind.rpartition(", ")
        first = Stage("first", f"toy_suite:{first_kind or 'walk'}", how, label="first")
        return [
            first,
            Stage(
                "second",
                f"toy_suite:{second_kind}",
                how,
                {"first": first},
                label="second",
                estimate_s=1.0,
            ),
        ]

    @table("What is done.")
    def finished(self):
        import pandas as pd

        return pd.DataFrame({"stage": [s.title for s in self.stages() if self.is_done(s)]})


def install() -> None:
    """Have these experiments in the place of the suite's own."""
    found = {each.name: each for each in (Gather, Toy)}
    catalogue.names = lambda: tuple(found)
    by_file = catalogue.experiment_of
    catalogue.experiment_of = lambda name: found[name] if name in found else by_file(name)


def main() -> None:
    """`klear` with these experiments."""
    from klearlib import cli

    install()
    preload.PRELOADED = ()  # toy stages need no torch
    sys.exit(cli.main(sys.argv[1:]))


def publish(notebook: str, values: dict, out: str) -> None:
    """`klearlib.suite.notebooks.publish` in a process that has not installed them."""
    from klearlib.suite import notebooks

    install()
    notebooks.publish(notebook, values, out)


def walk(folder, inputs, *, num_steps: int) -> None:
    """A walk of 40 steps a `num_steps`, saved at each tenth; what it ends with follows from all."""
    place, step = folder.load_checkpoint() or ({"sum": 0}, 0)
    while step < 40 * num_steps:
        if folder.stop_requested:
            folder.save_checkpoint(place, step)
            raise Stopped("asked to")
        step += 1
        place["sum"] = (place["sum"] * 31 + step) % 1_000_003
        folder.append_metrics({"step": step, "sum": place["sum"]})
        folder.progress(step, 40 * num_steps)
        if step % 10 == 0:
            folder.save_checkpoint(place, step)
        time.sleep(0.002)
    (folder.path / "sum.txt").write_text(str(place["sum"]))


def wait(folder, inputs, *, num_steps: int) -> None:
    """Say who waits, and wait until asked to stop; then save."""
    _tell("pids.txt", str(os.getpid()))
    while not folder.stop_requested:
        time.sleep(0.02)
    folder.save_checkpoint({}, 1)
    _tell("saved.txt", "saved")
    raise Stopped("asked to")


def stay(folder, inputs, *, num_steps: int) -> None:
    """Not stop when asked to."""
    _tell("pids.txt", str(os.getpid()))
    while True:
        if folder.stop_requested:
            _tell("saved.txt", "asked")
        time.sleep(0.02)


def linger(folder, inputs, *, num_steps: int) -> None:
    """Go on until what was done before it is published, a minute at most."""
    section, end = root() / "results" / "smoke" / "05_toy" / "section.json", time.monotonic() + 60
    while not section.exists() and time.monotonic() < end:
        time.sleep(0.02)


def break_off(folder, inputs, *, num_steps: int) -> None:
    """Fail."""
    raise ValueError("no room")


def _tell(name: str, text: str) -> None:
    temporary = root() / f"{name}.tmp"
    temporary.write_text(text)
    os.replace(temporary, root() / name)


def make(project: Path, sources: dict[str, str]) -> Path:
    """Put a profile smoke with a notebook of one cell for each of `sources` into a folder."""
    profile = project / "params" / "smoke"
    profile.mkdir(parents=True)
    (project / "notebooks").mkdir()
    for name in ("worlds.yaml", "compute.yaml", "statistics.yaml"):
        shutil.copy(REPOSITORY / "params" / "smoke" / name, profile)
    for name, source in sources.items():
        put(project, name, source)
    return project


def notebook(name: str, *sources: str) -> str:
    record = {each.name: each.Params for each in (Gather, Toy)}[name]
    code = {"cell_type": "code", "execution_count": None, "outputs": []}
    parameters = {**code, "id": "p", "metadata": {"tags": ["parameters"]}}
    cells = [{**parameters, "source": parameters_cell(record)}]
    cells += [
        {**code, "id": f"c{i}", "metadata": {}, "source": source}
        for i, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    return json.dumps({**content, "nbformat_minor": 5})


def put(project: Path, name: str, *sources: str) -> None:
    (project / "notebooks" / f"{name}.ipynb").write_text(notebook(name, *sources))


def ran(project: Path) -> list[str]:
    path = project / "ran.txt"
    return path.read_text().split() if path.exists() else []


def files(project: Path) -> set[str]:
    found = (path for path in (project / "results").rglob("*") if path.is_file())
    names = {str(path.relative_to(project / "results")) for path in found}
    return {name for name in names if not name.startswith("runs/")}


def environment(project: Path) -> dict[str, str]:
    paths = {"KLEAR_ROOT": str(project), "PYTHONPATH": os.pathsep.join([str(REPOSITORY), HERE])}
    return {**os.environ, **paths, "OMP_NUM_THREADS": "1"}
