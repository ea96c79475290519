"""Notebook 06: how much of the loss on correct responses (section 5.2.2, Table 6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klearlib import paper
from klearlib.evaluate.scores import best_shares
from klearlib.experiments.benchmarks import counterparts, decided_on
from klearlib.experiments.demos import lm_loss
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.origins import origins
from klearlib.experiments.results import Arm, Results
from klearlib.experiments.rl_stages import rl_arm
from klearlib.experiments.score_tables import Row, difference, score_bars, score_table
from klearlib.experiments.shown import Figure, Frame, Rows, figure, table
from klearlib.params.fields import amended, parameter
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams
from klearlib.params.statistics import WORLDS
from klearlib.report.bars import scores_beside_paper
from klearlib.report.curves import learning_curves
from klearlib.report.section import Counterpart
from klearlib.report.verdicts import Evidence
from klearlib.run.stage import Stage

_RESAMPLES = 10_000
_LEARNING = {
    "rollouts correct, temperature 1": "rollout/correct_rate",
    "entropy, nats per token": "train/entropy",
    "response length, tokens": "rollout/response_tokens_mean",
    "LM loss on positives, before alpha": "train/lm_loss",
    "gradient norm": "train/grad_norm",
}


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
        printed, where = _paper("Starting Checkpoint"), ("start", "gppo")
        found = [Row("starting checkpoint", Results(start), printed, *where, first=True)]
        for alpha in (f"{alpha:g}" for alpha in self.params.alphas):
            label, runs = f"alpha = {alpha}", self.runs.of(f"alpha_{alpha}")
            found.append(Row(label, runs, _paper(label), alpha, "gppo"))
        return found

    @property
    def words_on_start(self) -> str:
        """Of a caption, where all seeds start from one checkpoint."""
        if self.statistics.design == WORLDS:
            return ""
        return " The start is one for all seeds, so its interval is that of sampling alone."

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
        "Table 6, ours beside the paper's: avg@{p.eval_responses} at the last step, mean over "
        "seeds with 95 % t interval. While runs are missing, rows may have different seeds."
        "{e.words_on_start}",
    )
    def scores(self) -> Frame:
        return score_table(self.rows, self.benchmarks, self.params.profile)

    @table(
        "Differences to alpha 0 on the problems of both benchmarks, 95 % intervals paired by seed, "
        f"not corrected; in which share of {_RESAMPLES:,} resamples of seeds and "
        "problems each alpha is the best (none with one seed).",
        columns="alpha, seeds, problems, score, minus_alpha_0, low, high, interval_over, "
        "best_in_resamples, paper, paper_minus_alpha_0",
    )
    def optimum(self) -> Rows:
        """One row for each alpha, from the seeds that all alphas have."""
        nan, names = float("nan"), {f"alpha_{alpha:g}": alpha for alpha in self.params.alphas}
        seeds = self.runs.common_seeds(names)
        if not seeds:
            return
        scores = {name: self.runs.problem_scores(name, seeds, self.benchmarks) for name in names}
        best = best_shares(scores, num_resamples=_RESAMPLES) if len(seeds) > 1 else {}
        printed = {
            alpha: float(np.mean([*map(_paper(f"alpha = {alpha:g}"), self.benchmarks.values())]))
            for alpha in (0.0, *self.params.alphas)
        }
        for name, alpha in names.items():
            against = [nan, nan, nan, ""]
            if alpha and "alpha_0" in scores:
                against = [*difference(scores[name], scores["alpha_0"])]
            row = [alpha, *scores[name].shape, float(scores[name].mean()), *against]
            row += [best.get(name, nan), printed[alpha]]
            yield [*row, printed[alpha] - printed[0.0] if alpha else nan]

    @figure(
        "What alpha does beside scores.",
        alt="Six panels over the RL steps, one line for each alpha: rollouts correct, entropy, "
        "response length, loss on positives, gradient norm, and the share of trained tokens from "
        "positives.",
    )
    def learning(self) -> Figure:
        import pandas as pd

        parts = [self.runs.curve(metric).assign(panel=panel) for panel, metric in _LEARNING.items()]
        parts.append(self.runs.positive_share().assign(panel="share of tokens from positives"))
        return learning_curves(pd.concat(parts, ignore_index=True))

    @table("Eq. 14 on ten tokens, by autograd.")
    def gradients(self) -> Rows:
        p = self.params
        return lm_loss.alpha_gradients(p.alphas, eps_low=p.eps_low, eps_high=p.eps_high)

    def evidence(self) -> dict[str, Evidence | str]:
        mine, found = {f"alpha_{alpha:g}" for alpha in self.params.alphas}, {}
        for name in ("C8", "C19"):
            if absent := [arm for arm in paper.claim(name).arms if arm not in mine]:
                values = " and no ".join(arm.removeprefix("alpha_") for arm in absent)
                found[name] = f"alphas has no {values}, which the claim compares"
                continue
            words = [decided_on(name, self.params.profile, "math")]
            found[name] = self.compared(name, self.runs, "math", words=words)
        return found

    def notes(self) -> list[str]:
        return [
            *self.departures("options"),
            "Positives are the responses that the verifier judges correct, and the loss is a mean "
            "over their tokens in the optimiser's mini-batch (D4, D5 of docs/deviations.md).",
            "Groups without advantage are dropped before Eq. 13 takes its positives, so solved "
            "groups feed no arm's loss, and C8 and C19 judge alpha on mixed groups alone (D8 of "
            "docs/deviations.md); notebook 09 at an alpha above 0 lets them.",
            "Clipping by GPPO. At alpha 0 the arm is the GPPO arm of notebook 05; the paper calls "
            "its row alpha = 0 the standard GRPO loss.",
            "The resamples are centred on what was measured, so four equal arms do not share them "
            "equally: best_in_resamples says how stable the ranking of these runs is and is no "
            "probability that an alpha is the best.",
            "Arms of a seed share the order of problems. "
            + self.note_on_seeds("the SFT checkpoint"),
        ]


def _paper(label: str):
    """The cells of a row of Table 6 by the paper's benchmark, as fractions; NaN for an alpha that
    it has not."""

    def cell(benchmark: str) -> float:
        printed = paper.table(6)[benchmark.replace(" ", "")]
        return float(printed[label]) / 100 if label in printed else float("nan")

    return cell
