"""Notebook 03: students of a weak, a middle and a strong teacher (Table 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from klearlib.experiments.origins import Origin
from klearlib.experiments.results import Arm
from klearlib.experiments.score_tables import Row
from klearlib.experiments.shown import Figure, figure
from klearlib.experiments.students import Beside, Student, StudentExperiment
from klearlib.params.data import AnsweredParams, StudentParams
from klearlib.report.bars import scores_beside_paper
from klearlib.report.section import Counterpart
from klearlib.run.stage import Stage

_IN_TABLE_3 = {"weak": "QwQ-32B", "middle": "DeepSeek-R1-0120", "strong": "DeepSeek-R1-0528"}


@dataclass(frozen=True)
class TeacherParams(StudentParams, AnsweredParams):
    """Notebook 03: students of teachers of graded strength (Section 5.1.2, Table 3)."""


class TeacherAblation(StudentExperiment):
    """One arm for each teacher, with equal prompts, and right and wrong responses as they come."""

    name = "03_teacher_ablation"
    title = "Students of weak, middle and strong teachers"
    section = "5.1.2"
    question = (
        "Does a student learn more from a stronger teacher, at equal prompts and equal numbers of "
        "examples?"
    )
    Params = TeacherParams
    counterparts = (Counterpart("Table 3", "students of several teachers", ("table3",)),)
    students = tuple(
        Student(name, f"{name} teacher", column, group=name) for name, column in _IN_TABLE_3.items()
    )
    beside = (Beside("math", 3, ("C5",)),)
    printed = "Table 3"

    def choose(self, data: Origin, student: Student) -> Stage:
        how = {"num_responses": self.params.num_responses, "size": self.params.num_examples}
        return data.chosen_responses(student.series, **how)

    @cached_property
    def measured_teachers(self) -> dict[tuple[str, int], Stage]:
        """(teacher, 0) -> the teacher itself on the benchmarks."""
        how, found = {"seed": 0, "num_responses": self.params.eval_responses}, {}
        for name in _IN_TABLE_3:
            model, label = self.data.stages[f"teacher_{name}"], f"the {name} teacher itself"
            found[name, 0] = self.data.measured("math", model, label=f"benchmarks: {label}", **how)
        return found

    def run_sets(self) -> dict[str, Mapping[Arm, Stage]]:
        return super().run_sets() | {"teachers": self.measured_teachers}

    @figure(
        "The paper's Table 3 and ours; grey: the teachers themselves.",
        alt="Two columns, one for each benchmark. Top: the paper's scores of the students of three "
        "teachers. Bottom: ours with 95 % intervals, and the teachers' own scores.",
    )
    def table3(self) -> Figure:
        names, marks, themselves = tuple(_IN_TABLE_3), ("student", "teacher"), self.done("teachers")
        teachers = [Row(name, themselves.of(name), {}, name, "teacher") for name in names]
        panels = self.panels(teachers)
        return scores_beside_paper(panels, groups=names, series=marks, x_label="teacher")

    def notes(self) -> list[str]:
        return [
            "The teachers have the student's size and are trained from the same base model, for "
            "longer and on responses of graded quality; the paper's are far larger than the "
            "student and differ in more than strength.",
            "All responses are used, right or wrong, as in the mixed arms of notebook 02.",
            *self.common_notes("three arms"),
        ]
