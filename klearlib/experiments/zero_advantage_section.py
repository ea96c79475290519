"""Verdict, figures and the published section of notebook 09."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.experiments import code_rl, curves
from klearlib.experiments.benchmarks import titles
from klearlib.experiments.demos import lm_loss as lm_loss_demos
from klearlib.experiments.publish import as_table, departures, publish_section
from klearlib.experiments.verdict_dicts import (
    decide_ordering,
    holm_in_notebook,
    is_paper_scale,
    measure,
    not_run,
)
from klearlib.experiments.zero_advantage import (
    FILTERS,
    NOTEBOOK,
    finished_code,
    finished_maths,
    soft_reward_params,
    stages,
)
from klearlib.experiments.zero_advantage_tables import (
    decided_on,
    effect_table,
    reward_table,
    score_table,
    training_table,
)
from klearlib.paper import claim, figure
from klearlib.params import RLOptions, uses_miniature
from klearlib.params.notebooks import ZeroAdvantageParams
from klearlib.report.curves import Panel, learning_curves, paper_beside_ours
from klearlib.report.decide import Measured

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Runs = dict[tuple[str, int], Path]

# Only here no solved group feeds the LM loss; the arms still differ in the number of updates per
# step, which follows from the filter.
_DECIDED_AT = 0.0
_STEADY = "rollout/correct_rate"
_OVER_SEEDS = "over seeds: no filter - filter"
_ENOUGH_SEEDS = 8
_TRAINING = {
    "tokens per step": "train/num_tokens",
    "groups trained": "rollout/groups_trained",
    "gradient norm": "train/grad_norm",
}
_EQUATIONS = (
    {
        "number": "4",
        "latex": r"\tilde{A}^{(j)}=\frac{R^{(j)}-\mathrm{mean}(R^{(1)},\dots,R^{(G)})}"
        r"{\mathrm{std}(R^{(1)},\dots,R^{(G)})}",
        "says": "Where all rewards of a group are equal, every advantage is zero.",
    },
    {
        "number": "7",
        "latex": r"\mathcal{L}(\theta)=\mathbb{E}\left[\frac{1}{\sum_{j=1}^{M} T_j}"
        r"\sum_{j=1}^{M}\sum_{t=1}^{T_j}\min\left(r_t^{(j)}\tilde{A}^{(j)},"
        r"\mathrm{clip}(r_t^{(j)},1-\epsilon_l,1+\epsilon_h)\tilde{A}^{(j)}\right)\right]",
        "says": "Such a group adds nothing to the sum, but its tokens stay in the denominator. "
        "Printed for PPO's clip; the runs clip by GPPO, where the same holds.",
    },
)


def gradient_table(params: ZeroAdvantageParams) -> pd.DataFrame:
    """What a group without advantage does; see `lm_loss_demos.zero_advantage_gradients`."""
    return lm_loss_demos.zero_advantage_gradients(params.alphas)


def curves_figure(params: ZeroAdvantageParams) -> Figure:
    """The paper's Fig. 5 a, b on top, ours below at the alpha that decides the claim; on the right
    our mean reward of all rollouts, which no filter touches."""
    alpha = _DECIDED_AT if _DECIDED_AT in params.alphas else params.alphas[0]
    runs = finished_maths(params)[alpha]
    panels = [
        Panel(
            figure("5a").attrs["metric"],
            f"{_title(params)}, avg@{params.eval_responses}, alpha {alpha:g}",
            figure("5a"),
            curves.score_curves(runs, decided_on(params.profile)),
            "score",
        ),
        Panel(
            "mean reward of the batch",
            "reward, groups trained on",
            figure("5b"),
            curves.metric_curves(runs, "rollout/reward_mean_trained"),
            "reward",
        ),
        Panel(
            "before any filter",
            "reward, all rollouts",
            None,
            curves.metric_curves(runs, "rollout/reward_mean"),
            "reward",
        ),
    ]
    return paper_beside_ours(panels)


def learning_figure(params: ZeroAdvantageParams) -> Figure:
    """Score, tokens, groups and gradient norm over the steps: a row for each comparison."""
    import pandas as pd

    parts = []
    for words, name, runs in _comparisons(params):
        parts.append(curves.score_curves(runs, name).assign(panel=f"{words}: score"))
        parts += [
            curves.metric_curves(runs, metric).assign(panel=f"{words}: {title}")
            for title, metric in _TRAINING.items()
        ]
    return learning_curves(pd.concat(parts, ignore_index=True), max_columns=1 + len(_TRAINING))


def verdicts(params: ZeroAdvantageParams) -> list[dict]:
    """The verdict on C12 by the rule of claims.yaml, at alpha 0, from the runs that are done."""
    about = claim("C12")
    runs = finished_maths(params).get(_DECIDED_AT, {})
    seeds = curves.common_seeds(runs, list(about.arms))
    if not seeds:
        why = "is done yet" if _DECIDED_AT in params.alphas else "was asked for"
        return [not_run(about, f"no seed of both arms at alpha {_DECIDED_AT:g} {why}")]
    corrected = holm_in_notebook({"C12": _measured(params.profile, runs, seeds)})["C12"]
    scale = is_paper_scale(params.profile) and not uses_miniature(params)
    verdict = decide_ordering(about, corrected, paper_scale=scale)
    verdict["settle"] = _settled(verdict["settle"])
    verdict["reason"] += f". Decided at alpha 0 on {_title(params)}"
    if uses_miniature(params):
        verdict["reason"] += ", which stands for AIME 2024"
    failures, _ = curves.last_counts(runs, decided_on(params.profile))
    if failures:
        verdict["reason"] += f". {failures} responses could not be judged"
    return [verdict]


def verdict_table(params: ZeroAdvantageParams) -> pd.DataFrame:
    """The verdict as a table for the notebook."""
    return as_table(verdicts(params))


def publish(params: ZeroAdvantageParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    figures = {
        "fig5": (curves_figure(params), _CAPTION_CURVES, _ALT_CURVES),
        "learning": (learning_figure(params), "What the filter changes.", _ALT_LEARNING),
    }
    soft = soft_reward_params(params)
    return publish_section(
        NOTEBOOK,
        params,
        stages=stages(params),
        title="Groups without advantage, dropped or kept",
        section="5.2.5",
        question="Does leaving out the groups whose advantages are all zero train a better policy, "
        "and more steadily?",
        equations=_EQUATIONS,
        figures=figures if any(runs for _, _, runs in _comparisons(params)) else {},
        tables={
            "scores": (
                score_table(params),
                f"Scores at the first and last step: avg@{params.eval_responses} for maths, "
                f"avg@{soft.eval_responses} for code, temperature 0.6; rate correct at temperature "
                "1 for the validation sets; mean over seeds, 95 % t interval. The paper's last "
                "value stands at both alphas, since it does not say its own.",
            ),
            "effects": (
                effect_table(params),
                "What the filter changes at the last step, 95 % intervals paired by seed and "
                "problem, not corrected.",
            ),
            "training": (training_table(params), "What a step trains on, mean over steps, seeds."),
            "rewards": (
                reward_table(params),
                "Level and steadiness of the reward; the paper's rows are its Fig. 5b.",
            ),
            "gradients": (gradient_table(params), "Three groups by hand and by autograd."),
        },
        verdicts=verdicts(params),
        notes=[
            *departures(params.options, RLOptions),
            "A factor that all updates share is undone by AdamW. What remains of keeping groups "
            "without advantage: mini-batches are diluted unequally; a step has as many updates as "
            "the groups that were drawn allow, not only as the groups that are left; and a "
            "mini-batch without any advantage still moves the weights, by momentum.",
            "The gradient norm without the filter is smaller by the dilution alone, so it is no "
            "sign of steadier training.",
            "At alpha 0 no solved group feeds the loss on correct responses; the arms still differ "
            "in the number of updates per step, which follows from the filter.",
            "The seeds share the mean from which their distances are taken, so that distance is "
            "scaled by sqrt(S / (S - 1)) and no number of seeds is worked out for it.",
            "The paper does not say which alpha Fig. 5 used. At alpha above 0 solved groups that "
            "stay feed the loss on correct responses, so the filter switches two things at once "
            "(D8 of docs/deviations.md).",
            "The paper's reward curve with the filter falls because solved groups leave its mean. "
            "Its counterpart here is the mean reward of the groups that are trained on; the mean "
            "over all rollouts, which no filter touches, stands beside it.",
            "The accuracy filter is the released code's: on a soft reward it also drops groups "
            "whose programs differ in partial credit alone. Those runs have the settings of "
            "notebook 07, whose soft arm is the arm with the advantage filter.",
            "The last step counts, never the best one. Seeds share the SFT checkpoint and, across "
            "arms, the order of problems.",
        ],
    )


_CAPTION_CURVES = (
    "The paper's Fig. 5 and ours, at the alpha of the first panel. Middle: the mean reward of the "
    "groups that the filter leaves, as in the paper; right: of all rollouts, before any filter."
)
_ALT_CURVES = (
    "Six panels. Top: the paper's curves for AIME 2024 and the mean reward with and without the "
    "filter, dashed, and an empty panel. Bottom: ours for the first maths benchmark, the mean "
    "reward of the groups trained on, and the mean reward of all rollouts, mean over seeds with a "
    "95 % band."
)
_ALT_LEARNING = (
    "A row of four panels for each comparison (each alpha, and the soft code reward) over the RL "
    "steps: score, trained tokens per step, groups trained on, gradient norm, with each filter."
)


def _settled(settle: str | None) -> str | None:
    """`settle` without a number of seeds that the distances from a shared mean cannot give."""
    if settle is None:
        return None
    steps = [
        f"{_OVER_SEEDS}: at least {_ENOUGH_SEEDS} seeds" if step.startswith(_OVER_SEEDS) else step
        for step in settle.split("; ")
    ]
    return "; ".join(steps)


def _comparisons(params: ZeroAdvantageParams) -> list[tuple[str, str, Runs]]:
    found = [
        (f"alpha {alpha:g}", decided_on(params.profile), runs)
        for alpha, runs in finished_maths(params).items()
    ]
    return [*found, ("soft reward", code_rl.decided_on(params.profile), finished_code(params))]


def _title(params: ZeroAdvantageParams) -> str:
    return titles(params.profile)[decided_on(params.profile)]


def _measured(profile: str, runs: Runs, seeds: list[int]) -> list[Measured]:
    last = {arm: curves.last_scores(runs, arm, seeds, decided_on(profile)) for arm in FILTERS}
    rates = {arm: curves.step_values(runs, arm, seeds, _STEADY) for arm in FILTERS}
    values = {
        "filter - no filter": last,
        "over steps: no filter - filter": {
            arm: np.abs(curves.off_the_line(rate)) for arm, rate in rates.items()
        },
        _OVER_SEEDS: {arm: np.abs(curves.off_the_seeds(rate)) for arm, rate in rates.items()},
    }
    return [
        measure(c.name, values[c.name][c.a[0]], values[c.name][c.b[0]])
        for c in claim("C12").comparisons
    ]
