"""Figures, verdict and the published section of notebook 10."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments import (
    headline_drawing,
    headline_tables,
    headline_verdict,
)
from klearlib.experiments.demos import yarn as headline_yarn
from klearlib.experiments.headline import NOTEBOOK, finished_training, stages
from klearlib.experiments.headline_scores import Gathered, gathered
from klearlib.experiments.publish import as_table, departures, publish_section
from klearlib.params import DataOptions, FilterOptions, RLOptions, uses_miniature
from klearlib.params.notebooks import HeadlineParams

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_EQUATIONS = (
    {
        "number": "avg@n",
        "latex": r"\mathrm{avg@}n=\frac{1}{P}\sum_{p=1}^{P}\frac{1}{n}\sum_{i=1}^{n}"
        r"\mathbb{1}[\text{response } i\text{ to problem } p\text{ is right}]",
        "says": "The score of a model on a benchmark of P problems, n responses to each.",
    },
    {
        "number": "YaRN",
        "latex": r"\theta'_i=(1-\gamma_i)\,\frac{\theta_i}{s}+\gamma_i\,\theta_i\qquad "
        r"\sqrt{\tfrac{1}{t}}=0.1\ln s+1",
        "says": "Positions up to s times the trained ones. gamma is 1 for rotary pairs that turn "
        "at least 32 times over the trained positions (kept), 0 for those that turn at most once "
        "(divided by s), and linear in the pair's number between. Cosines and sines are multiplied "
        "by sqrt(1/t), attention logits by its square.",
    },
)


def yarn_demo(params: HeadlineParams) -> pd.DataFrame:
    """YaRN in two configs against its formula; see `headline_yarn.yarn_demo`."""
    return headline_yarn.yarn_demo(params)


def score_figure(params: HeadlineParams) -> Figure:
    """The paper's Fig. 1 and ours; see `headline_drawing.score_figure`."""
    return headline_drawing.score_figure(gathered(params))


def learning_figure(params: HeadlineParams) -> Figure:
    """Both phases of RL; see `headline_drawing.learning_figure`."""
    return headline_drawing.learning_figure(finished_training(params))


def table1(params: HeadlineParams) -> pd.DataFrame:
    """The paper's Table 1 and ours; see `headline_tables.table1`."""
    return headline_tables.table1(gathered(params))


def phase_table(params: HeadlineParams) -> pd.DataFrame:
    """What each phase adds; see `headline_tables.phase_table`."""
    return headline_tables.phase_table(gathered(params))


def yarn_table(params: HeadlineParams) -> pd.DataFrame:
    """What YaRN changes at both budgets; see `headline_tables.yarn_table`."""
    return headline_tables.yarn_table(gathered(params))


def pipeline_table(params: HeadlineParams) -> pd.DataFrame:
    """What goes through the pipeline; see `headline_tables.pipeline_table`."""
    return headline_tables.pipeline_table(gathered(params))


def verdicts(params: HeadlineParams) -> list[dict]:
    """The verdict on C13 by the rule of claims.yaml: of the final model of the first seed alone,
    never of the best one."""
    return headline_verdict.decided(gathered(params))


def verdict_table(params: HeadlineParams) -> pd.DataFrame:
    """The verdict as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: HeadlineParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    have = gathered(params)
    ns = f"avg@{params.maths_responses} for maths, avg@{params.code_responses} for code"
    return publish_section(
        NOTEBOOK,
        params,
        stages=stages(params),
        title="The whole pipeline and its scores",
        section="3, 4",
        question="What do fine-tuning, RL on maths and RL on code add one after the other, and "
        "what does a longer budget add at the end?",
        equations=_EQUATIONS,
        figures=_figures(have),
        tables={
            "table1": (
                headline_tables.table1(have),
                "Every row of the paper's Table 1, in percent (dagger: measured by its authors), "
                f"and ours: {ns}, mean over seeds, 95 % interval of sampling noise.",
            ),
            "phases": (
                headline_tables.phase_table(have),
                "What each phase adds, as fractions, paired by seed and problem, with 95 % "
                "intervals; the paper's gain is that of its Table 1.",
            ),
            "yarn": (
                headline_tables.yarn_table(have),
                "The final model with YaRN against itself without: on all problems, and on those "
                "whose responses without YaRN all fit into the base budget (95 % intervals).",
            ),
            "scores": (
                headline_tables.score_table(have),
                f"The same scores as fractions: {ns}; intervals of sampling noise (problems and "
                "models fixed) and over seeds.",
            ),
            "pipeline": (headline_tables.pipeline_table(have), "What goes through the pipeline."),
            "yarn_demo": (
                yarn_demo(params),
                "YaRN's rotary frequencies in two configs, against the formula.",
            ),
        },
        verdicts=headline_verdict.decided(have),
        notes=[
            *departures(params.options, RLOptions),
            *departures(params.test_filter, FilterOptions),
            *departures(params.data_options, DataOptions),
            "One base model and one SFT checkpoint serve all seeds; the seeds differ in both "
            "phases of RL and in sampling. The last step counts, never the best one, and of "
            "several seeds the first decides C13.",
            *_origin_notes(have),
            "Scores with and without YaRN are different settings and stand in rows of their own: "
            "the factor is static and changes short outputs too.",
            "The paper does not print the steps of either phase, nor a score between them.",
        ],
    )


def _origin_notes(have: Gathered) -> list[str]:
    """What holds for the miniature alone, or for real models alone."""
    if not uses_miniature(have.params):
        return [
            "The paper's SFT data are 1.5M responses of DeepSeek-R1-0528 that are not published; "
            "SFT has examples of the named data sets here, whose responses other teachers wrote.",
        ]
    return [
        f"SFT also has {have.made.joint.long_examples} right long chains made by the suite, since "
        "the sources have none; the base model has already seen such chains as chat turns, so it "
        "is no raw base model, and maths C is no test of generalisation to longer chains.",
        "This profile does not measure the real benchmarks, so C13 cannot be decided here: what "
        "stands for them is never held against the paper's numbers.",
    ]


def _figures(have: Gathered) -> dict[str, tuple[Figure, str, str]]:
    figures = {}
    if any(have.records.values()):
        figures["fig1"] = (
            headline_drawing.score_figure(have),
            "The paper's Fig. 1 and ours.",
            "Horizontal bars for five benchmarks. Top: the paper's six models, Klear-Reasoner-8B "
            "first. Bottom: our base model, SFT checkpoint, and the models after RL on maths and "
            "on code, the last one also with YaRN and with a longer budget.",
        )
    if runs := finished_training(have.params):
        figures["learning"] = (
            headline_drawing.learning_figure(runs),
            "Both phases of RL.",
            "Six panels over the steps of each phase: rollouts that are right, reward, the "
            "validation set before and after, entropy, response length and gradient norm, for RL "
            "on maths and on code.",
        )
    return figures
