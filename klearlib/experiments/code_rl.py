"""What the two code-RL notebooks share: their arms' settings, benchmarks and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments import curves, score_tables
from klearlib.experiments.arms import Start, rl_stage, rule_spec
from klearlib.experiments.benchmarks import curve_titles, standing_for
from klearlib.experiments.publish import departures
from klearlib.experiments.verdict_dicts import decide_ordering, measure
from klearlib.paper import claim, figure
from klearlib.paper.schema import Claim
from klearlib.params import CodeRLParams, FilterOptions, RLOptions
from klearlib.records import OUTCOMES
from klearlib.report.curves import Panel, learning_curves
from klearlib.report.decide import Measured
from klearlib.report.style import series_style
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Runs = Mapping[tuple[str, int], Path]

# It decides the claims about scores.
_DECIDED_ON = "LiveCodeBench V5"
_LEARNING = {
    "rollouts that pass every test, temperature 1": "rollout/correct_rate",
    "share of tests passed": "rollout/pass_rate_mean",
    "groups trained on": "rollout/groups_trained",
    "entropy, nats per token": "train/entropy",
    "response length, tokens": "rollout/response_tokens_mean",
    "gradient norm": "train/grad_norm",
}


def code_arm(params: CodeRLParams, start: Start, *, seed: int, code_reward: str) -> Stage:
    """One code-RL run by GPPO with the settings of `params`; equal arms of both notebooks are one
    run."""
    return rl_stage(
        start,
        label=f"{code_reward} reward, {'all' if start.pool is None else 'kept'} problems",
        rule=rule_spec(
            "gppo", eps_low=params.eps_low, eps_high=params.eps_high, options=params.rl_options
        ),
        seed=seed,
        num_steps=params.num_steps,
        num_problems=params.num_problems,
        group_size=params.group_size,
        mini_batch_problems=params.mini_batch_problems,
        learning_rate=params.learning_rate,
        alpha=params.alpha,
        eval_every=params.eval_every,
        eval_responses=params.eval_responses,
        options=params.rl_options,
        engine=params.engine,
        code_reward=code_reward,
    )


def score_panel(params: CodeRLParams, runs: Runs, paper_figure: str) -> Panel:
    """The paper's curve on LiveCodeBench V5 above ours on the window that stands for it."""
    printed, name = figure(paper_figure), decided_on(params.profile)
    return Panel(
        printed.attrs["metric"],
        f"{curve_titles(params.profile, 'code')[name]}, avg@{params.eval_responses}",
        printed,
        curves.score_curves(runs, name),
        y_label="score",
    )


def decided_on(profile: str) -> str:
    """The benchmark of a profile where the paper has LiveCodeBench V5."""
    return standing_for(profile, _DECIDED_ON)


def score_table(
    runs: Runs, *, profile: str, series: Sequence[str], paper_figure: str, what: str
) -> pd.DataFrame:
    """`score_tables.score_table` of the code benchmarks, and the mean share of tests that the
    programs of the last evaluations pass."""
    benchmarks = curve_titles(profile, "code")
    table = score_tables.score_table(
        runs,
        series=series,
        benchmarks=benchmarks,
        paper_figures={decided_on(profile): paper_figure},
        what=what,
    )
    passed = [
        curves.last_pass_rate(curves.of_series(runs, arm), name)
        for name in benchmarks
        for arm in series
        if curves.of_series(runs, arm)
    ]
    table.insert(table.columns.get_loc("gain"), "end_tests_passed", passed)
    return table


def learning_figure(runs: Runs) -> Figure:
    """What else the runs do: full and partial passes, groups, entropy, length, gradient norm."""
    import pandas as pd

    parts = [curves.metric_curves(runs, metric).assign(panel=t) for t, metric in _LEARNING.items()]
    return learning_curves(pd.concat(parts, ignore_index=True))


def score_comparisons(runs: Runs, about: Claim, *, profile: str) -> list[Measured] | str:
    """The claim's comparisons of last scores, paired by seed and problem; or why there are none."""
    seeds = curves.common_seeds(runs, list(about.arms))
    if not seeds:
        return f"no seed of {' and '.join(about.arms)} is done yet"
    name = decided_on(profile)
    last = {arm: curves.last_scores(runs, arm, seeds, name) for arm in about.arms}
    return [measure(c.name, last[c.a[0]], last[c.b[0]]) for c in about.comparisons]


def ordering_verdict(
    claim_id: str, corrected: list[Measured], *, profile: str, runs: Runs, paper_scale: bool
) -> dict:
    """`decide_ordering`, with a word on responses that could not be judged."""
    verdict = decide_ordering(claim(claim_id), corrected, paper_scale=paper_scale)
    failures, _ = curves.last_counts(runs, decided_on(profile))
    if failures:
        verdict["reason"] = f"{verdict['reason']}. {failures} responses could not be judged"
    return verdict


def common_notes(params: CodeRLParams) -> list[str]:
    """The notes that both notebooks end with."""
    return [
        *departures(params.options, RLOptions),
        *departures(params.test_filter, FilterOptions),
        "A score counts a program as right if it passes every test of its problem. The last step "
        "counts, never the best one. Seeds share the SFT checkpoint.",
        "Clipping by GPPO, with the loss on correct responses at the weight alpha; the paper does "
        "not say what its Figs. 3 and 4 used.",
    ]


def mean_over_runs(runs: Runs, metric: str) -> float:
    """Mean of one metric over the steps and seeds of `runs`."""
    return float(curves.metric_curves(runs, metric)["value"].mean())


def outcome_table(runs: Runs, *, what: str) -> pd.DataFrame:
    """What the tests of the rollouts gave, in shares of all tests run over the steps and seeds of
    each series; and how many rollouts could not be judged."""
    import pandas as pd

    rows = []
    for series in dict.fromkeys(name for name, _ in runs):
        mine = curves.of_series(runs, series)
        row: dict = {what: series_style(series).label, "seeds": len(mine)}
        row |= {name: _share_of_tests(mine, name) for name in OUTCOMES}
        row["not_judged"] = judge_failures(mine)
        rows.append(row)
    return pd.DataFrame(rows, columns=[what, "seeds", *OUTCOMES, "not_judged"])


def judge_failures(runs: Runs) -> int:
    """How many rollouts of these runs could not be judged."""
    return int(curves.metric_curves(runs, "rollout/judge_failures")["value"].sum())


def _share_of_tests(runs: Runs, outcome: str) -> float:
    shares = curves.metric_curves(runs, f"tests/{outcome}_rate")
    counts = curves.metric_curves(runs, "tests/num_run")
    both = shares.merge(counts, on=["series", "seed", "step"], suffixes=("", "_run"))
    total = both["value_run"].sum()
    return float((both["value"] * both["value_run"]).sum() / total) if total else float("nan")
