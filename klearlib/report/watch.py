"""Runs by what they logged: which one a word names, its curves, and their figure in a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import DamagedEntry, ParameterError, printable
from klearlib.params import did_you_mean
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
MAX_SERIES = 10
"""In a figure: of more, those that were written last."""

Curve = list[tuple[int, float]]
"""(step, value)"""


def find_run(word: str, runs_dir: Path) -> Path:
    """The folder of the run that `word` names: its key, or a start of it that no other run has,
    with the kind of stage before it ("rl/0123") or without.

    Raises:
        ParameterError: there is none ("did you mean"), or several.
    """
    folders = {path.parent for name in (METRICS, SPEC) for path in runs_dir.glob(f"*/*/{name}")}
    known = {f"{path.parent.name}/{path.name}": path for path in sorted(folders)}
    keys = {name: name if "/" in word else name.partition("/")[2] for name in known}
    matches = [name for name, key in keys.items() if word and key.startswith(word)]
    if len(matches) > 1:
        raise ParameterError(f"several runs begin with {word!r}: {', '.join(matches)}")
    if not matches:
        hint = did_you_mean(word, [*keys.values()]) if known else "nothing has run yet"
        hint = hint if len(hint) < 200 else "klear status lists the runs"
        raise ParameterError(f"there is no run {word!r}; {hint}")
    return known[matches[0]]


def title_of(folder: Path) -> str:
    """What people call the run in a folder; its key if it does not say."""
    try:
        spec = read_json(folder / SPEC)
    except OSError:  # a run that only begins has no spec yet
        return folder.name
    return printable(spec["label"] or spec["name"])


def curves_of(folder: Path) -> dict[str, Curve]:
    """Name of a quantity -> its curve, of what the run has logged so far; of the score the share of
    right responses at each evaluation, as a mean over benchmarks."""
    from klearlib.evaluate.counts import read_evaluations, scored  # numpy

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
    runs if there are any, of all others if not.

    Raises:
        ParameterError: no run has logged anything.
    """
    import pandas as pd

    runs = {folder: curves_of(folder) for folder in folders if (folder / METRICS).is_file()}
    runs = {folder: curves for folder, curves in runs.items() if "reward" in curves} or runs
    titles = {folder: title_of(folder) for folder in runs}
    rows = []
    for folder in sorted(runs, key=lambda each: -(each / METRICS).stat().st_mtime):
        title, _, seed = titles[folder].partition(", seed ")
        if [*titles.values()].count(titles[folder]) > 1:
            title = f"{folder.name[:6]} {title}"
        title = title.replace("$", r"\$")  # text, no formula
        for name, curve in runs[folder].items():
            rows += [(name, title, seed, step, value) for step, value in curve]
    if not rows:
        raise ParameterError("no run has logged any metrics yet: nothing to draw")
    frame = pd.DataFrame(rows, columns=["panel", "series", "seed", "step", "value"])
    series = list(frame["series"].unique())
    figure = learning_curves(
        frame[frame["series"].isin(series[:MAX_SERIES])], x_label="step", max_columns=2
    )
    if left_out := len(series[MAX_SERIES:]):
        text = f"the {MAX_SERIES} arms written last; {left_out} more: name runs to draw them"
        figure.suptitle(text, fontsize=9)
    return figure
