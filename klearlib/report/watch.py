"""Runs by what they logged: finding one by name, its curves, and their figure in a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import DamagedEntry, ParameterError, printable
from klearlib.evaluate.counts import read_evaluations, scored
from klearlib.report.curves import learning_curves
from klearlib.run.entry import METRICS, SPEC, read_metrics
from klearlib.run.files import read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "rollout/reward_mean": "reward",
    "train/entropy": "entropy",
    "train/grad_norm": "gradient norm",
    "sft/grad_norm": "gradient norm",
    "sft/loss": "loss",
}
"""What is drawn of metrics.jsonl: key -> its name. The score comes from the evaluations."""
Curve = list[tuple[int, float]]
"""(step, value)"""


def find_run(word: str, runs_dir: Path) -> Path:
    """The folder of the run that `word` names: its key, or a start of it that no other run shares,
    with or without the kind of stage before it ("rl/0123").

    Raises ParameterError where there is no such run, or several.
    """
    runs = {path.parent for name in (METRICS, SPEC) for path in runs_dir.glob(f"*/*/{name}")}
    names = {f"{run.parent.name}/{run.name}" if "/" in word else run.name: run for run in runs}
    matches = sorted(name for name in names if word and name.startswith(word))
    if len(matches) > 1:
        raise ParameterError(f"several runs begin with {word!r}: {', '.join(matches)}")
    if not matches:
        raise ParameterError(f"there is no run {word!r}: {runs_dir} has a folder for each run")
    return names[matches[0]]


def title_of(folder: Path) -> str:
    """The title of the run in a folder; its key if it has none."""
    try:
        spec = read_json(folder / SPEC)
    except OSError:  # a run that has just begun has no spec yet
        return folder.name
    return printable(spec["label"] or spec["name"])


def curves_of(folder: Path) -> dict[str, Curve]:
    """Name of a quantity -> its curve, from what the run has logged so far; for the score the share
    of right responses at each evaluation, as a mean over benchmarks."""
    curves: dict[str, Curve] = {}
    for line in read_metrics(folder):
        for key, name in QUANTITIES.items():
            if line.get(key) is not None:  # without an update there is no gradient
                curves.setdefault(name, []).append((line["step"], line[key]))
    # A run that starts again may be removing them.
    with contextlib.suppress(DamagedEntry, FileNotFoundError):
        for step, found in scored(read_evaluations(folder)).items():
            mean = sum(each.score for each in found) / len(found)
            curves.setdefault("score", []).append((step, mean))
    return curves


def watch_figure(folders: Iterable[Path]) -> Figure:
    """The learning curves of runs as the report draws them, a panel for each quantity: of the RL
    runs, or of the others if there are none. Raises ParameterError where no run has logged
    anything."""
    import pandas as pd

    runs = {folder: curves_of(folder) for folder in folders}
    runs = {folder: curves for folder, curves in runs.items() if "reward" in curves} or runs
    titles = [title_of(folder) for folder in runs]
    rows = []
    for (folder, curves), title in zip(runs.items(), titles, strict=True):
        series, _, seed = title.replace("$", r"\$").partition(", seed ")  # text, no formula
        if titles.count(title) > 1:
            series = f"{folder.name[:6]} {series}"
        for name, curve in curves.items():
            rows += [(name, series, seed, step, value) for step, value in curve]
    if not rows:
        raise ParameterError("no run has logged any metrics yet: nothing to draw")
    frame = pd.DataFrame(rows, columns=["panel", "series", "seed", "step", "value"])
    return learning_curves(frame, x_label="step", max_columns=2)
