"""Notebook 02: SFT on correct responses only or on all, for easy and hard problems (Table 2)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.data_arms import DataArms, Recipe
from klearlib.experiments.running import finished, plan_table, train
from klearlib.params.notebooks import CorrectnessParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "02_data_correctness"
DIFFICULTIES = ("easy", "hard", "overall")
# Series' last words -> the filter of the stage ``select``.
FILTERS = {"only_true": "correct", "mixed": "mixed"}
SERIES = tuple(f"{difficulty}_{name}" for difficulty in DIFFICULTIES for name in FILTERS)


def chosen(params: CorrectnessParams) -> dict[str, Stage]:
    """Series -> the stage that chooses its examples."""
    data = DataArms(params.profile, params.data_options)
    return {
        f"{difficulty}_{name}": data.chosen_responses(
            params.teacher,
            num_responses=params.num_responses,
            size=params.num_examples,
            correctness=correctness,
            difficulty=difficulty,
            easy_from=params.easy_from,
            reference_responses=params.reference_responses,
        )
        for difficulty in DIFFICULTIES
        for name, correctness in FILTERS.items()
    }


def pool(params: CorrectnessParams) -> dict[str, Stage]:
    """The responses that all arms choose from, and those of the reference."""
    data = DataArms(params.profile, params.data_options)
    return {
        "teacher": data.responses(params.teacher, num_responses=params.num_responses),
        "reference": data.responses("reference", num_responses=params.reference_responses),
    }


def arms(params: CorrectnessParams) -> dict[tuple[str, int], Stage]:
    """(series, seed) -> its measured student, round-robin over seeds."""
    data = DataArms(params.profile, params.data_options)
    examples = chosen(params)
    return {
        (series, seed): data.student(
            "math", stage, Recipe.of(params), label=series.replace("_", " "), seed=seed
        )
        for seed in params.seeds
        for series, stage in examples.items()
    }


def stages(params: CorrectnessParams) -> list[Stage]:
    """All that the notebook asks for."""
    return list(arms(params).values())


def plan(params: CorrectnessParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: CorrectnessParams) -> None:
    """Train and measure all arms that are not done yet, publishing what there is as they finish."""
    from klearlib.experiments.correctness_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: CorrectnessParams) -> dict[tuple[str, int], Path]:
    """(series, seed) -> folder, of the students that are measured."""
    return finished(arms(params))
