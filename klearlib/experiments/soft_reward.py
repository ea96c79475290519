"""Notebook 07: the soft code reward against the hard one (section 5.2.3, Fig. 3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.arms import filtered_code_start
from klearlib.experiments.code_rl import code_arm
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params.notebooks import SoftRewardParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "07_soft_reward"
REWARDS = ("soft", "hard")


def arms(params: SoftRewardParams) -> dict[tuple[str, int], Stage]:
    """(reward, seed) -> its RL run on the problems that the test filter keeps, round-robin over
    seeds."""
    start = filtered_code_start(
        params.profile, options=params.filter_options, limits=params.rl_options
    )
    return {
        (reward, seed): code_arm(params, start, seed=seed, code_reward=reward)
        for seed in params.seeds
        for reward in REWARDS
    }


def stages(params: SoftRewardParams) -> list[Stage]:
    """All that the notebook asks for."""
    return list(arms(params).values())


def plan(params: SoftRewardParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: SoftRewardParams) -> None:
    """Train all arms that are not done yet, and publish what there is as runs finish."""
    from klearlib.experiments.soft_reward_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: SoftRewardParams) -> dict[tuple[str, int], Path]:
    """(reward, seed) -> folder, of the runs that are done."""
    return finished(arms(params))
