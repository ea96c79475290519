"""Notebook 07: the soft code reward against the hard one (section 5.2.3, Fig. 3); and what notebook
08 shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from klearlib import paper
from klearlib.experiments.benchmarks import standing_for
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.origins import Origin, Start, origins
from klearlib.experiments.results import Arm, Results, not_judged_text, off_the_line
from klearlib.experiments.rl_stages import filtered_code_start, rl_arm
from klearlib.experiments.score_tables import learning_table, score_panel
from klearlib.experiments.shown import Figure, Frame, figure, table
from klearlib.params.fields import count
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import CodeRLParams
from klearlib.report.curves import Panel, paper_beside_ours
from klearlib.report.section import Counterpart
from klearlib.report.verdicts import Evidence
from klearlib.run.stage import Stage

_SAME = "same rollouts"


class CodeRL(Experiment):
    """Two arms of RL on programs by GPPO.

    series: the arms. paper_figure: the paper's figure of their scores. what: how they differ.
    """

    phase = "RL for code"
    replicated = "code_rl"
    series: ClassVar[tuple[str, str]]
    paper_figure: ClassVar[str]
    what: ClassVar[str]

    @cached_property
    def origins(self) -> dict[int, Origin]:
        return origins(self.params.profile, self.params.seeds)

    def arm(self, start: Start, *, seed: int, code_reward: str) -> Stage:
        problems = "all" if start.pool is None else "kept"
        label = f"{code_reward} reward, {problems} problems"
        return rl_arm(self.params, start, label=label, seed=seed, code_reward=code_reward)

    @cached_property
    def drawn(self) -> str:
        """The benchmark where the paper has LiveCodeBench V5."""
        return standing_for(self.params.profile, "LiveCodeBench V5")

    def score_panel(self) -> Panel:
        less = self.series[-1]
        return score_panel(self.params, self.runs, self.drawn, self.paper_figure, less=less)

    @table(
        "Scores at the first and last step: avg@{p.eval_responses} at temperature 0.6 for the two "
        "windows, share right at temperature 1 for the validation set; a program is right if it "
        "passes every test; mean over seeds, 95 % t interval.",
    )
    def scores(self) -> Frame:
        return learning_table(
            self.runs,
            self.params.profile,
            "code",
            paper_figures={self.drawn: self.paper_figure},
            what=self.what,
            tests=True,
        )

    def notes(self) -> list[str]:
        return [
            *self.departures("options", "test_filter"),
            "A score counts a program as right if it passes every test of its problem. "
            + self.note_on_seeds("the SFT checkpoint"),
            "Clipping by GPPO, with the loss on correct responses at the weight alpha; the paper "
            "does not say what its Figs. 3 and 4 used.",
        ]


@dataclass(frozen=True)
class SoftRewardParams(CodeRLParams):
    """Notebook 07: soft against hard reward in code RL (Section 5.2.3, Fig. 3)."""

    reward_batches: int = count(
        "rollout batches that both rewards score before RL (C22); 0: none",
        2,
        NOT_STATED,
        minimum=0,
    )


class SoftReward(CodeRL):
    """Two arms that differ in what a program is paid, on the problems that the test filter
    keeps."""

    name = "07_soft_reward"
    title = "Soft against hard reward for code"
    section = "5.2.3"
    question = (
        "Does paying for the share of tests passed train a better coder than paying for all or "
        "nothing, and does the reward vary less?"
    )
    Params = SoftRewardParams
    series = ("soft", "hard")
    paper_figure = "3a"
    what = "reward"
    counterparts = (
        Counterpart("Fig. 3a", "soft or hard reward, scores", ("fig3",)),
        Counterpart("Fig. 3b", "soft or hard reward, rewards", ("fig3",)),
    )

    @cached_property
    def starts(self) -> dict[int, Start]:
        """Seed -> world and SFT checkpoint, without the problems that the test filter drops."""
        return {seed: filtered_code_start(of, self.params) for seed, of in self.origins.items()}

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        return {
            (reward, seed): self.arm(start, seed=seed, code_reward=reward)
            for seed, start in self.starts.items()
            for reward in self.series
        }

    @cached_property
    def same_rollouts(self) -> dict[Arm, Stage]:
        """(reward, seed) -> the rollouts that both rewards score, one run for both."""
        p, found = self.params, {}
        for seed, start in self.starts.items() if p.reward_batches else ():
            trained = self.arm(start, seed=seed, code_reward="soft")
            stage = Stage(
                "reward_noise",
                "klearlib.rl.reward_noise:compare_rewards",
                {
                    "seed": seed,
                    "rewards": [*self.series],
                    "settings": trained.params["settings"] | {"num_steps": p.reward_batches},
                    "compute": start.compute,
                },
                {n: each for n, each in trained.inputs.items() if n in ("world", "sft", "pool")},
                label=f"both rewards of the same rollouts, seed {seed}",
                estimate_s=8 + p.reward_batches * p.num_problems * p.group_size / 25,
            )
            found |= {(reward, seed): stage for reward in self.series}
        return found

    def run_sets(self) -> dict[str, Mapping[Arm, Stage]]:
        return super().run_sets() | {_SAME: self.same_rollouts}

    def judged_on(self) -> dict[str, Results]:
        return super().judged_on() | {"C22": self.done(_SAME)}

    @figure(
        "The paper's Fig. 3 and ours.",
        alt="Top: the paper's curves for LiveCodeBench V5 and the mean reward under soft and hard "
        "reward, dashed. Below: ours for the first code window, the mean reward, and the standard "
        "deviation of the reward inside a batch, mean over seeds; last, the score with the soft "
        "reward minus that with the hard one, by seed.",
    )
    def fig3(self) -> Figure:
        level, spread = map(self.runs.curve, ("rollout/reward_mean", "rollout/reward_std"))
        mean, std = "mean reward of the batch", "spread inside a batch"
        return paper_beside_ours(
            [
                self.score_panel(),
                Panel(mean, mean, paper.figure("3b"), level, "reward"),
                Panel(std, std, None, spread, "standard deviation"),
            ]
        )

    def evidence(self) -> dict[str, Evidence | str]:
        lost = not_judged_text(self.runs.total("rollout/judge_failures"), "rollouts")

        def rates(arm: str, seeds: Sequence[int]) -> np.ndarray:  # [seeds, steps]
            return self.runs.steps(arm, seeds, "rollout/correct_rate")

        def distances(arm: str, seeds: Sequence[int]) -> np.ndarray:
            return np.abs(off_the_line(rates(arm, seeds))).mean(axis=1)

        return {
            "C9": self.compared("C9", self.runs, "code"),
            "C10": self.paired("C10", self.runs, distances, words=[lost]),
            "C17": self.paired("C17", self.runs, lambda *of: rates(*of).mean(axis=1), words=[lost]),
            "C22": self._agreement(),
        }

    def _agreement(self) -> Evidence | str:
        """The cosine of the gradients of half batches, mean over the batches in which both halves
        have one under both rewards."""
        if not self.params.reward_batches:
            return "reward_batches is 0: no rollouts were scored by both rewards"
        same, names = self.done(_SAME), [f"half_cosine/{each}" for each in self.series]
        both = {
            seed: [line for line in run.metrics if all(line[name] is not None for name in names)]
            for (_, seed), run in same.runs.items()
        }

        def means(arm: str, seeds: Sequence[int]) -> np.ndarray:
            each = [[line[f"half_cosine/{arm}"] for line in both[seed]] for seed in seeds]
            return np.array([np.mean(cosines) for cosines in each])

        return self.paired("C22", same.with_seeds(s for s in both if both[s]), means)

    def notes(self) -> list[str]:
        return [
            "Both arms train on the problems that the test filter of notebook 08 keeps, so the "
            "soft arm is that notebook's filtered arm.",
            "The soft reward lies between 0 and 1, the hard one is -1 or 1. Both of the paper's "
            "curves dip below 0, so the soft scale plotted there is another one (perhaps the "
            "released code's 2 p - 1, option `code_scores`); advantages do not depend on it.",
            *super().notes(),
        ]
