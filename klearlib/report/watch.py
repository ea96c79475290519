"""Runs that go on and runs that are done, from their metrics: which there are, and what they learn,
as lines of text and as the figure of the report."""

from __future__ import annotations

import contextlib
import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import DamagedEntry, ParameterError
from klearlib.params import did_you_mean
from klearlib.report.curves import learning_curves
from klearlib.report.section import MAX_SIZE
from klearlib.run.entry import METRICS, SPEC, read_metrics, read_progress
from klearlib.run.files import read_json
from klearlib.run.rows import cut
from klearlib.run.stage import folder_state

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "reward": ("rollout/reward_mean",),
    "score": (),  # mean of avg@n over the benchmarks of an evaluation
    "entropy": ("train/entropy",),
    "gradient norm": ("train/grad_norm", "sft/grad_norm"),
    "loss": ("sft/loss",),
}
"""What is drawn: its name, and the keys of metrics.jsonl of which a run has one."""
MAX_SERIES = 10
"""In a figure: of more, those that were written last."""
_WIDE = 120  # columns from which keys and states are shown
_CELL = 12  # of a quantity: a curve of four and a value of seven
_SPARKS = "▁▂▃▄▅▆▇█"

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Watched:
    """A run at one moment; `curves` are (step, value) by the names of `QUANTITIES`."""

    folder: Path
    title: str
    state: str
    done: int
    total: int
    curves: dict[str, Curve]

    @property
    def series(self) -> str:
        return self.title.rpartition(", seed ")[0] or self.title

    @property
    def seed(self) -> str:
        return self.title.rpartition(", seed ")[2] if ", seed " in self.title else ""


def find_run(word: str, runs_dir: Path) -> Path:
    """The folder of the run that `word` names: its key, or a start of it that no other run has,
    with the kind of stage before it ("rl/0123") or without.

    Raises:
        ParameterError: there is none ("did you mean"), or several.
    """
    folders = [path.parent for name in (METRICS, SPEC) for path in runs_dir.glob(f"*/*/{name}")]
    known = {f"{path.parent.name}/{path.name}": path for path in sorted(set(folders))}
    keys = {name: name if "/" in word else name.partition("/")[2] for name in known}
    found = [name for name, key in keys.items() if word and key.startswith(word)]
    if len(found) > 1:
        raise ParameterError(f"several runs begin with {word!r}: {', '.join(found)}")
    if not found:
        hint = did_you_mean(word, [*keys.values()]) if known else "none has run yet"
        hint = hint if len(hint) < 200 else "klear status lists those under way"
        raise ParameterError(f"there is no run {word!r}; {hint}")
    return known[found[0]]


def watched(folders: Iterable[Path]) -> list[Watched]:
    """Those of the folders that have metrics, first those that go on; runs of one title are told
    apart by their keys."""
    runs = [_watched(folder) for folder in folders if (folder / METRICS).is_file()]
    runs.sort(key=lambda run: run.state != "running")
    titles = Counter(run.title for run in runs)
    return [
        replace(run, title=f"{run.folder.name[:6]} {run.title}") if titles[run.title] > 1 else run
        for run in runs
    ]


def _watched(folder: Path) -> Watched:
    lines, progress = read_metrics(folder), read_progress(folder)
    curves = {}
    for name, keys in QUANTITIES.items():
        found = ((line["step"], line[key]) for line in lines for key in keys if key in line)
        curve = [(step, _drawable(value)) for step, value in found if value is not None]
        if curve := curve if keys else _scores(folder):
            curves[name] = curve
    done = lines[-1]["step"] if lines else 0
    total = progress["total"] if progress else done
    return Watched(folder, title_of(folder), folder_state(folder), done, total, curves)


def _drawable(value: float) -> float:
    """`value`, as NaN where a mean or a margin of a figure would overflow."""
    return value if abs(value) < MAX_SIZE else math.nan


def title_of(folder: Path) -> str:
    """What people call the run in a folder; its key where it does not say, in one line of text."""
    try:
        spec = read_json(folder / SPEC)
        title = spec["label"] or spec["name"]
    except (OSError, ValueError, KeyError, TypeError):  # a run that only begins has no spec yet
        return folder.name
    return title if isinstance(title, str) and title.isprintable() else folder.name


def _scores(folder: Path) -> Curve:
    """The mean over benchmarks of the share of right responses, at each evaluation."""
    from klearlib.evaluate.record_files import load_record, scored_files

    curve: Curve = []
    for step, paths in scored_files(folder).items():
        scores = []
        for path in paths:
            # A run that starts anew may be removing it.
            with contextlib.suppress(DamagedEntry, FileNotFoundError):
                scores.append(float(load_record(path).correct.mean()))
        if scores:
            curve.append((step, sum(scores) / len(scores)))
    return curve


def text_lines(runs: Sequence[Watched], width: int) -> list[str]:
    """A line for each run, below a line of heads: title, steps, and each quantity's curve with its
    last value; at most `width` columns."""
    if not runs:
        return [cut("no run has written metrics yet", width)]
    names = [name for name in QUANTITIES if any(name in run.curves for run in runs)]
    wide = width >= _WIDE
    title_size = min(max(len(run.title) for run in runs), max(12, width // (4 if wide else 5)))
    rows = [
        [cut(run.title, title_size), *([run.folder.name[:6], run.state] if wide else []), steps]
        for run, steps in ((run, f"{run.done}/{run.total}") for run in runs)
    ]
    heads = ["run", "key", "state", "step"] if wide else ["run", "step"]
    sizes = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    room = width - sum(sizes) - len(sizes) + 1
    names = names[: max(1, room // (_CELL + 2))]
    cell = max(_CELL, min(28, room // max(1, len(names)) - 2))
    lines = ["  ".join([_padded(heads, sizes), *(f"{cut(n, cell):<{cell}}" for n in names)])]
    for run, row in zip(runs, rows, strict=True):
        cells = []
        for name in names:
            values = [value for _, value in run.curves.get(name, [])]
            last = f"{values[-1]:.3g}" if values else ""
            cells.append(f"{sparkline(values, cell - 8):<{cell - 8}} {last:>7}")
        lines.append("  ".join([_padded(row, sizes), *cells]))
    return [cut(line.rstrip(), width) for line in lines]


def _padded(cells: Sequence[str], sizes: Sequence[int]) -> str:
    *first, last = (f"{cell:<{size}}" for cell, size in zip(cells, sizes, strict=True))
    return " ".join([*first, f"{cells[-1]:>{len(last)}}"])


def sparkline(values: Sequence[float], width: int) -> str:
    """The values from their smallest to their largest, each column the mean of its share of them.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8), sparkline([1.0, 1.0], 8), sparkline([], 8)
    ('▁▂▃▄▅▆▇█', '▁▁', '')
    """
    finite = [value for value in values if abs(value) < float("inf")]
    count = min(len(finite), width)
    bounds = [round(index * len(finite) / count) for index in range(count + 1)] if count else []
    means = [sum(finite[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((mean - low) * scale)] for mean in means)


def watch_figure(runs: Sequence[Watched]) -> Figure:
    """The learning curves of the report, a panel for each quantity: of the RL runs where there are
    some, of all otherwise.

    Raises ParameterError where there is nothing to draw.
    """
    import pandas as pd

    chosen = [run for run in runs if "reward" in run.curves] or [run for run in runs if run.curves]
    if not chosen:
        raise ParameterError("no run has written metrics yet: nothing to draw")
    newest = sorted(chosen, key=lambda run: -(run.folder / METRICS).stat().st_mtime)
    series = list(dict.fromkeys(run.series for run in newest))[:MAX_SERIES]
    names = [name for name in QUANTITIES if any(name in run.curves for run in chosen)]
    rows = [
        (name, run.series.replace("$", r"\$"), run.seed, step, value)  # text, no formula
        for name in names
        for run in chosen
        if run.series in series
        for step, value in run.curves.get(name, [])
    ]
    left_out = len({run.series for run in chosen}) - len(series)
    frame = pd.DataFrame(rows, columns=["panel", "series", "seed", "step", "value"])
    figure = learning_curves(frame, x_label="step", max_columns=2)
    if left_out:
        text = f"the {len(series)} arms written last; {left_out} more: name runs to draw them"
        figure.suptitle(text, fontsize=9)
    return figure


def watch_page(runs: Sequence[Watched]) -> str:
    """The figure and the lines as one HTML file without network."""
    from klearlib.report.render import style_sheet
    from klearlib.report.style import figure_bytes

    drawing = figure_bytes(watch_figure(runs), "svg").decode()
    lines = html.escape("\n".join(text_lines(runs, 160)))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>klear watch</title>'
        f"<style>{style_sheet('page.css')}</style></head><body><h1>Runs</h1>"
        f"<figure>{drawing[drawing.index('<svg') :]}</figure><pre>{lines}</pre></body></html>\n"
    )
