"""What the scripts share: --tiny, their tables, the stages that they need."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klearlib.run.stage import Stage

RESULTS = Path(__file__).parent / "results"
# Every part of a world is there, and its models answer at random.
_TINY_WORLD = {
    r"\w+_steps": 2,
    r"(base|sft|teacher)_examples": 120,
    "num_train_problems": 24,
    "num_deciding": 6,
    "num_validation": 6,
    "max_new_tokens": 16,
}


def arguments_of(parser: argparse.ArgumentParser, **tiny) -> argparse.Namespace:
    """The arguments; `results` is the folder for the tables.

    --tiny makes `tiny` the defaults and writes everything, stages and tables, into a temporary
    project, whose profile smoke has worlds that take seconds.
    """
    parser.add_argument(
        "--tiny", action="store_true", help="try the code in seconds, at small sizes; keep nothing"
    )
    parser.set_defaults(results=RESULTS)
    arguments = parser.parse_args()
    if arguments.tiny:
        project = tempfile.TemporaryDirectory(prefix="klear-tiny-")
        atexit.register(project.cleanup)
        _fill(Path(project.name))
        os.environ["KLEAR_ROOT"] = project.name
        parser.set_defaults(results=Path(project.name, "tables"), **tiny)
        arguments = parser.parse_args()
    return arguments


def _fill(project: Path) -> None:
    from klearlib.params import SMOKE, root

    (project / "notebooks").symlink_to(root() / "notebooks")
    (project / "params" / SMOKE).mkdir(parents=True)
    for file in (root() / "params" / SMOKE).iterdir():
        text = file.read_text(encoding="utf-8")
        if file.name == "worlds.yaml":
            for name, value in _TINY_WORLD.items():
                text = re.sub(rf"^(  {name}:) .*", rf"\1 {value}", text, flags=re.MULTILINE)
        (project / "params" / SMOKE / file.name).write_text(text, encoding="utf-8")


def keep(rows: Iterable[dict], name: str, arguments: argparse.Namespace) -> None:
    """Print the rows, and write them as the table `name`."""
    import pandas as pd

    from klearlib.report.tables import write_table

    table = pd.DataFrame(rows)
    write_table(table, arguments.results / f"{name}.csv")
    print(table.to_string(index=False), flush=True)


def finish(stages: Iterable[Stage], arguments: argparse.Namespace, *, workers: int = 0) -> None:
    """Run the stages that are not done. With --tiny they run in this process: importing torch in
    another takes longer than a stage."""
    from klearlib.experiments.experiment import runs_dir
    from klearlib.run.folder import RunFolder
    from klearlib.run.pool import run_stages

    if not arguments.tiny:
        run_stages([*stages], runs_dir=runs_dir(), workers=workers)
        return
    for stage in stages:
        if stage.folder(runs_dir()).exists():
            continue
        finish(stage.inputs.values(), arguments)
        module, _, function = stage.target.partition(":")
        inputs = {name: each.folder(runs_dir()) for name, each in stage.inputs.items()}
        folder = RunFolder(stage.folder(runs_dir()))
        getattr(import_module(module), function)(folder, inputs, **stage.params)
        folder.finish()


def copy_of_start(place: str, stage: Stage) -> Path:
    """A runs folder that links to the finished stages that `stage` starts from."""
    from klearlib.experiments.experiment import runs_dir

    folder = Path(tempfile.mkdtemp(dir=place))
    for kind in runs_dir().glob("*"):
        if kind.name != stage.name:
            (folder / kind.name).symlink_to(kind)
    return folder


def digests(done: Path) -> dict[str, str]:
    """File -> sha256 of a finished stage, but for its seconds, which no two runs share."""
    files = json.loads(done.read_text())["files"]
    return {name: entry["sha256"] for name, entry in files.items() if name != "timings.jsonl"}


def clipping_run(profile: str) -> Stage:
    """The first RL run of the profile's notebook 05."""
    from klearlib.experiments.catalogue import check
    from klearlib.experiments.nb05_clipping import Clipping
    from klearlib.params import load_profile

    params = check(Clipping.name, load_profile(profile, Clipping.name))
    return Clipping(params).stages()[0]
