"""Notebook 07: the soft code reward against the hard one (section 5.2.3, Fig. 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klearlib import paper
from klearlib.experiments.benchmarks import decided_on
from klearlib.experiments.code_rl import CodeRL
from klearlib.experiments.demos import judging
from klearlib.experiments.results import Arm, Results, not_judged_text, off_the_line
from klearlib.experiments.score_tables import paper_curve
from klearlib.experiments.shown import Figure, Rows, figure, table
from klearlib.params.fields import count
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import CodeRLParams
from klearlib.report.curves import Panel, paper_beside_ours
from klearlib.report.section import Counterpart
from klearlib.report.style import series_style
from klearlib.report.verdicts import Evidence
from klearlib.run.stage import Stage

_SAME = "same rollouts"
_MEANS = {
    "std_in_batch": "rollout/reward_std",
    "std_in_group": "rollout/reward_std_in_group",
    "all_tests_passed": "rollout/correct_rate",
    "tests_passed": "rollout/pass_rate_mean",
    "groups_trained": "rollout/groups_trained",
}


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
    def arms(self) -> dict[Arm, Stage]:
        return {
            (reward, seed): self.arm(self.filtered(of), seed=seed, code_reward=reward)
            for seed, of in self.origins.items()
            for reward in self.series
        }

    @cached_property
    def same_rollouts(self) -> dict[Arm, Stage]:
        """(reward, seed) -> the rollouts that both rewards score, one run for both."""
        p, found = self.params, {}
        for seed, of in self.origins.items() if p.reward_batches else ():
            start = self.filtered(of)
            trained = self.arm(start, seed=seed, code_reward="soft")
            inputs = {"world": start.world, "sft": start.sft}
            if start.pool is not None:
                inputs["pool"] = start.pool
            stage = Stage(
                "reward_noise",
                "klearlib.rl.reward_noise:compare_rewards",
                {
                    "seed": seed,
                    "rewards": [*self.series],
                    "settings": trained.params["settings"] | {"num_steps": p.reward_batches},
                    "compute": start.compute,
                },
                inputs,
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
        alt="Six panels. Top: the paper's curves for LiveCodeBench V5 and the mean reward under "
        "soft and hard reward, dashed, and an empty panel. Bottom: ours for the first code window, "
        "the mean reward, and the standard deviation of the reward inside a batch, mean over seeds "
        "with a 95 % band.",
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

    @table("Eight programs for one specification, run in the sandbox against 16 tests.")
    def judged(self) -> Rows:
        limits = self.params.rl_options
        return judging.judged_programs(limits.test_timeout_s, limits.test_memory_mb)

    scores = CodeRL.scores

    @table("Level and spread of the reward in training, mean over seeds.")
    def rewards(self) -> Rows:
        """Means over seeds; the deviation and distance of batch means are those from a straight
        line through the run. The paper's rows have what Fig. 3b shows."""
        for reward, mine in self.runs.each(self.series):
            seeds = sorted(seed for _, seed in mine.runs)
            row = {"reward": series_style(reward).label, "seeds": len(seeds)}
            row |= _levels(mine.steps(reward, seeds, "rollout/reward_mean"))
            same = self.done(_SAME)
            seeds = [seed for seed in same.common_seeds([reward]) if _both(same, seed)]
            agree = [_agreement(same, reward, seed) for seed in seeds]
            row |= {name: mine.mean(metric) for name, metric in _MEANS.items()}
            yield row | {"half_cosine": np.mean(agree) if agree else np.nan}
        for reward in self.series:
            row = {"reward": f"paper: {series_style(reward).label}", "seeds": 1}
            yield row | _levels(paper_curve("3b", reward).to_numpy()[None, :])

    def evidence(self) -> dict[str, Evidence | str]:
        lost = not_judged_text(self.runs.total("rollout/judge_failures"), "rollouts")
        words = [decided_on("C9", self.params.profile, "code")]

        def rates(arm: str, seeds: Sequence[int]) -> np.ndarray:  # [seeds, steps]
            return self.runs.steps(arm, seeds, "rollout/correct_rate")

        def distances(arm: str, seeds: Sequence[int]) -> np.ndarray:
            return np.abs(off_the_line(rates(arm, seeds))).mean(axis=1)

        same = self.done(_SAME)
        same = same.with_seeds(s for s in same.common_seeds(self.series) if _both(same, s))

        def agreements(arm: str, seeds: Sequence[int]) -> np.ndarray:
            return np.array([_agreement(same, arm, seed) for seed in seeds])

        agreement = "reward_batches is 0: no rollouts were scored by both rewards"
        if self.params.reward_batches:
            agreement = self.paired("C22", same, agreements)
        return {
            "C9": self.compared("C9", self.runs, "code", words=words),
            "C10": self.paired("C10", self.runs, distances, words=[lost]),
            "C17": self.paired("C17", self.runs, lambda *of: rates(*of).mean(axis=1), words=[lost]),
            "C22": agreement,
        }

    def notes(self) -> list[str]:
        return [
            "Both arms train on the problems that the test filter of notebook 08 keeps, so the "
            "soft arm is that notebook's filtered arm.",
            "The soft reward is on the scale from 0 to 1, the hard one -1 or 1. Both of the "
            "paper's curves dip below 0, so another soft scale was plotted there (perhaps the "
            "released code's 2 p - 1, option `code_scores`); advantages do not depend on it.",
            *super().notes(),
        ]


def _agreement(same: Results, reward: str, seed: int) -> float:
    """The mean cosine of the gradients of half batches over those of `_both`."""
    return float(np.mean([line[f"half_cosine/{reward}"] for line in _both(same, seed)]))


def _both(same: Results, seed: int) -> list[dict]:
    """The batches in which both halves have a gradient under both rewards."""
    names = [f"half_cosine/{each}" for each in SoftReward.series]
    lines = same.runs[SoftReward.series[0], seed].metrics
    return [line for line in lines if all(line[name] is not None for name in names)]


def _levels(means: np.ndarray) -> dict[str, float]:
    """What follows from the batch means [seeds, steps] alone."""
    fifth, off = max(1, means.shape[1] // 5), off_the_line(means)
    return {
        "first_fifth": means[:, :fifth].mean(),
        "last_fifth": means[:, -fifth:].mean(),
        "batch_means_std": off.std(axis=1).mean(),
        "batch_means_distance": np.abs(off).mean(),
    }
