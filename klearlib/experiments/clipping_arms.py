"""The runs of notebook 05: clipping rules and learning rates, and the same rules on code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from klearlib.experiments.benchmarks import named
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.explore import source_of
from klearlib.experiments.nb07_soft_reward import SoftReward, SoftRewardParams
from klearlib.experiments.origins import origins
from klearlib.experiments.own_rates import counted, own_rates
from klearlib.experiments.results import Arm, Results
from klearlib.experiments.rl_stages import filtered_code_start, rl_arm
from klearlib.experiments.rules import (
    TITLES,
    RuleArm,
    at_rate,
    read_rules,
    require_usable,
    rule_arms,
    without,
)
from klearlib.params.fields import Record, amended, count, parameter, rate
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams
from klearlib.run.stage import Stage

Cell = tuple[str, float, int]
"""Rule, learning rate, seed."""
SCORES = {"C1": ("AIME 2024", "2a"), "C2": ("LiveCodeBench V5", "2b")}
"""Claim -> the paper's benchmark and figure that it is about."""


@dataclass(frozen=True)
class CodeChanges(Record):
    """What notebook 05's RL on code may change in notebook 07's settings."""

    num_steps: int = count("RL steps", 2)
    mini_batch_problems: int = count("problems per update", 2)
    learning_rate: float = rate("of the policy", 3.0e-4)


@dataclass(frozen=True)
class ClippingParams(MathsRLParams):
    """Notebook 05: GPPO, Clip-Higher and CISPO from the same start (Section 5.2.1, Fig. 2)."""

    worlds: ClassVar[tuple[str, ...]] = ("miniature", "code_miniature")

    rules: object = parameter(
        ["clip_higher", "gppo", "cispo"],
        check=read_rules,
        help="clipping rules, one arm each, or FILE.py:NAME",
        paper="GRPO w/ Clip-Higher, GPPO, CISPO",
        place="Fig. 2",
    )
    seeds = amended(
        [0, 1],
        help="one run per rule and seed",
        paper="1 run per rule",
        place="Fig. 2: one line per rule, no error bars",
    )
    num_steps = amended(paper=240, place="Fig. 2: last plotted step")
    learning_rates: list[float] = parameter(
        [3.0e-4], **MATHS_RATE | {"help": "of the policy; each rule keeps its best"}, unique=True
    )
    alpha: float = parameter(
        0.0,
        **ALPHA,
        paper=NOT_STATED,
        place="Fig. 2 does not say; 0.1 for the final model (Table 6)",
    )
    eval_every = amended(paper=10, place="Fig. 2a, 2b: distance of the points")
    eval_responses = amended(paper=32, place="Fig. 2a: avg@32 (2b: avg@4)")
    code: bool = parameter(
        True, help="RL on code too, as notebook 07's soft arm (C2)", place="Fig. 2b"
    )
    code_changes: dict = parameter(
        {}, record=CodeChanges, help="what RL on code changes in notebook 07's settings"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_usable(self.rules, self)


class ClippingArms(Experiment):
    """A grid of rules and learning rates, of which each rule keeps its best rate; and the same
    rules in RL on code."""

    name = "05_clipping"
    Params = ClippingParams
    leads = True

    @cached_property
    def rules(self) -> dict[str, RuleArm]:
        """Series -> the rule, in the order of the parameter."""
        return {arm.series: arm for arm in rule_arms(self.params.rules)}

    @cached_property
    def grid(self) -> dict[Cell, Stage]:
        """(rule, learning rate, seed) -> its run, round-robin over seeds. Of several rates one is
        chosen for each rule by the profile's tuning seeds, which have runs for that alone."""
        p = self.params
        several = len(p.learning_rates) > 1
        seeds = dict.fromkeys([*(self.statistics.tuning if several else ()), *p.seeds])
        return {
            (rule, rate, seed): rl_arm(
                p,
                of.start("math"),
                label=arm.title + (f", learning rate {rate:g}" if several else ""),
                seed=seed,
                rule=arm.rule,
                learning_rate=rate,
            )
            for seed, of in origins(p.profile, seeds).items()
            for rate in p.learning_rates
            for rule, arm in self.rules.items()
        }

    def add_rule(self, function: Callable, label: str = "", **values: float) -> Self:
        """The experiment with one more rule: a function F(ratio, advantage) of a cell, see
        docs/own-rule.md. values: its further keywords."""
        rule = source_of(function) | ({"label": label} if label else {}) | values
        return self.changed(rules=[*self.params.rules, rule])

    @cached_property
    def soft(self) -> SoftRewardParams:
        """How the runs on code are trained."""
        of_07, p = SoftReward.params_of(self.params.profile), self.params
        return replace(of_07, engine=p.engine, **p.code_changes)

    def reads(self) -> dict[str, object]:
        return {SoftReward.name: self.soft} if self.params.code else {}

    @cached_property
    def code_arms(self) -> dict[Arm, Stage]:
        """(rule, seed) -> its run of RL on code; GPPO's is notebook 07's soft arm if nothing is
        changed."""
        if not self.params.code:
            return {}
        soft, found = self.soft, {}
        for seed, of in origins(self.params.profile, soft.seeds).items():
            start = filtered_code_start(of, soft)
            for rule, arm in self.rules.items():
                how = {"label": f"{arm.title}, code", "seed": seed, "rule": arm.rule}
                found[rule, seed] = rl_arm(soft, start, **how)
        return found

    @cached_property
    def code_results(self) -> Results:
        return self.done("code")

    @cached_property
    def rate_results(self) -> Results:
        """The runs of the grid, under `at_rate`, including the seeds that tune."""
        return self.done("learning rates")

    def judged_on(self) -> dict[str, Results]:
        compared = self.rate_results.with_seeds(self.params.seeds)
        return super().judged_on() | {"C2": self.code_results, "E6": compared}

    def run_sets(self) -> dict[str, Mapping[Arm, Stage]]:
        rates = {(at_rate(rate, rule), seed): s for (rule, rate, seed), s in self.grid.items()}
        return {"learning rates": rates, "code": self.code_arms}

    @cached_property
    def runs(self) -> Results:
        """The runs of `arms`, at some of the learning rates."""
        runs = self.rate_results.runs
        cells = {arm: (at_rate(rate, arm[0]), arm[1]) for arm, rate in self._chosen_rates.items()}
        return Results({arm: runs[cell] for arm, cell in cells.items() if cell in runs})

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        chosen = self._chosen_rates.items()
        return {(rule, seed): self.grid[rule, rate, seed] for (rule, seed), rate in chosen}

    @cached_property
    def _chosen_rates(self) -> dict[Arm, float]:
        every = itertools.product(self.params.seeds, self.rules)
        chosen = {(rule, seed): self.chosen.get(rule, {}).get(seed) for seed, rule in every}
        return {arm: rate for arm, rate in chosen.items() if rate is not None}

    def at(self, rate: float, rules: Iterable[str], seeds: Sequence[int]) -> Results:
        """The runs of some rules at one learning rate."""
        return self.rate_results.under(f"learning rate {rate:g}").of(*rules).with_seeds(seeds)

    @cached_property
    def chosen(self) -> dict[str, dict[int, float]]:
        """Rule -> seed -> the learning rate whose runs give most right responses on the validation
        set at their last step, over the tuning seeds, which decide nothing; where there are none,
        over the other seeds (`klearlib.experiments.own_rates`). Of equals it is the smallest. The
        benchmarks are not looked at.

        Of several rates none is chosen before the tuning runs of the rule are done, or two seeds at
        every rate: such a rule, or seed, is left out.
        """
        p, tuning = self.params, self.statistics.tuning
        rates, found = sorted(p.learning_rates), {}
        if len(rates) == 1:
            return {rule: dict.fromkeys(p.seeds, rates[0]) for rule in self.rules}
        for rule in self.rules:
            done = self.rate_results.common_seeds([at_rate(rate, rule) for rate in rates])
            by = [seed for seed in tuning or p.seeds if seed in done]
            if len(by) < (len(tuning) or 2):
                continue
            # All runs have as many responses, so counts order the rates as means do, exactly.
            ends = [self.at(rate, [rule], by).ends(rule, "validation") for rate in rates]
            right = np.array([[end[seed].total("right") for seed in by] for end in ends])
            if tuning:
                found[rule] = dict.fromkeys(p.seeds, rates[right.sum(1).argmax()])
            else:
                places = zip(by, own_rates(right).tolist(), strict=True)
                found[rule] = {seed: rates[place] for seed, place in places}
        return found

    def why_not_judged(self, rules: Iterable[str]) -> str:
        """What a claim on `rules` lacks: an arm or the choice of a learning rate; "" if nothing."""
        if absent := [TITLES[rule] for rule in rules if rule not in self.rules]:
            return without(absent)
        waiting = [rule for rule in self.rules if rule in rules and rule not in self.chosen]
        if not waiting:
            return ""
        by = self.statistics.tuning or self.params.seeds
        cells = (cell for cell in self.grid if cell[0] in waiting and cell[2] in by)
        asked = {(at_rate(rate, rule), seed) for rule, rate, seed in cells}
        done = len(asked & self.rate_results.runs.keys())
        names = " and ".join(map(TITLES.get, waiting))
        return f"no learning rate is chosen for {names}: {done} of {len(asked)} runs are done"

    @property
    def words_on_rates(self) -> str:
        """Empty where there is one learning rate for all."""
        if len(self.params.learning_rates) == 1:
            return ""
        chosen = self.chosen.items()
        texts = [
            f"{self.rules[rule].title} {' or '.join(counted(c.values()))}" for rule, c in chosen
        ]
        tuning = self.statistics.tuning
        chose = f"{len(tuning)} tuning replicates" if tuning else "the other replicates"
        return (
            f"Each rule at the learning rate that {chose} chose: {', '.join(texts) or 'none yet'}"
        )

    @property
    def at_rates(self) -> str:
        """The same as the end of a caption."""
        return f" {self.words_on_rates}." if self.words_on_rates else ""

    @property
    def words_on_code(self) -> str:
        """A sentence for captions, if runs are scored on code."""
        return " The code scores are from RL on code." if self.code_results else ""

    @cached_property
    def drawn(self) -> dict[str, str]:
        """Claim -> the benchmark drawn beside its figure, where the profile has one."""
        mine = {about.paper: name for name, about in named(self.params.profile).items()}
        return {claim: mine[its] for claim, (its, _) in SCORES.items() if its in mine}
