"""Notebook 06: how much of the loss on correct responses (section 5.2.2, Table 6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from klearlib import paper
from klearlib.experiments import objectives
from klearlib.experiments.benchmarks import counterparts
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.origins import origins
from klearlib.experiments.results import Arm, Results
from klearlib.experiments.rl_stages import rl_arm
from klearlib.experiments.score_tables import Row, score_bars, score_table
from klearlib.experiments.shown import Figure, Frame, Rows, figure, table
from klearlib.params.fields import amended, parameter
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams
from klearlib.params.statistics import WORLDS
from klearlib.report.bars import scores_beside_paper
from klearlib.report.section import Counterpart
from klearlib.report.verdicts import Evidence
from klearlib.run.stage import Stage


@dataclass(frozen=True)
class AlphaSweepParams(MathsRLParams):
    """Notebook 06: the weight alpha of the loss on correct responses (Section 5.2.2, Table 6)."""

    alphas: list[float] = parameter(
        [0.0, 0.05, 0.1, 0.2],
        **ALPHA | {"help": "weights of the LM loss on positives, one arm each"},
        unique=True,
        paper="0, 0.05, 0.1, 0.2",
        place="Table 6",
    )
    seeds = amended(
        help="one run per alpha and seed",
        paper="1 run per alpha",
        place="Table 6: one number per cell, no error bars",
    )
    num_steps = amended(paper=100, place="Table 6")
    learning_rate: float = parameter(3.0e-4, **MATHS_RATE)
    eval_every = amended(paper="only the end is shown", place="Table 6")
    eval_responses = amended(paper=32, place="Table 6: avg@32")


class AlphaSweep(Experiment):
    """The weight alpha of Eq. 14, the loss of `klearlib.rl.train`; alpha 0 is the GPPO arm of
    notebook 05."""

    name = "06_alpha_sweep"
    title = "The weight of the loss on correct responses"
    section = "5.2.2"
    question = (
        "How much of a supervised loss on the policy's own correct responses helps reinforcement "
        "learning?"
    )
    phase = "RL for mathematics"
    Params = AlphaSweepParams
    counterparts = (Counterpart("Table 6", "the weight of the LM loss", ("table6", "scores")),)

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        p = self.params
        return {
            (f"alpha_{alpha:g}", seed): rl_arm(
                p, of.start("math"), label=f"alpha {alpha:g}", seed=seed, alpha=alpha
            )
            for seed, of in origins(p.profile, p.seeds).items()
            for alpha in p.alphas
        }

    @cached_property
    def benchmarks(self) -> dict[str, str]:
        return counterparts(self.params.profile, "math")

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of Table 6; the start is the first evaluation of any arm, the same in all."""
        start: dict = {}
        for (_, seed), run in self.runs.runs.items():
            start.setdefault(("start", seed), run)

        def cells(label: str) -> dict[str, float]:
            table = paper.table(6) / 100
            printed = {name: table[name.replace(" ", "")] for name in self.benchmarks.values()}
            return {name: each[label] for name, each in printed.items() if label in each}

        printed, where = cells("Starting Checkpoint"), ("start", "gppo")
        found = [Row("starting checkpoint", Results(start), printed, *where, first=True)]
        for alpha in (f"{alpha:g}" for alpha in self.params.alphas):
            label, runs = f"alpha = {alpha}", self.runs.of(f"alpha_{alpha}")
            found.append(Row(label, runs, cells(label), alpha, "gppo"))
        return found

    @property
    def words_on_start(self) -> str:
        """A sentence for captions, if all seeds start from one checkpoint."""
        if self.statistics.design == WORLDS:
            return ""
        return " All seeds share one start, so its interval is that of sampling alone."

    @figure(
        "The paper's Table 6 and ours.",
        alt="Two columns, one for each benchmark. Top: the paper's scores of the starting "
        "checkpoint and of alpha 0, 0.05, 0.1 and 0.2. Bottom: ours with 95 % intervals and a dot "
        "for each seed.",
    )
    def table6(self) -> Figure:
        p, groups = self.params, [row.group for row in self.rows]
        how = {"responses": p.eval_responses, "paper_responses": ", avg@32"}
        panels = score_bars(self.rows, self.benchmarks, p.profile, **how)
        return scores_beside_paper(panels, groups=groups, series=("gppo",), x_label="alpha")

    @table(
        "Table 6, the paper's and ours: avg@{p.eval_responses} at the last step, mean over "
        "seeds with 95 % t interval. While runs are missing, rows may have different seeds."
        "{e.words_on_start}",
    )
    def scores(self) -> Frame:
        return score_table(self.rows, self.benchmarks, self.params.profile)

    @table("Eq. 14 on ten tokens, by autograd.")
    def gradients(self) -> Rows:
        p = self.params
        return objectives.alpha_gradients(p.alphas, eps_low=p.eps_low, eps_high=p.eps_high)

    def evidence(self) -> dict[str, Evidence | str]:
        mine, found = {f"alpha_{alpha:g}" for alpha in self.params.alphas}, {}
        for name in ("C8", "C19"):
            if absent := [arm for arm in paper.claim(name).arms if arm not in mine]:
                values = " and no ".join(arm.removeprefix("alpha_") for arm in absent)
                found[name] = f"alphas has no {values}, which the claim compares"
                continue
            found[name] = self.compared(name, self.runs, "math")
        return found

    def notes(self) -> list[str]:
        return [
            *self.departures("options"),
            "Positives are the responses that the verifier judges correct, and the loss is a mean "
            "over their tokens in the optimiser's mini-batch (D4, D5 of docs/deviations.md).",
            "Groups without advantage are dropped before Eq. 13 takes its positives, so solved "
            "groups feed no arm's loss, and C8 and C19 judge alpha on mixed groups alone (D8 of "
            "docs/deviations.md); in notebook 09, at an alpha above 0, solved groups may feed it.",
            "Clipping by GPPO. On one machine the arm of alpha 0 is the GPPO arm of notebook 05; "
            "the paper calls its row alpha = 0 the standard GRPO loss.",
            "The arms of a seed share the order of problems. "
            + self.note_on_seeds("the SFT checkpoint"),
        ]
