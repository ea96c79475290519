"""The tables of notebook 06, and what its figures draw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.evaluate.bootstrap import best_shares
from klearlib.experiments import curves
from klearlib.experiments.alpha_sweep import finished_runs, series_of
from klearlib.experiments.benchmarks import counterparts, titles
from klearlib.experiments.score_tables import difference, seed_interval
from klearlib.paper import table
from klearlib.params.notebooks import AlphaSweepParams

if TYPE_CHECKING:
    import pandas as pd

    Runs = dict[tuple[str, int], Path]

START = "Starting Checkpoint"
RESAMPLES = 10_000
_TABLE = 6
LEARNING = {
    "rollouts correct, temperature 1": "rollout/correct_rate",
    "entropy, nats per token": "train/entropy",
    "response length, tokens": "rollout/response_tokens_mean",
    "LM loss on positives, before alpha": "train/lm_loss",
    "gradient norm": "train/grad_norm",
}


def score_table(params: AlphaSweepParams) -> pd.DataFrame:
    """Table 6: one row for each benchmark and alpha, and for the starting checkpoint: mean over
    seeds with its 95 % t interval, the paper's cell beside it, all in fractions; how many responses
    could not be judged (they count as wrong) and how many were truncated. The mean over both
    benchmarks comes last: it is what the claim is decided by."""
    import pandas as pd

    columns = ["benchmark", "arm", "seeds", "score", "low", "high"]
    columns += ["paper_benchmark", "paper", "not_judged", "truncated"]
    runs, rows, means = finished_runs(params), [], []
    called = titles(params.profile)
    for label, mine in runs_by_row(params, runs).items():
        first = label == START
        parts, printed, counts = [], [], []
        for name, paper_name in counterparts(params.profile, "math").items():
            scores = curves.end_scores(mine, name, first=first)
            parts.append(scores.set_index("seed")["value"])
            printed.append(paper_score(label, paper_name))
            counts.append(curves.last_counts(mine, name, first=first))
            row = [called[name], _words(label), len(mine), *seed_interval(parts[-1])]
            rows.append([*row, paper_name, printed[-1], *counts[-1]])
        total = [sum(column) for column in zip(*counts, strict=True)]
        mean = seed_interval(sum(parts) / len(parts))
        row = ["mean of both", _words(label), len(mine), *mean, "mean of both"]
        means.append([*row, float(np.mean(printed)), *total])
    order = list(called.values())
    rows.sort(key=lambda row: order.index(row[0]))
    return pd.DataFrame([*rows, *means], columns=columns)


def optimum_table(params: AlphaSweepParams) -> pd.DataFrame:
    """Which alpha is best, and how sure that is, on the problems of both benchmarks together.

    One row for each alpha with the seeds that all alphas have: mean score; difference to alpha 0
    with its 95 % interval, paired by seed and problem, not corrected, and what the interval is
    over (`score_tables.difference`); the share of bootstrap resamples of seeds and problems in
    which it has the best mean (`best_shares`), none with one seed, which cannot be resampled; the
    paper's mean of both benchmarks and its difference to alpha 0.
    """
    import pandas as pd

    columns = ["alpha", "seeds", "problems", "score", "minus_alpha_0", "low", "high"]
    columns += ["interval_over", "best_in_resamples", "paper", "paper_minus_alpha_0"]
    runs = finished_runs(params)
    names = {series_of(alpha): alpha for alpha in params.alphas}
    seeds = curves.common_seeds(runs, list(names))
    if not seeds:
        return pd.DataFrame(columns=columns)
    benchmarks = list(counterparts(params.profile, "math"))
    scores = {name: curves.problem_scores(runs, name, seeds, benchmarks) for name in names}
    best = best_shares(scores, num_resamples=RESAMPLES) if len(seeds) > 1 else {}
    rows = []
    for name, alpha in names.items():
        against = [None, None, None, ""]
        if alpha and (zero := series_of(0.0)) in scores:
            found = difference(scores[name], scores[zero])
            against = [found.value, found.low, found.high, found.interval_over]
        paper, paper_zero = (_paper_mean(params, row_label(each)) for each in (alpha, 0.0))
        row = [alpha, *scores[name].shape, float(scores[name].mean()), *against, best.get(name)]
        rows.append([*row, paper, paper - paper_zero if alpha else None])
    numbers = [column for column in columns[3:] if column != "interval_over"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))


def effect_table(params: AlphaSweepParams) -> pd.DataFrame:
    """What alpha does beside scores: means over the last fifth of the steps and over seeds."""
    import pandas as pd

    runs = finished_runs(params)
    rows = []
    for alpha in params.alphas:
        mine = curves.of_series(runs, series_of(alpha))
        if not mine:
            continue
        row = {"alpha": alpha, "seeds": len(mine)}
        for metric in LEARNING.values():
            name = metric.partition("/")[2].removesuffix("_mean")
            row[name] = curves.last_fifth(curves.metric_curves(mine, metric))
        row["positive_share"] = curves.last_fifth(positive_share(mine))
        rows.append(row)
    names = [metric.partition("/")[2].removesuffix("_mean") for metric in LEARNING.values()]
    return pd.DataFrame(rows, columns=["alpha", "seeds", *names, "positive_share"])


def runs_by_row(params: AlphaSweepParams, runs: Runs) -> dict[str, Runs]:
    """The paper's row -> the runs behind it; the start is the same in all arms of a seed."""
    found = {row_label(alpha): curves.of_series(runs, series_of(alpha)) for alpha in params.alphas}
    start: Runs = {}
    for (_, seed), folder in runs.items():
        start.setdefault(("start", seed), folder)
    return {label: mine for label, mine in ({START: start} | found).items() if mine}


def row_label(alpha: float) -> str:
    return f"alpha = {alpha:g}"


def _words(label: str) -> str:
    return "starting checkpoint" if label == START else label


def place_of(label: str) -> str:
    return "start" if label == START else label.removeprefix("alpha = ")


def paper_score(label: str, benchmark: str) -> float:
    """The paper's cell as a fraction; NaN for an alpha that it has not."""
    printed = table(_TABLE)[benchmark.replace(" ", "")]
    return float(printed[label]) / 100 if label in printed else float("nan")


def _paper_mean(params: AlphaSweepParams, label: str) -> float:
    names = counterparts(params.profile, "math").values()
    return float(np.mean([paper_score(label, name) for name in names]))


def positive_share(runs: Runs) -> pd.DataFrame:
    return curves.ratio_curves(runs, "train/positive_tokens", "train/num_tokens")
