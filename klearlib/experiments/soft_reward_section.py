"""Tables, figures, verdicts and the published section of notebook 07."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.experiments import code_rl, curves
from klearlib.experiments.demos import judging as judging_demo
from klearlib.experiments.publish import as_table, publish_section
from klearlib.experiments.soft_reward import NOTEBOOK, REWARDS, arms, finished_runs
from klearlib.experiments.verdict_dicts import (
    decide_ordering,
    holm_in_notebook,
    is_paper_scale,
    measure,
    not_run,
)
from klearlib.paper import claim, figure
from klearlib.params.notebooks import SoftRewardParams
from klearlib.report.curves import Panel, paper_beside_ours
from klearlib.report.decide import Measured
from klearlib.report.style import series_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Runs = dict[tuple[str, int], Path]

_EQUATIONS = (
    {
        "number": "5.2.3",
        "latex": r"R_{\mathrm{soft}}=\frac{1}{K}\sum_{k=1}^{K}\mathbb{1}[\text{test } k "
        r"\text{ passed}]\qquad R_{\mathrm{hard}}=\mathbb{1}[\text{all } K \text{ tests passed}]",
        "says": "The soft reward is the share of tests passed, the hard one is all or nothing.",
    },
    {
        "number": "4",
        "latex": r"\tilde{A}^{(j)}=\frac{R^{(j)}-\mathrm{mean}(R^{(1)},\dots,R^{(G)})}"
        r"{\mathrm{std}(R^{(1)},\dots,R^{(G)})}",
        "says": "A group whose rewards are all equal teaches nothing: the hard reward makes such "
        "groups out of all problems that are not solved yet.",
    },
)


def judged_programs(params: SoftRewardParams) -> pd.DataFrame:
    """Eight programs in the sandbox; see `judging_demo.judged_programs`."""
    options = params.rl_options
    return judging_demo.judged_programs(
        timeout_s=options.test_timeout_s, memory_mb=options.test_memory_mb
    )


def group_signal(params: SoftRewardParams) -> pd.DataFrame:
    """Advantages of one group under both rewards; see `judging_demo.group_signal`."""
    del params  # the same at every scale
    return judging_demo.group_signal()


def curves_figure(params: SoftRewardParams) -> Figure:
    """The paper's Fig. 3 a, b on top, ours below; and the spread of rewards inside a batch."""
    runs = finished_runs(params)
    panels = [
        code_rl.score_panel(params, runs, "3a"),
        Panel(
            "mean reward of the batch",
            "mean reward of the batch",
            figure("3b"),
            curves.metric_curves(runs, "rollout/reward_mean"),
            "reward",
        ),
        Panel(
            "spread inside a batch",
            "spread inside a batch",
            None,
            curves.metric_curves(runs, "rollout/reward_std"),
            "standard deviation",
        ),
    ]
    return paper_beside_ours(panels)


def learning_figure(params: SoftRewardParams) -> Figure:
    """What else the runs do; see `code_rl.learning_figure`."""
    return code_rl.learning_figure(finished_runs(params))


def score_table(params: SoftRewardParams) -> pd.DataFrame:
    """Scores at the first and the last step; see `code_rl.score_table`."""
    return code_rl.score_table(
        finished_runs(params),
        profile=params.profile,
        series=REWARDS,
        paper_figure="3a",
        what="reward",
    )


def reward_table(params: SoftRewardParams) -> pd.DataFrame:
    """How the reward behaves in training: its level and every reading of its variance.

    Mean over seeds of: the mean reward of the first and of the last fifth of the steps; the
    standard deviation and the mean distance of the batch means from a straight line through the
    run; the standard deviation over the rollouts of a step, and inside a group, both averaged over
    steps; the share of rollouts that pass every test and the share of tests passed; the mean number
    of groups that are trained on. The paper's row beside each has what Fig. 3b shows.
    """
    import pandas as pd

    runs, rows = finished_runs(params), []
    for reward in REWARDS:
        mine = curves.of_series(runs, reward)
        if mine:
            rows.append({"reward": series_style(reward).label, "seeds": len(mine), **_ours(mine)})
    for reward in REWARDS:
        printed = figure("3b")
        means = printed.loc[printed["series"].map(printed.attrs["keys"]) == reward, "value"]
        label = f"paper: {series_style(reward).label}"
        rows.append({"reward": label, "seeds": 1, **_levels(means.to_numpy()[None, :])})
    return pd.DataFrame(rows)


def outcome_table(params: SoftRewardParams) -> pd.DataFrame:
    """What the tests gave; see `code_rl.outcome_table`."""
    return code_rl.outcome_table(finished_runs(params), what="reward")


def verdicts(params: SoftRewardParams) -> list[dict]:
    """The verdicts on C9 and C10 by the rules of claims.yaml, from the runs that are done."""
    runs, paper_scale = finished_runs(params), is_paper_scale(params.profile)
    scored = code_rl.score_comparisons(runs, claim("C9"), profile=params.profile)
    if isinstance(scored, str):
        return [not_run(claim(name), scored) for name in ("C9", "C10")]
    corrected = holm_in_notebook({"C9": scored, "C10": _spread_comparisons(runs)})
    spreads = decide_ordering(claim("C10"), corrected["C10"], paper_scale=paper_scale)
    if failures := code_rl.judge_failures(runs):
        spreads["reason"] = f"{spreads['reason']}. {failures} rollouts could not be judged"
    scores = code_rl.ordering_verdict(
        "C9", corrected["C9"], profile=params.profile, runs=runs, paper_scale=paper_scale
    )
    return [scores, spreads]


def verdict_table(params: SoftRewardParams) -> pd.DataFrame:
    """The verdicts as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: SoftRewardParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    return publish_section(
        NOTEBOOK,
        params,
        stages=list(arms(params).values()),
        title="Soft against hard reward for code",
        section="5.2.3",
        question="Does paying for the share of tests passed train a better coder than paying for "
        "all or nothing, and does the reward vary less?",
        equations=_EQUATIONS,
        figures=_figures(params) if finished_runs(params) else {},
        tables={
            "judged": (
                judged_programs(params),
                "Eight programs for one specification, run in the sandbox against 16 tests.",
            ),
            "scores": (
                score_table(params),
                f"Scores at the first and last step: avg@{params.eval_responses} at temperature "
                "0.6 for the two windows, rate right at temperature 1 for the validation set; "
                "right is a program that passes every test; mean over seeds, 95 % t interval.",
            ),
            "rewards": (
                reward_table(params),
                "Level and spread of the reward in training, mean over seeds.",
            ),
            "outcomes": (outcome_table(params), "What the tests of all rollouts gave, in shares."),
        },
        verdicts=verdicts(params),
        notes=[
            "Both arms train on the problems that the test filter of notebook 08 keeps, so the "
            "soft arm is that notebook's filtered arm.",
            "Both rewards are on the scale from 0 to 1. The paper's curves dip below 0, so another "
            "scale was plotted there (perhaps the released code's 2 p - 1, option `code_scores`); "
            "advantages do not depend on it.",
            *code_rl.common_notes(params),
        ],
    )


def _figures(params: SoftRewardParams) -> dict[str, tuple[Figure, str, str]]:
    return {
        "fig3": (curves_figure(params), "The paper's Fig. 3 and ours.", _ALT_CURVES),
        "learning": (
            learning_figure(params),
            "What the runs do beside scores.",
            "Six panels over the RL steps: full passes, share of tests passed, groups trained "
            "on, entropy, response length and gradient norm under both rewards.",
        ),
    }


_ALT_CURVES = (
    "Six panels. Top: the paper's curves for LiveCodeBench V5 and the mean reward under soft and "
    "hard reward, dashed, and an empty panel. Bottom: ours for the first code window, the mean "
    "reward, and the standard deviation of the reward inside a batch, mean over seeds with a 95 % "
    "band."
)


def _spread_comparisons(runs: Runs) -> list[Measured]:
    about = claim("C10")
    seeds = curves.common_seeds(runs, list(about.arms))

    def values(arm: str, metric: str) -> np.ndarray:
        return curves.step_values(runs, arm, seeds, metric)

    spread = {
        "batch means: hard - soft": lambda arm: np.abs(
            curves.off_the_line(values(arm, "rollout/reward_mean"))
        ),
        "inside a batch: hard - soft": lambda arm: values(arm, "rollout/reward_std"),
    }
    return [
        measure(c.name, spread[c.name](c.a[0]), spread[c.name](c.b[0])) for c in about.comparisons
    ]


def _levels(means: np.ndarray) -> dict[str, float]:
    """What follows from the batch means [seeds, steps] alone."""
    fifth = max(1, means.shape[1] // 5)
    off = curves.off_the_line(means)
    return {
        "first_fifth": means[:, :fifth].mean(),
        "last_fifth": means[:, -fifth:].mean(),
        "batch_means_std": off.std(axis=1).mean(),
        "batch_means_distance": np.abs(off).mean(),
    }


def _ours(runs: Runs) -> dict[str, float]:
    (series,) = {name for name, _ in runs}
    seeds = sorted(seed for _, seed in runs)
    row = _levels(curves.step_values(runs, series, seeds, "rollout/reward_mean"))
    row["std_in_batch"] = code_rl.mean_over_runs(runs, "rollout/reward_std")
    row["std_in_group"] = code_rl.mean_over_runs(runs, "rollout/reward_std_in_group")
    row["all_tests_passed"] = code_rl.mean_over_runs(runs, "rollout/correct_rate")
    row["tests_passed"] = code_rl.mean_over_runs(runs, "rollout/pass_rate_mean")
    drawn = curves.metric_curves(runs, "rollout/groups_trained")["value"]
    row["groups_trained"] = drawn.mean()
    return row
