"""Notebook 04: the best source alone or with more of them, equal in size (Tables 4 and 5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.data_arms import DataArms, Recipe
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params.notebooks import TopKParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "04_topk_diversity"
NUM_SOURCES = {"math": (1, 2, 4, 6, 8, 10), "code": (1, 2, 4, 6)}
"""How many sources each arm of a domain has."""


def series(domain: str) -> dict[str, str]:
    """Arm of claims.yaml -> series of this notebook.

    >>> series("code")["top2"]
    'code_top2'
    """
    return {f"top{most}": f"{domain}_top{most}" for most in NUM_SOURCES[domain]}


def chosen(params: TopKParams) -> dict[str, Stage]:
    """Series -> the stage that chooses its examples."""
    data = DataArms(params.profile, params.data_options)
    sizes = {"math": params.num_examples, "code": params.code_examples}
    return {
        f"{domain}_top{most}": data.chosen_sources(domain, most=most, size=sizes[domain])
        for domain, counts in NUM_SOURCES.items()
        for most in counts
    }


def recipes(params: TopKParams) -> dict[str, Recipe]:
    """Domain -> how its students are trained and measured."""
    shared = {"num_epochs": params.num_epochs, "normalizer": params.normalizer}
    return {
        "math": Recipe(
            batch_size=params.batch_size,
            learning_rate=params.learning_rate,
            eval_responses=params.eval_responses,
            **shared,
        ),
        "code": Recipe(
            batch_size=params.code_batch_size,
            learning_rate=params.code_learning_rate,
            eval_responses=params.code_eval_responses,
            **shared,
        ),
    }


def arms(params: TopKParams) -> dict[tuple[str, int], Stage]:
    """(series, seed) -> its measured student, round-robin over seeds."""
    data, how = DataArms(params.profile, params.data_options), recipes(params)
    examples = chosen(params)
    return {
        (name, seed): data.student(
            domain_of(name), stage, how[domain_of(name)], label=name.replace("_", " "), seed=seed
        )
        for seed in params.seeds
        for name, stage in examples.items()
    }


def domain_of(series_name: str) -> str:
    """The domain of a series.

    >>> domain_of("code_top2")
    'code'
    """
    return series_name.partition("_")[0]


def stages(params: TopKParams) -> list[Stage]:
    """All that the notebook asks for."""
    return list(arms(params).values())


def plan(params: TopKParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: TopKParams) -> None:
    """Train and measure all arms that are not done yet, publishing what there is as they finish."""
    from klearlib.experiments.topk_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: TopKParams) -> dict[tuple[str, int], Path]:
    """(series, seed) -> folder, of the students that are measured."""
    return finished(arms(params))
