"""Finished RL runs as long tables: metrics by step, scores by step, per-problem scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.evaluate.record_files import load_record
from klearlib.evaluate.scores import avg_at_n
from klearlib.records import NOT_JUDGED, EvalRecord
from klearlib.run.entry import read_metrics

if TYPE_CHECKING:
    import pandas as pd

    Runs = Mapping[tuple[str, int], Path]


def of_series(runs: Runs, *series: str) -> dict[tuple[str, int], Path]:
    """The runs of the named series alone."""
    return {arm: folder for arm, folder in runs.items() if arm[0] in series}


def metric_curves(runs: Runs, metric: str) -> pd.DataFrame:
    """Columns series, seed, step, value of one metric of metrics.jsonl; steps without it are left
    out.

    Args:
        runs: (series, seed) -> folder of a finished run.
    """
    import pandas as pd

    rows = [
        (series, seed, line["step"], line[metric])
        for (series, seed), folder in runs.items()
        for line in read_metrics(folder)
        if line[metric] is not None
    ]
    return pd.DataFrame(rows, columns=["series", "seed", "step", "value"])


def ratio_curves(runs: Runs, numerator: str, denominator: str) -> pd.DataFrame:
    """Columns series, seed, step, value: one metric over another; steps where that is 0 are left
    out."""
    both = metric_curves(runs, numerator).merge(
        metric_curves(runs, denominator), on=["series", "seed", "step"], suffixes=("", "_total")
    )
    both = both[both["value_total"] > 0]
    return both.assign(value=both["value"] / both["value_total"]).drop(columns="value_total")


def step_values(runs: Runs, series: str, seeds: list[int], metric: str) -> np.ndarray:
    """float [seeds, steps]: one metric of one series at every step."""
    frame = metric_curves(of_series(runs, series), metric)
    wide = frame.pivot(index="seed", columns="step", values="value").loc[seeds]
    return wide.to_numpy(dtype=float)


def off_the_line(values: np.ndarray) -> np.ndarray:
    """[seeds, steps]: each run's values less the straight line through them (least squares)."""
    steps = np.arange(values.shape[1])
    line = np.polynomial.polynomial.polyfit(steps, values.T, min(1, values.shape[1] - 1))
    return values - np.polynomial.polynomial.polyval(steps, line)


def off_the_seeds(values: np.ndarray) -> np.ndarray:
    """[seeds, steps]: each run's values less the mean over the seeds at the same step, times
    sqrt(S / (S - 1)) for S seeds, since each run pulls that mean towards itself. One seed lies on
    its own mean: all zeros, which say nothing."""
    num_seeds = len(values)
    return (values - values.mean(axis=0)) * np.sqrt(num_seeds / max(1, num_seeds - 1))


def gradient_norms(runs: Runs) -> dict[str, list[list[float]]]:
    """Series -> for each seed the gradient norm of every step that had an update.

    A step in which an update was skipped, because its gradient was not finite, is infinite here; a
    run without any update is a single 0. No seed is left out.
    """
    norms: dict[str, list[list[float]]] = {}
    for (series, _), folder in runs.items():
        mine = [
            float("inf") if line["train/skipped_updates"] else line["train/grad_norm"]
            for line in read_metrics(folder)
        ]
        norms.setdefault(series, []).append([norm for norm in mine if norm is not None] or [0.0])
    return norms


def last_fifth(frame: pd.DataFrame) -> float:
    """Mean over the seeds of the mean over the last fifth of the steps; NaN without any.

    frame: of one series, as `metric_curves` gives it.
    """
    late = frame[frame["step"] > 0.8 * frame["step"].max()]
    return float(late.groupby("seed")["value"].mean().mean())


def end_scores(runs: Runs, benchmark: str, *, first: bool = False) -> pd.DataFrame:
    """Columns series, seed, value: avg@n of each run's last evaluation, with `first` its first."""
    scores = score_curves(runs, benchmark)
    wanted = scores.groupby(["series", "seed"])["step"].transform("min" if first else "max")
    return scores[scores["step"] == wanted].drop(columns="step").reset_index(drop=True)


def last_counts(runs: Runs, benchmark: str, *, first: bool = False) -> tuple[int, int]:
    """Over the last evaluations of all runs (with `first` the first ones): responses that could not
    be judged, and truncated."""
    records = _end_records(runs, benchmark, first=first)
    failures = sum(int(np.isin(r.reason, NOT_JUDGED).sum()) for r in records)
    return failures, sum(int(record.truncated.sum()) for record in records)


def last_pass_rate(runs: Runs, benchmark: str) -> float:
    """Mean share of tests passed over all responses of the last evaluations of all runs."""
    return float(np.mean([record.pass_rate.mean() for record in _end_records(runs, benchmark)]))


def _end_records(runs: Runs, benchmark: str, *, first: bool = False) -> list[EvalRecord]:
    end = min if first else max
    found = [evaluations(folder, benchmark) for folder in runs.values()]
    return [load_record(steps[end(steps)]) for steps in found]


def score_curves(runs: Runs, benchmark: str) -> pd.DataFrame:
    """Columns series, seed, step, value: avg@n of every evaluation on `benchmark`."""
    import pandas as pd

    rows = [
        (series, seed, step, avg_at_n(load_record(path).correct))
        for (series, seed), folder in runs.items()
        for step, path in evaluations(folder, benchmark).items()
    ]
    return pd.DataFrame(rows, columns=["series", "seed", "step", "value"])


def evaluations(folder: Path, benchmark: str) -> dict[int, Path]:
    """The evaluations of one run on `benchmark`, by step, in order."""
    found = sorted((folder / "evaluations").glob(f"{benchmark}-*.npz"))
    return {int(path.stem.rpartition("-")[2]): path for path in found}


def last_scores(runs: Runs, series: str, seeds: list[int], benchmark: str) -> np.ndarray:
    """float [seeds, problems]: each problem's mean over its responses at the last step, never the
    best."""
    rows = []
    for seed in seeds:
        steps = evaluations(runs[series, seed], benchmark)
        rows.append(load_record(steps[max(steps)]).correct.mean(axis=1))
    return np.array(rows)


def problem_scores(
    runs: Runs, series: str, seeds: list[int], benchmarks: Iterable[str]
) -> np.ndarray:
    """float [seeds, problems of all benchmarks]; they have equally many, so the mean over problems
    is the mean over benchmarks."""
    parts = [last_scores(runs, series, seeds, name) for name in benchmarks]
    assert len({part.shape for part in parts}) == 1
    return np.concatenate(parts, axis=1)


def common_seeds(runs: Runs, series: list[str]) -> list[int]:
    """The seeds that every one of `series` has finished: only these can be paired."""
    finished = [{seed for name, seed in runs if name == wanted} for wanted in series]
    return sorted(set.intersection(*finished)) if finished else []
