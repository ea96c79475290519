"""Notebook 06: how much of the loss on correct responses (section 5.2.2, Table 6)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.arms import maths_start
from klearlib.experiments.maths_rl import maths_arm
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params.notebooks import AlphaSweepParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "06_alpha_sweep"


def series_of(alpha: float) -> str:
    """The name of an arm, as in claims.yaml.

    >>> series_of(0.0), series_of(0.05)
    ('alpha_0', 'alpha_0.05')
    """
    return f"alpha_{alpha:g}"


def arms(params: AlphaSweepParams) -> dict[tuple[str, int], Stage]:
    """(series, seed) -> its RL run by GPPO, round-robin over seeds; alpha 0 is 05's GPPO arm."""
    start = maths_start(params.profile)
    return {
        (series_of(alpha), seed): maths_arm(
            params,
            start,
            label=f"alpha {alpha:g}",
            seed=seed,
            learning_rate=params.learning_rate,
            alpha=alpha,
        )
        for seed in params.seeds
        for alpha in params.alphas
    }


def stages(params: AlphaSweepParams) -> list[Stage]:
    """All that the notebook asks for."""
    return list(arms(params).values())


def plan(params: AlphaSweepParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: AlphaSweepParams) -> None:
    """Train all arms that are not done yet, and publish what there is as runs finish."""
    from klearlib.experiments.alpha_sweep_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: AlphaSweepParams) -> dict[tuple[str, int], Path]:
    """(series, seed) -> folder, of the runs that are done."""
    return finished(arms(params))
