"""Notebook 02: SFT on correct responses only or on all, for easy and hard problems (Table 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from klearlib.experiments.demos import data_rules
from klearlib.experiments.equations import SFT
from klearlib.experiments.experiment import Rows, figure, table
from klearlib.experiments.origins import Origin
from klearlib.experiments.students import Beside, Student, StudentExperiment
from klearlib.params.data import GradedParams, StudentParams
from klearlib.params.fields import amended, parameter
from klearlib.report.bars import scores_beside_paper
from klearlib.report.section import Counterpart, Equation
from klearlib.run.stage import Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIFFICULTIES = ("easy", "hard", "overall")
# Series' last words -> the filter of the stage ``select``, and the paper's words.
FILTERS = {"only_true": ("correct", "Only True"), "mixed": ("mixed", "Mixed")}


@dataclass(frozen=True)
class CorrectnessParams(StudentParams, GradedParams):
    """Notebook 02: correct responses only, or all of them (Section 5.1.1, Table 2)."""

    teacher: str = parameter(
        "middle",
        choices=("weak", "middle", "strong"),
        help="whose responses",
        paper="DeepSeek-R1 (OpenR1-Math-220k)",
        place="Table 2",
    )
    num_responses = amended(paper="2 to 4 (OpenR1-Math-220k)")


class DataCorrectness(StudentExperiment):
    """Six arms: easy, hard and all problems, each with correct responses only and with all."""

    name = "02_data_correctness"
    title = "Correct responses only, or all of them"
    section = "5.1.1"
    question = (
        "Should a student see wrong responses too, and does the answer depend on how hard the "
        "problems are?"
    )
    Params = CorrectnessParams
    counterparts = (
        Counterpart("Table 2", "correct or mixed responses, by difficulty", ("table2",)),
    )
    equations = (
        Equation(
            "8",
            SFT,
            "No label and no sign: a wrong response is taught as a right one is. Printed with pi "
            "for log pi.",
        ),
    )
    students = tuple(
        Student(
            f"{difficulty}_{name}",
            f"{difficulty}, {words.lower()}",
            f"{difficulty.title()} / {words}",
            group=difficulty,
            mark=name,
        )
        for difficulty in DIFFICULTIES
        for name, (_, words) in FILTERS.items()
    )
    beside = (Beside("math", 2, ("C4", "C15")),)
    printed = "Table 2"

    def choose(self, data: Origin) -> dict[str, Stage]:
        p = self.params
        return {
            each.series: data.chosen_responses(
                p.teacher,
                num_responses=p.num_responses,
                size=p.num_examples,
                correctness=FILTERS[each.mark][0],
                difficulty=each.group,
                easy_from=p.easy_from,
                reference_responses=p.reference_responses,
            )
            for each in self.students
        }

    @cached_property
    def judged(self) -> dict[str, Stage]:
        """The responses that all arms choose from, and those of the reference."""
        p = self.params
        return {
            "teacher": self.data.responses(p.teacher, num_responses=p.num_responses),
            "reference": self.data.responses("reference", num_responses=p.reference_responses),
        }

    @figure(
        "table2",
        "The paper's Table 2 and ours.",
        alt="Two columns, one for each benchmark. Top: the paper's scores for easy, hard and all "
        "problems, correct responses only against all. Bottom: ours with 95 % intervals.",
    )
    def table2(self) -> Figure:
        return scores_beside_paper(
            self.panels(), groups=DIFFICULTIES, series=tuple(FILTERS), x_label="problems"
        )

    @table(
        "labels",
        "What the arms choose from: the teacher's responses by the reference's difficulty.",
        columns="difficulty, problems, share, responses, correct, correct_share",
    )
    def labels(self) -> Rows:
        """Problems, responses and correct ones; empty before the responses are judged."""
        from klearlib.curation.pass_rates import difficulties

        rates = {name: self.rates(stage) for name, stage in self.judged.items()}
        if not all(rates.values()):
            return
        names = list(rates["teacher"])
        found = difficulties(names, rates["reference"], easy_from=self.params.easy_from)
        for wanted in (*dict.fromkeys(["easy", "hard", *found]), "overall"):
            mine = [
                rates["teacher"][name]
                for name, word in zip(names, found, strict=True)
                if wanted in (word, "overall")
            ]
            responses = sum(rate.num_responses for rate in mine)
            correct = sum(rate.num_correct for rate in mine)
            share = correct / responses if responses else float("nan")
            yield [wanted, len(mine), len(mine) / len(names), responses, correct, share]

    @table(
        "examples",
        "What each arm learns.",
        columns="arm, candidates, examples, correct, wrong, last_loss",
    )
    def examples(self) -> Rows:
        """Candidates after the filters, chosen examples, the correct ones among them, and the
        training loss over the last tenth of the steps."""
        for each in self.students:
            if card := self.card(self.chosen[each.series]):
                covered = [r["num_removed"] for r in card["funnel"] if r["stage"] == "coverage"]
                kept, labels = card["num_kept"], card["labels"]
                right, wrong = (labels.get(name, 0) for name in ("correct", "wrong"))
                row = [each.label, kept + sum(covered), kept, right, wrong]
                yield [*row, self.last_loss(each.series)]

    @table("pushes", "One update on a right and on a wrong response: Eq. 8 has no sign.")
    def pushes(self) -> Rows:
        return data_rules.pushes()

    def notes(self) -> list[str]:
        p = self.params
        return [
            "Labels are the verifier's. A problem is easy where the reference, the maths SFT "
            f"checkpoint, solves it in at least {p.easy_from:g} of {p.reference_responses} "
            "responses; the paper annotates by a model and prints no threshold.",
            "Where an arm has fewer problems than examples, K-center over prompts takes further "
            "responses to the same problems.",
            *self.common_notes(f"{len(self.students)} arms"),
        ]
