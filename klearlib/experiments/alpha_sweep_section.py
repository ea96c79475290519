"""Tables, figures, verdict and the published section of notebook 06."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments import curves, data_scores
from klearlib.experiments.alpha_sweep import NOTEBOOK, arms, finished_runs, series_of
from klearlib.experiments.alpha_sweep_tables import (
    LEARNING,
    RESAMPLES,
    START,
    effect_table,
    optimum_table,
    paper_score,
    place_of,
    positive_share,
    row_label,
    runs_by_row,
    score_table,
)
from klearlib.experiments.benchmarks import counterparts, titles
from klearlib.experiments.demos import lm_loss as lm_loss_demos
from klearlib.experiments.publish import as_table, departures, publish_section
from klearlib.experiments.verdict_dicts import holm_in_notebook, is_paper_scale, not_run
from klearlib.paper import claim
from klearlib.params import AlphaSweepParams, RLOptions, uses_miniature
from klearlib.report.bars import ScorePanel, scores_beside_paper
from klearlib.report.curves import learning_curves

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_EQUATIONS = (
    {
        "number": "13",
        "latex": r"\mathcal{L}_{\mathrm{LM}}(\theta)=-\mathbb{E}\left["
        r"\frac{1}{\sum_{o_i\in\mathcal{T}}|o_i|}\sum_{o_i\in\mathcal{T}}"
        r"\sum_{t=1}^{|o_i|}\log\pi_\theta(a_t\mid s_t)\right]",
        "says": "The loss on the correct responses, a mean over their tokens. Printed with pi for "
        "log pi.",
    },
    {
        "number": "14",
        "latex": r"\mathcal{L}(\theta)=\mathcal{L}_{\mathrm{GPPO}}(\theta)"
        r"+\alpha\,\mathcal{L}_{\mathrm{LM}}(\theta)",
        "says": "Both are minimised; alpha weighs the second.",
    },
)


def gradient_table(params: AlphaSweepParams) -> pd.DataFrame:
    """Autograd of Eq. 14 against its closed form; see `lm_loss_demos.alpha_gradients`."""
    return lm_loss_demos.alpha_gradients(
        params.alphas, eps_low=params.eps_low, eps_high=params.eps_high
    )


def positives_table(params: AlphaSweepParams) -> pd.DataFrame:
    """Both readings of "correct samples"; see `lm_loss_demos.positives`."""
    del params  # the same at every scale
    return lm_loss_demos.positives()


def score_figure(params: AlphaSweepParams) -> Figure:
    """The paper's Table 6 on top, ours below, benchmark by benchmark."""
    import pandas as pd

    rows, panels = runs_by_row(params, finished_runs(params)), []
    labels = [START, *(row_label(alpha) for alpha in params.alphas)]
    for name, printed in counterparts(params.profile, "math").items():
        paper = [("gppo", place_of(label), paper_score(label, printed)) for label in labels]
        frames = [
            curves.end_scores(mine, name, first=label == START).assign(
                series="gppo", group=place_of(label)
            )
            for label, mine in rows.items()
        ]
        columns = ["series", "group", "seed", "value"]
        panels.append(
            ScorePanel(
                f"{printed}, avg@32",
                f"{titles(params.profile)[name]}, avg@{params.eval_responses}",
                pd.DataFrame(paper, columns=["series", "group", "value"]).dropna(),
                pd.concat(frames)[columns] if frames else pd.DataFrame(columns=columns),
            )
        )
    groups = [place_of(label) for label in labels]
    return scores_beside_paper(panels, groups=groups, series=("gppo",), x_label="alpha")


def learning_figure(params: AlphaSweepParams) -> Figure:
    """What alpha does beside scores: see `LEARNING`, and the share of tokens from positives."""
    import pandas as pd

    runs = finished_runs(params)
    parts = [curves.metric_curves(runs, metric).assign(panel=t) for t, metric in LEARNING.items()]
    parts.append(positive_share(runs).assign(panel="share of tokens from positives"))
    return learning_curves(pd.concat(parts, ignore_index=True))


def verdicts(params: AlphaSweepParams) -> list[dict]:
    """The verdict on C8 by the rule of claims.yaml, from the runs that are done."""
    runs, about = finished_runs(params), claim("C8")
    absent = [arm for arm in about.arms if arm not in map(series_of, params.alphas)]
    if absent:
        return [not_run(about, f"no run of {', '.join(absent)}")]
    scored = data_scores.comparisons(
        runs, "C8", profile=params.profile, domain="math", series={arm: arm for arm in about.arms}
    )
    if isinstance(scored, str):
        return [not_run(about, scored)]
    corrected = holm_in_notebook({"C8": scored})["C8"]
    scale = is_paper_scale(params.profile) and not uses_miniature(params)
    about = {"profile": params.profile, "domain": "math"}
    return [data_scores.verdict("C8", corrected, runs=runs, paper_scale=scale, **about)]


def verdict_table(params: AlphaSweepParams) -> pd.DataFrame:
    """The verdict as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: AlphaSweepParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    figures = {
        "table6": (score_figure(params), "The paper's Table 6 and ours.", _ALT_SCORES),
        "learning": (learning_figure(params), "What alpha does beside scores.", _ALTLEARNING),
    }
    return publish_section(
        NOTEBOOK,
        params,
        stages=list(arms(params).values()),
        title="The weight of the loss on correct responses",
        section="5.2.2",
        question="How much of a supervised loss on the policy's own correct responses helps "
        "reinforcement learning?",
        equations=_EQUATIONS,
        figures=figures if finished_runs(params) else {},
        tables={
            "scores": (
                score_table(params),
                f"Table 6, ours beside the paper's: avg@{params.eval_responses} at the last step, "
                "mean over seeds with 95 % t interval. The start is one checkpoint for all seeds, "
                "so its interval is that of sampling alone. While runs are missing, rows may have "
                "different seeds.",
            ),
            "optimum": (
                optimum_table(params),
                "Differences to alpha 0 on the problems of both benchmarks, 95 % intervals paired "
                f"by seed and problem, not corrected; in which share of {RESAMPLES:,} resamples "
                "of seeds and problems each alpha is the best (none with one seed).",
            ),
            "effects": (
                effect_table(params),
                "What alpha does beside scores: mean over the last fifth of the steps and seeds.",
            ),
            "gradients": (gradient_table(params), "Eq. 14 on ten tokens, by autograd."),
            "positives": (positives_table(params), "Who feeds the loss, by two readings (D4)."),
        },
        verdicts=verdicts(params),
        notes=[
            *departures(params.options, RLOptions),
            "Positives are the responses that the verifier judges correct, and the loss is a mean "
            "over their tokens in the optimiser's mini-batch (D4, D5 of docs/deviations.md).",
            "Groups without advantage are dropped before the update, so solved problems feed no "
            "arm's loss; notebook 09 lets them.",
            "Clipping by GPPO. At alpha 0 the arm is the GPPO arm of notebook 05; the paper calls "
            "its row alpha = 0 the standard GRPO loss.",
            "The resamples are centred on what was measured, so four equal arms do not share them "
            "equally: best_in_resamples says how stable the ranking of these runs is and is no "
            "probability that an alpha is the best.",
            "The last step counts, never the best one. Seeds share the SFT checkpoint and, across "
            "arms, the order of problems.",
        ],
    )


_ALT_SCORES = (
    "Two columns, one for each benchmark. Top: the paper's scores of the starting checkpoint and "
    "of alpha 0, 0.05, 0.1 and 0.2. Bottom: ours with 95 % intervals and a dot for each seed."
)
_ALTLEARNING = (
    "Six panels over the RL steps, one line for each alpha: rollouts correct, entropy, response "
    "length, loss on positives, gradient norm, and the share of trained tokens from positives."
)
