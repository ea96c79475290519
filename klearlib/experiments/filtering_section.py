"""Tables, figures, verdicts and the published section of notebook 08."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.filters import kept_by_pass_rate
from klearlib.curation.pass_rates import RATES, PassRate, read_pass_rates
from klearlib.experiments import code_rl
from klearlib.experiments.demos import judging as judging_demo
from klearlib.experiments.filtering import NOTEBOOK, arms, finished_runs, rates_stage
from klearlib.experiments.publish import as_table, publish_section, runs_dir
from klearlib.experiments.verdict_dicts import holm_in_notebook, is_paper_scale, not_run
from klearlib.miniature.code_flaws import FLAWS
from klearlib.paper import claim
from klearlib.params import uses_miniature
from klearlib.params.notebooks import TestFilterParams
from klearlib.report.bars import pass_rate_histogram
from klearlib.report.curves import paper_beside_ours
from klearlib.run.stage import is_done

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# The filter at other thresholds, from the same responses: (threshold, keep an equal rate).
_RULES = ((0.25, False), (0.5, False), (0.5, True), (0.75, False))
_LEVEL = 0.95
_PLANTED = (
    "The flaws of the miniature are planted, so precision and recall are known exactly; benchmarks "
    "and validation problems have none. The kinds of flaws, their share and the teacher's strength "
    "are the miniature's and decide how much there is to gain."
)
_UNKNOWN = (
    "Which tests of real problems are flawed is not known, so the filter has no precision and no "
    "recall here. Validation problems are not filtered."
)
_EQUATIONS = (
    {
        "number": "5.2.4",
        "latex": r"\text{keep }x\iff\frac{1}{16}\sum_{i=1}^{16}"
        r"\mathbb{1}[\text{response } i \text{ of the teacher passes every test of } x]>0.5",
        "says": "A problem stays in the pool if a teacher's programs pass its tests more often "
        "than not.",
    },
)


def flawed_demo(params: TestFilterParams) -> pd.DataFrame:
    """What flawed tests do to the rewards; see `judging_demo.flawed_tests`."""
    del params  # the same at every scale
    return judging_demo.flawed_tests()


def filter_table(params: TestFilterParams) -> pd.DataFrame:
    """The filter against the planted truth, at the threshold of `params` and at others. On real
    problems nobody knows the truth: what is kept and dropped is all that there is.

    One row for each rule: problems kept and dropped, precision (the share of dropped problems whose
    tests are flawed), recall (the share of flawed problems that are dropped) and what is left of
    the flaws in the kept ones, each with its 95 % Wilson interval. Empty before the teacher's
    responses are judged.
    """
    import pandas as pd

    columns = ["rule", "kept", "dropped", "flawed_dropped", "sound_dropped"]
    for name in ("precision", "recall", "flawed_share_kept"):
        columns += [name, f"{name}_low", f"{name}_high"]
    measured = _rates_and_truth(params)
    if measured is None:
        return pd.DataFrame(columns=columns)
    rates, truth = measured
    names = list(rates)
    options = params.filter_options
    chosen = (options.threshold, options.keep_equal)
    rows = []
    for threshold, keep_equal in dict.fromkeys([chosen, *_RULES]):
        kept = kept_by_pass_rate(names, rates, threshold=threshold, keep_equal=keep_equal)
        dropped = kept.count(False)
        sign = ">=" if keep_equal else ">"
        used = " (used)" if (threshold, keep_equal) == chosen else ""
        row = [f"pass rate {sign} {threshold:g}{used}", kept.count(True), dropped]
        if not truth:
            rows.append([*row, *[float("nan")] * (len(columns) - len(row))])
            continue
        flawed = [truth[name]["is_flawed"] for name in names]
        both = list(zip(flawed, kept, strict=True))
        hits = both.count((True, False))
        row += [hits, both.count((False, False))]
        for part, total in (
            (hits, dropped),
            (hits, flawed.count(True)),
            (both.count((True, True)), kept.count(True)),
        ):
            row += _share(part, total)
        rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def flaw_table(params: TestFilterParams) -> pd.DataFrame:
    """Recall for each kind of planted flaw, and the sound problems that are lost with them; the
    teacher's mean pass rate, its mean share of tests passed, and how many of its responses could
    not be judged."""
    import pandas as pd

    columns = ["tests", "what is wrong", "problems", "dropped", "share", "share_low", "share_high"]
    columns += ["mean_pass_rate", "mean_tests_passed", "not_judged"]
    measured = _rates_and_truth(params)
    if measured is None:
        return pd.DataFrame(columns=columns)
    rates, truth = measured
    options = params.filter_options
    kept = kept_by_pass_rate(
        list(truth), rates, threshold=options.threshold, keep_equal=options.keep_equal
    )
    stays = dict(zip(truth, kept, strict=True))
    rows = []
    for flaw, words in {"": "nothing", **FLAWS}.items():
        mine = [name for name, row in truth.items() if row["flaw"] == flaw]
        if mine:
            dropped = sum(not stays[name] for name in mine)
            mean = sum(rates[name].pass_rate for name in mine) / len(mine)
            share = _share(dropped, len(mine))
            tests = sum(rates[name].mean_tests_passed or 0.0 for name in mine) / len(mine)
            lost = sum(rates[name].num_not_judged for name in mine)
            rows.append([flaw or "sound", words, len(mine), dropped, *share, mean, tests, lost])
    return pd.DataFrame(rows, columns=columns)


def pass_rate_figure(params: TestFilterParams) -> Figure:
    """The teacher's pass rates on problems with sound and with flawed tests, and the threshold."""
    measured = _rates_and_truth(params)
    rates, truth = measured if measured is not None else ({}, {})
    groups = {"sound tests": False, "flawed tests": True}
    found = {
        words: [rates[n].pass_rate for n, row in truth.items() if row["is_flawed"] is is_flawed]
        for words, is_flawed in groups.items()
    }
    if rates and not truth:
        found = {"all problems": [rate.pass_rate for rate in rates.values()]}
    return pass_rate_histogram(
        found,
        num_responses=params.filter_options.teacher_responses,
        threshold=params.filter_options.threshold,
    )


def curves_figure(params: TestFilterParams) -> Figure:
    """The paper's Fig. 4 on top, ours below."""
    runs = finished_runs(params)
    return paper_beside_ours([code_rl.score_panel(params, runs, "4")])


def learning_figure(params: TestFilterParams) -> Figure:
    """What else the runs do; see `code_rl.learning_figure`."""
    return code_rl.learning_figure(finished_runs(params))


def score_table(params: TestFilterParams) -> pd.DataFrame:
    """Scores at the first and the last step; see `code_rl.score_table`."""
    return code_rl.score_table(
        finished_runs(params),
        profile=params.profile,
        series=claim("C11").arms,
        paper_figure="4",
        what="training problems",
    )


def verdicts(params: TestFilterParams) -> list[dict]:
    """The verdict on C11 by the rule of claims.yaml, from the runs that are done."""
    runs, paper_scale = finished_runs(params), is_paper_scale(params.profile)
    scored = code_rl.score_comparisons(runs, claim("C11"), profile=params.profile)
    if isinstance(scored, str):
        return [not_run(claim("C11"), scored)]
    corrected = holm_in_notebook({"C11": scored})["C11"]
    return [
        code_rl.ordering_verdict(
            "C11", corrected, profile=params.profile, runs=runs, paper_scale=paper_scale
        )
    ]


def verdict_table(params: TestFilterParams) -> pd.DataFrame:
    """The verdict as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: TestFilterParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    return publish_section(
        NOTEBOOK,
        params,
        stages=list(arms(params).values()),
        title="Code RL with and without the test filter",
        section="5.2.4",
        question="Does leaving out problems whose tests a teacher's programs seldom pass improve "
        "code RL, and are those the problems whose tests are flawed?",
        equations=_EQUATIONS,
        figures=_figures(params) if finished_runs(params) else {},
        tables={
            "filter": (
                filter_table(params),
                "The filter against the planted truth; 95 % Wilson intervals.",
            ),
            "flaws": (flaw_table(params), "What is dropped, by kind of planted flaw."),
            "scores": (
                score_table(params),
                f"Scores at the first and last step: avg@{params.eval_responses} at temperature "
                "0.6 for the two windows, rate right at temperature 1 for the validation set; "
                "right is a program that passes every test; mean over seeds, 95 % t interval.",
            ),
        },
        verdicts=verdicts(params),
        notes=[
            _PLANTED if uses_miniature(params) else _UNKNOWN,
            "The filter cannot tell flawed tests from a problem that the teacher cannot solve: "
            "what it drops beside the flawed ones are the teacher's hard problems.",
            "Both arms use the soft reward and take the same number of steps, so the arm with the "
            "filter sees fewer problems more often, and other ones at each step.",
            *code_rl.common_notes(params),
        ],
    )


def _figures(params: TestFilterParams) -> dict[str, tuple[Figure, str, str]]:
    responses = params.filter_options.teacher_responses
    return {
        "fig4": (
            curves_figure(params),
            "The paper's Fig. 4 and ours.",
            "Two panels. Top: the paper's LiveCodeBench V5 curves with and without the filter, "
            "dashed. Bottom: ours for the first code window, mean over seeds with a 95 % band.",
        ),
        "pass_rates": (
            pass_rate_figure(params),
            f"The teacher's pass rate over {responses} responses a problem, and the threshold.",
            "Histogram of the teacher's pass rates on problems with sound and with flawed "
            "tests, with the threshold as a vertical line.",
        ),
        "learning": (
            learning_figure(params),
            "What the runs do beside scores.",
            "Six panels over the RL steps: full passes, share of tests passed, groups trained "
            "on, entropy, response length and gradient norm with and without the filter.",
        ),
    }


def _rates_and_truth(params: TestFilterParams) -> tuple[dict[str, PassRate], dict] | None:
    """The teacher's pass rates and, by the same ids, which tests are flawed, as far as anyone
    knows; None before they are measured."""
    stage = rates_stage(params)
    if not is_done(stage, runs_dir()):
        return None
    rates = read_pass_rates(stage.folder(runs_dir()) / RATES)
    if not uses_miniature(params):
        return rates, {}
    path = stage.inputs["problems"].folder(runs_dir()) / "truth.jsonl"
    with path.open(encoding="utf-8") as file:
        truth = {row["id"]: row for row in map(json.loads, file)}
    assert truth.keys() == rates.keys()
    return rates, truth


def _share(part: int, total: int) -> list[float]:
    """part / total with its Wilson interval; NaN where there is nothing to divide."""
    from scipy.stats import binomtest

    if total == 0:
        return [float("nan")] * 3
    interval = binomtest(part, total).proportion_ci(_LEVEL, method="wilson")
    return [part / total, float(interval.low), float(interval.high)]
