"""Notebook 02: SFT with and without wrong responses, for easy and hard problems (Table 2)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klearlib.errors import ParameterError
from klearlib.experiments.benchmarks import deciding
from klearlib.experiments.origins import Origin, wrong_words
from klearlib.experiments.score_tables import seed_interval
from klearlib.experiments.shown import Figure, Rows, figure, table
from klearlib.experiments.students import Beside, Student, StudentExperiment
from klearlib.params.data import GradedParams, StudentParams
from klearlib.params.fields import amended, parameter
from klearlib.params.options import NOT_STATED
from klearlib.report.bars import scores_beside_paper
from klearlib.report.section import Counterpart
from klearlib.run.stage import Stage

IN_TABLE_2 = {0.0: ("only_true", "Only True"), 0.3: ("mixed", "Mixed")}
"""Shares of wrong responses that stand beside the columns of Table 2 and decide C4 and C15, with
their marks in the figure and the paper's words."""
DOSED = ("easy", "hard")
"""The difficulties that have every share."""


@dataclass(frozen=True)
class CorrectnessParams(StudentParams, GradedParams):
    """Notebook 02: correct responses only, or wrong ones among them (Section 5.1.1, Table 2)."""

    teacher: str = parameter(
        "middle",
        choices=("weak", "middle", "strong"),
        help="whose responses",
        paper="DeepSeek-R1 (OpenR1-Math-220k)",
        place="Table 2",
    )
    num_responses = amended(paper="2 to 4 (OpenR1-Math-220k)")
    wrong_shares: list[float] = parameter(
        [0.0, 0.3],
        minimum=0.0,
        maximum=0.9,
        unique=True,
        help="shares of wrong examples, at easy and at hard problems",
        paper=NOT_STATED,
    )

    def __post_init__(self) -> None:
        if missing := [share for share in IN_TABLE_2 if share not in self.wrong_shares]:
            raise ParameterError(
                f"wrong_shares must hold {' and '.join(map(str, IN_TABLE_2))}, which the claims "
                f"compare: add {', '.join(map(str, missing))}"
            )


def graded_responses(
    data: Origin, teacher: str, p: CorrectnessParams, difficulty: str, share: float
):
    """The stage that chooses a teacher's examples: this share wrong, from this difficulty."""
    return data.chosen_responses(
        teacher,
        num_responses=p.num_responses,
        size=p.num_examples,
        wrong_share=share,
        difficulty=difficulty,
        easy_from=p.easy_from,
        reference_responses=p.reference_responses,
    )


class DataCorrectness(StudentExperiment):
    """Easy and hard problems, each with several shares of wrong responses, and all problems."""

    name = "02_data_correctness"
    title = "Correct responses only, or wrong ones too"
    section = "5.1.1"
    question = (
        "Should a student see wrong responses too, and does the answer depend on how hard the "
        "problems are?"
    )
    Params = CorrectnessParams
    counterparts = (
        Counterpart("Table 2", "correct or mixed responses, by difficulty", ("table2",)),
    )
    beside = (Beside("math", 2, ("C4", "C15")),)
    printed = "Table 2"

    @cached_property
    def doses(self) -> dict[str, tuple[str, float]]:
        """Series -> the difficulty of its problems and its share of wrong responses."""
        doses = [*itertools.product(DOSED, self.params.wrong_shares)]
        doses += itertools.product(["overall"], IN_TABLE_2)
        return {f"{difficulty}_wrong_{share:g}": (difficulty, share) for difficulty, share in doses}

    @cached_property
    def students(self) -> tuple[Student, ...]:
        found = []
        for series, (difficulty, share) in self.doses.items():
            mark, words = IN_TABLE_2.get(share, (f"wrong_{share:g}", ""))
            column = words and f"{difficulty.title()} / {words}"
            label = f"{difficulty}, {wrong_words(share)}"
            found.append(Student(series, label, column, group=difficulty, mark=mark))
        return tuple(found)

    def students_in(self, seed: int) -> Sequence[Student]:
        has_easy = self.can_run("C4", seed)
        return [each for each in self.students if has_easy or each.group != "easy"]

    def choose(self, data: Origin, student: Student) -> Stage:
        p = self.params
        return graded_responses(data, p.teacher, p, *self.doses[student.series])

    @figure(
        "The paper's Table 2 and ours.",
        alt="Two columns, one for each benchmark. Top: the paper's scores for easy, hard and all "
        "problems, correct responses only against mixed. Bottom: ours with 95 % intervals.",
    )
    def table2(self) -> Figure:
        marks = [mark for mark, _ in IN_TABLE_2.values()]
        groups = (*DOSED, "overall")
        return scores_beside_paper(self.panels(), groups=groups, series=marks, x_label="problems")

    def decided(self, series: str, seeds: Sequence[int]) -> np.ndarray:
        """float [seeds]: the score of each run of a series on what decides the claims."""
        benchmarks = deciding("C4", self.params.profile, "math")
        return self.runs.replicate_scores(series, seeds, benchmarks, statistic="last")

    @table(
        "The score against the share of wrong responses, on what decides the claims: mean over "
        "seeds with 95 % t interval, and the difference from correct responses only, paired by "
        "seed.",
        columns="problems, wrong_share, seeds, score, low, high, minus_only_true, minus_low, "
        "minus_high",
        name="doses",
    )
    def dose_table(self) -> Rows:
        for series, (difficulty, share) in self.doses.items():
            if seeds := self.runs.common_seeds([series]):
                row = [difficulty, share, len(seeds), *seed_interval(self.decided(series, seeds))]
                pure, against = f"{difficulty}_wrong_0", [float("nan")] * 3
                if share and (both := self.runs.common_seeds([series, pure])):
                    minus = self.decided(series, both) - self.decided(pure, both)
                    against = seed_interval(minus, lowest=-1.0)
                yield [*row, *against]

    def notes(self) -> list[str]:
        p = self.params
        return [
            "The verifier labels responses. A problem is easy if the reference, the maths SFT "
            f"checkpoint, solves it in at least {p.easy_from:g} of {p.reference_responses} "
            "responses; in the paper a model annotates difficulty, with no threshold printed.",
            "Where an arm has fewer problems than examples, K-center over prompts takes further "
            "responses to the same problems; right and wrong responses are chosen separately.",
            "The share of wrong responses is the same for easy and for hard problems, so that "
            "difficulty is not mistaken for dose; the paper does not state it for its mixtures.",
            *self.common_notes(f"{len(self.students)} arms"),
        ]
