"""Notebook 09: groups without advantage, dropped or kept (section 5.2.5, Fig. 5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.arms import filtered_code_start, maths_start
from klearlib.experiments.catalogue import check
from klearlib.experiments.code_rl import code_arm
from klearlib.experiments.maths_rl import maths_arm
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params import load_profile
from klearlib.params.notebooks import SoftRewardParams, ZeroAdvantageParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

    Arms = dict[tuple[str, int], Stage]

NOTEBOOK = "09_zero_advantage"
FILTERS = {"filter": "advantage", "no_filter": "off"}
"""Arm -> its value of the option `zero_advantage_filter`."""


def soft_reward_params(params: ZeroAdvantageParams) -> SoftRewardParams:
    """The settings of the runs on the soft code reward: those of the profile's notebook 07.

    Raises:
        ParameterError: the profile has no such file, or it is wrong.
    """
    (notebook,) = params.reads
    return check(notebook, load_profile(params.profile, notebook))


def maths_arms(params: ZeroAdvantageParams) -> dict[float, Arms]:
    """alpha -> (filter, seed) -> its RL run by GPPO; with filter, the arms of 05 and 06."""
    start = maths_start(params.profile)
    return {
        alpha: {
            (arm, seed): maths_arm(
                params,
                start,
                label=f"{arm.replace('_', ' ')}, alpha {alpha:g}",
                seed=seed,
                learning_rate=params.learning_rate,
                alpha=alpha,
                options=replace(params.rl_options, zero_advantage_filter=option),
            )
            for seed in params.seeds
            for arm, option in FILTERS.items()
        }
        for alpha in params.alphas
    }


def code_arms(params: ZeroAdvantageParams) -> Arms:
    """(filter, seed) -> its RL run on the soft code reward; "advantage" is 07's soft arm, if that
    notebook has the same engine."""
    soft = replace(soft_reward_params(params), engine=params.engine)
    start = filtered_code_start(params.profile, options=soft.filter_options, limits=soft.rl_options)
    return {
        (name, seed): replace(
            code_arm(
                replace(soft, options=soft.options | {"zero_advantage_filter": name}),
                start,
                seed=seed,
                code_reward="soft",
            ),
            label=f"soft reward, {name} filter, seed {seed}",
        )
        for seed in params.seeds
        for name in params.soft_filters
    }


def stages(params: ZeroAdvantageParams) -> list[Stage]:
    """All runs, the first seed of every arm first."""
    groups = [*maths_arms(params).values(), code_arms(params)]
    return [
        stage
        for seed in params.seeds
        for arms in groups
        for (_, mine), stage in arms.items()
        if mine == seed
    ]


def plan(params: ZeroAdvantageParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: ZeroAdvantageParams) -> None:
    """Train all arms that are not done yet, and publish what there is as runs finish."""
    from klearlib.experiments.zero_advantage_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_maths(params: ZeroAdvantageParams) -> dict[float, dict[tuple[str, int], Path]]:
    """alpha -> (filter, seed) -> folder, of the maths runs that are done."""
    return {alpha: finished(arms) for alpha, arms in maths_arms(params).items()}


def finished_code(params: ZeroAdvantageParams) -> dict[tuple[str, int], Path]:
    """(filter, seed) -> folder, of the code runs that are done."""
    return finished(code_arms(params))
