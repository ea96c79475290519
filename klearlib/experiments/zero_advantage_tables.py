"""The tables of notebook 09."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.experiments import code_rl, curves, score_tables
from klearlib.experiments.benchmarks import (
    counterparts,
    curve_titles,
    standing_for,
    titles,
)
from klearlib.experiments.zero_advantage import FILTERS, finished_code, finished_maths
from klearlib.paper import figure
from klearlib.params.notebooks import ZeroAdvantageParams
from klearlib.report.style import series_style

if TYPE_CHECKING:
    import pandas as pd

    Runs = dict[tuple[str, int], Path]

_SOFT = "soft code reward"
_MEANS = {
    "tokens": "train/num_tokens",
    "updates": "train/num_updates",
    "groups_trained": "rollout/groups_trained",
    "all_correct": "rollout/groups_all_correct",
    "all_wrong": "rollout/groups_all_wrong",
    "grad_norm": "train/grad_norm",
}


def decided_on(profile: str) -> str:
    """The benchmark of a profile where the paper has AIME 2024 (Fig. 5a): it decides the claim."""
    return standing_for(profile, "AIME 2024")


def score_table(params: ZeroAdvantageParams) -> pd.DataFrame:
    """Scores at the first and the last step of all arms, by comparison; see
    `score_tables.score_table`."""
    import pandas as pd

    parts, deciding = [], decided_on(params.profile)
    for alpha, runs in finished_maths(params).items():
        table = score_tables.score_table(
            runs,
            series=list(FILTERS),
            benchmarks=curve_titles(params.profile, "math"),
            paper_figures={deciding: "5a"},
            what="arm",
        )
        table.insert(0, "comparison", _words(alpha))
        parts.append(table)
    table = score_tables.score_table(
        finished_code(params),
        series=params.soft_filters,
        benchmarks=curve_titles(params.profile, "code"),
        paper_figures={},
        what="arm",
    )
    table.insert(0, "comparison", _SOFT)
    return pd.concat([part for part in [*parts, table] if len(part)] or [table], ignore_index=True)


def effect_table(params: ZeroAdvantageParams) -> pd.DataFrame:
    """What the filter changes at the last step, paired by seed and problem with a 95 % interval.

    For each alpha: filter - no filter on each maths benchmark and on both together. For each alpha
    but 0: how much more the filter changes there than at alpha 0 (the confound of D8). For the soft
    code reward: advantage filter - accuracy filter, and, where it runs, - no filter. All in
    fractions, not corrected; what the interval is over: see `score_tables.difference`.
    """
    import pandas as pd

    columns = ["difference", "benchmark", "seeds", "problems", "value", "low", "high"]
    columns += ["interval_over", "paper"]
    called, rows, maths = titles(params.profile), [], finished_maths(params)
    domains = ("math", "code")
    on_maths, on_code = (tuple(counterparts(params.profile, name)) for name in domains)
    deciding = (decided_on(params.profile),)
    for alpha, runs in maths.items():
        for benchmarks in (*((name,) for name in on_maths), on_maths):
            name = f"filter - no filter, {_words(alpha)}"
            # The paper does not say its alpha, so its difference stands beside each.
            paper = _paper_difference() if benchmarks == deciding else float("nan")
            rows += _row(name, benchmarks, called, [(runs, "filter", "no_filter", 1)], paper)
    for alpha in maths:
        if alpha and 0.0 in maths:
            name = f"the same, {_words(alpha)} less {_words(0.0)}"
            signed = [
                (maths[alpha], "filter", "no_filter", 1),
                (maths[0.0], "filter", "no_filter", -1),
            ]
            rows += _row(name, on_maths, called, signed)
    code = finished_code(params)
    for other, words in (("accuracy", "accuracy"), ("off", "no filter")):
        if not {"advantage", other} <= set(params.soft_filters):
            continue
        for benchmarks in (*((name,) for name in on_code), on_code):
            name = f"advantage - {words}, {_SOFT}"
            rows += _row(name, benchmarks, called, [(code, "advantage", other, 1)])
    return pd.DataFrame(rows, columns=columns)


def training_table(params: ZeroAdvantageParams) -> pd.DataFrame:
    """What a step trains on, means over steps and seeds: tokens, optimiser updates, groups, the
    share of groups that are solved and failed, the gradient norm, and the share of trained tokens
    from correct responses; updates that were skipped and rollouts that could not be judged are
    sums."""
    import pandas as pd

    rows = []
    for words, arm, runs in _arms(params):
        row: dict = {"comparison": words, "arm": series_style(arm).label, "seeds": len(runs)}
        row |= {
            name: float(curves.metric_curves(runs, metric)["value"].mean())
            for name, metric in _MEANS.items()
        }
        share = curves.ratio_curves(runs, "train/positive_tokens", "train/num_tokens")
        row["positive_share"] = float(share["value"].mean())
        skipped = curves.metric_curves(runs, "train/skipped_updates")["value"].sum()
        rows.append(
            row | {"skipped_updates": int(skipped), "not_judged": code_rl.judge_failures(runs)}
        )
    columns = ["comparison", "arm", "seeds", *_MEANS, "positive_share", "skipped_updates"]
    return pd.DataFrame(rows, columns=[*columns, "not_judged"])


def reward_table(params: ZeroAdvantageParams) -> pd.DataFrame:
    """Level and steadiness in training.

    Means over seeds of: the mean reward of the groups trained on in the first and the last fifth of
    the steps and its mean distance from a straight line; the same of the reward of all rollouts;
    the mean distance of the rate correct of all rollouts from a straight line, and from the mean
    over the seeds at the same step (what the claim is decided by at alpha 0). The paper's rows are
    its Fig. 5b, steps 31 to 100 in both arms.
    """
    import pandas as pd

    rows = []
    for words, arm, runs in _arms(params):
        seeds = sorted(seed for _, seed in runs)
        row: dict = {"comparison": words, "arm": series_style(arm).label, "seeds": len(seeds)}
        trained = curves.metric_curves(runs, "rollout/reward_mean_trained")
        each = [run.sort_values("step")["value"].to_numpy() for _, run in trained.groupby("seed")]
        row |= _levels(each, "trained")
        everything = curves.step_values(runs, arm, seeds, "rollout/reward_mean")
        row |= _levels(list(everything), "all")
        rate = curves.step_values(runs, arm, seeds, "rollout/correct_rate")
        row["correct_off_line"] = float(np.abs(curves.off_the_line(rate)).mean())
        # One seed lies on its own mean: nothing can be seen.
        row["correct_off_seeds"] = (
            float(np.abs(curves.off_the_seeds(rate)).mean()) if len(seeds) > 1 else float("nan")
        )
        rows.append(row)
    printed = figure("5b")
    names = printed["series"].map(printed.attrs["keys"])
    last = min(printed[names == arm]["step"].max() for arm in FILTERS)
    for arm in FILTERS:
        means = printed.loc[(names == arm) & (printed["step"] <= last), "value"].to_numpy()
        label = series_style(arm).label
        row = {"comparison": "paper, Fig. 5b", "arm": label, "seeds": 1}
        rows.append(row | _levels([means], "trained"))
    return pd.DataFrame(rows)


def _arms(params: ZeroAdvantageParams) -> list[tuple[str, str, Runs]]:
    """(comparison, arm, its runs) of every arm that has a finished run."""
    found = [
        (_words(alpha), arm, curves.of_series(runs, arm))
        for alpha, runs in finished_maths(params).items()
        for arm in FILTERS
    ]
    code = finished_code(params)
    found += [(_SOFT, arm, curves.of_series(code, arm)) for arm in params.soft_filters]
    return [(words, arm, runs) for words, arm, runs in found if runs]


def _words(alpha: float) -> str:
    return f"alpha {alpha:g}"


def _row(name: str, benchmarks, called, signed, paper: float = float("nan")) -> list[list]:
    """The row of a sum of differences a - b with the given signs; none without a common seed."""
    seeds = sorted(
        set.intersection(*(set(curves.common_seeds(runs, [a, b])) for runs, a, b, _ in signed))
    )
    if not seeds:
        return []
    scores = curves.problem_scores
    total = sum(
        sign * (scores(runs, a, seeds, benchmarks) - scores(runs, b, seeds, benchmarks))
        for runs, a, b, sign in signed
    )
    found = score_tables.difference(total, np.zeros_like(total))
    where = called[benchmarks[0]] if len(benchmarks) == 1 else "both"
    interval = [found.low, found.high, found.interval_over]
    return [[name, where, *total.shape, found.value, *interval, paper]]


def _paper_difference() -> float:
    return score_tables.paper_last("5a", "filter") - score_tables.paper_last("5a", "no_filter")


def _levels(runs: list[np.ndarray], what: str) -> dict[str, float]:
    """Of each run's values in the order of its steps; runs may have different numbers of steps."""
    if not runs:
        return {}
    fifths = [max(1, len(run) // 5) for run in runs]
    firsts = [run[:fifth].mean() for run, fifth in zip(runs, fifths, strict=True)]
    lasts = [run[-fifth:].mean() for run, fifth in zip(runs, fifths, strict=True)]
    distances = [np.abs(curves.off_the_line(run[None, :])).mean() for run in runs]
    return {
        f"{what}_first_fifth": float(np.mean(firsts)),
        f"{what}_last_fifth": float(np.mean(lasts)),
        f"{what}_off_line": float(np.mean(distances)),
    }
