"""Notebook 03: students of a weak, a middle and a strong teacher (Table 3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.experiments.data_arms import DataArms, Recipe
from klearlib.experiments.running import finished, plan_table, train
from klearlib.miniature.teachers import TEACHERS
from klearlib.params.notebooks import TeacherParams
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = "03_teacher_ablation"


def responses(params: TeacherParams) -> dict[str, Stage]:
    """Teacher -> its judged responses to the same problems."""
    data = DataArms(params.profile, params.data_options)
    return {name: data.responses(name, num_responses=params.num_responses) for name in TEACHERS}


def chosen(params: TeacherParams) -> dict[str, Stage]:
    """Teacher -> the stage that chooses the examples of its students, right or wrong."""
    data = DataArms(params.profile, params.data_options)
    return {
        name: data.chosen_responses(
            name, num_responses=params.num_responses, size=params.num_examples
        )
        for name in TEACHERS
    }


def teachers(params: TeacherParams) -> dict[tuple[str, int], Stage]:
    """(teacher, 0) -> the teacher itself on the benchmarks."""
    data = DataArms(params.profile, params.data_options)
    return {
        (name, 0): data.measured(
            "math",
            data.stages[f"teacher_{name}"],
            label=f"benchmarks: the {name} teacher itself",
            seed=0,
            num_responses=params.eval_responses,
        )
        for name in TEACHERS
    }


def arms(params: TeacherParams) -> dict[tuple[str, int], Stage]:
    """(teacher, seed) -> its measured student, round-robin over seeds."""
    data = DataArms(params.profile, params.data_options)
    recipe = Recipe.of(params)
    examples = chosen(params)
    return {
        (name, seed): data.student("math", stage, recipe, label=f"{name} teacher", seed=seed)
        for seed in params.seeds
        for name, stage in examples.items()
    }


def stages(params: TeacherParams) -> list[Stage]:
    """All that the notebook asks for: the students, and the teachers' own scores."""
    return [*arms(params).values(), *teachers(params).values()]


def plan(params: TeacherParams) -> pd.DataFrame:
    """The stages of this notebook; see `running.plan_table`."""
    return plan_table(stages(params))


def run(params: TeacherParams) -> None:
    """Train and measure all arms that are not done yet, publishing what there is as they finish."""
    from klearlib.experiments.teachers_section import publish

    train(stages(params), workers=params.workers, publish=lambda: publish(params))


def finished_runs(params: TeacherParams) -> dict[tuple[str, int], Path]:
    """(teacher, seed) -> folder, of the students that are measured."""
    return finished(arms(params))
