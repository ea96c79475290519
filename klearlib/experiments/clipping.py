"""Notebook 05: GPPO, Clip-Higher and CISPO from the same start (section 5.2.1, Fig. 2)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.arms import RULE_NAMES, maths_start
from klearlib.experiments.maths_rl import maths_arm
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params import ClippingParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "05_clipping"


def arms(params: ClippingParams) -> dict[tuple[str, int], Stage]:
    """(rule, seed) -> its RL run, round-robin over seeds: the first seed of every rule comes
    first."""
    start = maths_start(params.profile)
    return {
        (rule, seed): maths_arm(
            params, start, label=RULE_NAMES[rule], seed=seed, alpha=params.alpha, rule=rule
        )
        for seed in params.seeds
        for rule in params.rules
    }


def plan(params: ClippingParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(arms(params).values())


def run(params: ClippingParams) -> None:
    """Train all arms that are not done yet, and publish what there is as runs finish."""
    from klearlib.experiments.clipping_section import publish

    stages = list(arms(params).values())
    train(stages, workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: ClippingParams) -> dict[tuple[str, int], Path]:
    """(rule, seed) -> folder, of the runs that are done."""
    return finished(arms(params))
