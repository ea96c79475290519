"""Notebook 08: code RL on all problems against those with trusted tests (section 5.2.4, Fig. 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.arms import code_start, filtered_code_start, teacher_pass_rates
from klearlib.experiments.code_rl import code_arm
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params.notebooks import TestFilterParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "08_test_filter"


def rates_stage(params: TestFilterParams) -> Stage:
    """The teacher's pass rates, which the filter decides by."""
    return teacher_pass_rates(
        params.profile, options=params.filter_options, limits=params.rl_options
    )


def arms(params: TestFilterParams) -> dict[tuple[str, int], Stage]:
    """(filter or no_filter, seed) -> its RL run with the soft reward, round-robin over seeds."""
    kept = filtered_code_start(
        params.profile, options=params.filter_options, limits=params.rl_options
    )
    starts = {"filter": kept, "no_filter": code_start(params.profile)}
    return {
        (series, seed): code_arm(params, start, seed=seed, code_reward="soft")
        for seed in params.seeds
        for series, start in starts.items()
    }


def stages(params: TestFilterParams) -> list[Stage]:
    """All that the notebook asks for."""
    return list(arms(params).values())


def plan(params: TestFilterParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: TestFilterParams) -> None:
    """Train all arms that are not done yet, and publish what there is as runs finish."""
    from klearlib.experiments.filtering_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: TestFilterParams) -> dict[tuple[str, int], Path]:
    """(filter or no_filter, seed) -> folder, of the runs that are done."""
    return finished(arms(params))
