"""The runs of notebook 05: clipping rules, learning rates, and the two models they start from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

from klearlib.errors import ParameterError
from klearlib.experiments.benchmarks import named
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.explore import source_of
from klearlib.experiments.headline_pipeline import (
    HeadlineParams,
    Pipeline,
    every_value,
    groundworks,
)
from klearlib.experiments.origins import origins
from klearlib.experiments.results import Arm, Results
from klearlib.experiments.rl_stages import rl_arm
from klearlib.experiments.rules import TITLES, RuleArm, read_rules, require_usable, rule_arms
from klearlib.params.fields import amended, count, parameter
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams, RLSchedule
from klearlib.run.stage import Stage

Cell = tuple[str, float, int]
"""Rule, learning rate, seed."""
SCORES = {"C1": ("AIME 2024", "2a"), "C2": ("LiveCodeBench V5", "2b")}
"""Claim -> the paper's benchmark and figure that it is about."""


@dataclass(frozen=True)
class JointRuns(RLSchedule):
    """RL on mathematics from notebook 10's SFT checkpoint, which writes programs too."""

    num_steps = amended(1, paper=240, place="Fig. 2: last plotted step")
    mini_batch_problems = amended(paper=16, place="RL settings, maths")
    learning_rate: float = parameter(3.0e-4, **MATHS_RATE)
    eval_every: int = count(
        "steps between evaluations", default=1, paper=10, place="Fig. 2b: distance of the points"
    )
    eval_responses: int = count(
        "responses per benchmark problem", default=1, paper=4, place="Fig. 2b: avg@4"
    )


@dataclass(frozen=True)
class ClippingParams(MathsRLParams):
    """Notebook 05: GPPO, Clip-Higher and CISPO from the same start (Section 5.2.1, Fig. 2)."""

    worlds: ClassVar[tuple[str, ...]] = HeadlineParams.worlds

    rules: object = parameter(
        ["clip_higher", "gppo", "cispo"],
        check=read_rules,
        written={name: f"rules=[{{name: gppo, {name}: 0}}]" for name in ("beta_low", "beta_high")},
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
    joint: dict | None = parameter(
        {},
        record=JointRuns,
        help="runs scored on code: all of JointRuns, {} for smoke's; None: no runs",
        place="Fig. 2b",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.joint is not None:
            values = every_value(JointRuns, self.joint, "joint", self.profile)
            object.__setattr__(self, "joint", values)
        if self.mini_batch_problems == self.num_problems and len(self.rules) > 1:
            raise ParameterError(
                f"mini_batch_problems {self.mini_batch_problems} makes one update per rollout, "
                "where every ratio is 1 and all clipping rules are equal: "
                f"give less than num_problems {self.num_problems}"
            )
        for rule in self.rules:
            require_usable(rule, **self.rule_defaults)

    @property
    def joint_runs(self) -> JointRuns | None:
        return None if self.joint is None else JointRuns(**self.joint)

    @property
    def rule_defaults(self) -> dict:
        return {"eps_low": self.eps_low, "eps_high": self.eps_high, "options": self.rl_options}


class ClippingArms(Experiment):
    """A grid of rules and learning rates, of which each rule keeps its best rate; and the same
    rules from the model of both domains."""

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
        several = len(self.params.learning_rates) > 1
        tuning = self.statistics.tuning if several else ()
        return self.cells([*dict.fromkeys([*tuning, *self.params.seeds])])

    def cells(self, seeds: Sequence[int]) -> dict[Cell, Stage]:
        p = self.params
        several = len(p.learning_rates) > 1
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
    def headline(self) -> HeadlineParams:
        return Pipeline.params_of(self.params.profile)

    def reads(self) -> dict[str, object]:
        return {} if self.params.joint is None else {Pipeline.name: self.headline}

    @cached_property
    def joint_arms(self) -> dict[Arm, Stage]:
        """(rule, seed) -> its run of RL on mathematics from the model of both domains, scored on
        the benchmarks of Figs. 2a and 2b, and on what decides claims about code."""
        p = self.params
        if p.joint is None:
            return {}
        drawn, found = self.drawn.values(), {}
        for seed, ground in groundworks(self.headline, p.seeds).items():
            sizes = {n: k for each in ground.joint.benchmarks.values() for n, k in each.items()}
            start = replace(
                ground.start("math"),
                benchmarks={name: sizes[name] for name in drawn},
                deciding=ground.data.deciding("code"),
            )
            for rule, arm in self.rules.items():
                how = {"label": f"{arm.title}, both domains", "seed": seed, "rule": arm.rule}
                found[rule, seed] = rl_arm(p, start, **how, **p.joint)
        return found

    @cached_property
    def joint_results(self) -> Results:
        return self.done("both domains")

    @cached_property
    def rate_arms(self) -> dict[Arm, Stage]:
        """("learning rate: rule", seed) -> its run, of the seeds that tune too."""
        return {(_at(rate, rule), seed): stage for (rule, rate, seed), stage in self.grid.items()}

    @cached_property
    def rate_results(self) -> Results:
        return self.done("learning rates")

    def judged_on(self) -> dict[str, Results]:
        compared = self.rate_results.with_seeds(self.params.seeds)
        return super().judged_on() | {"C2": self.joint_results, "E6": compared}

    def run_sets(self) -> dict[str, Mapping[Arm, Stage]]:
        return {"learning rates": self.rate_arms, "both domains": self.joint_arms}

    @cached_property
    def runs(self) -> Results:
        """Those of `arms`, which are some of the learning rates."""
        names = {_at(rate, rule): rule for rule, rate in self.chosen.items()}
        return self.rate_results.of(*names).renamed(names).with_seeds(self.params.seeds)

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        return {
            (rule, seed): stage
            for (rule, rate, seed), stage in self.grid.items()
            if self.chosen.get(rule) == rate and seed in self.params.seeds
        }

    def at(self, rate: float, rules: Iterable[str], seeds: Sequence[int]) -> Results:
        """The runs of some rules at one learning rate."""
        names = {_at(rate, rule): rule for rule in rules}
        return self.rate_results.of(*names).renamed(names).with_seeds(seeds)

    @cached_property
    def chosen(self) -> dict[str, float]:
        """Rule -> the learning rate whose runs give most right responses on the validation set at
        their last step, over the tuning seeds; of equals the smallest. The benchmarks are not
        looked at, nor the seeds that decide.

        Of several rates none is chosen before all these runs of the rule are done: such a rule is
        left out.
        """
        p, tuning = self.params, self.statistics.tuning
        if len(p.learning_rates) == 1:
            return dict.fromkeys(self.rules, p.learning_rates[0])
        found = {}
        for rule in self.rules:
            tried = {rate: self.at(rate, [rule], tuning) for rate in sorted(p.learning_rates)}
            if all(len(runs) == len(tuning) for runs in tried.values()):
                # All runs have as many responses, so counts order the rates as means do, exactly.
                ends = {x: runs.ends(rule, "validation").values() for x, runs in tried.items()}
                right = {x: sum(each.total("right") for each in ends[x]) for x in tried}
                found[rule] = max(right, key=right.__getitem__)
        return found

    def why_not_judged(self, rules: Iterable[str]) -> str:
        """What a claim on `rules` lacks, an arm or the choice of a learning rate; "" for
        nothing."""
        if absent := [TITLES[rule] for rule in rules if rule not in self.rules]:
            return f"rules has no {' and no '.join(absent)}, which the claim is about"
        waiting = [rule for rule in self.rules if rule in rules and rule not in self.chosen]
        tuning = self.statistics.tuning
        mine = [s for (rule, _, seed), s in self.grid.items() if rule in waiting and seed in tuning]
        names, done = " and ".join(map(TITLES.get, waiting)), sum(map(self.is_done, mine))
        text = f"no learning rate is chosen for {names}: {done} of {len(mine)} runs are done"
        return text if waiting else ""

    @property
    def words_on_rates(self) -> str:
        """Empty where there is one learning rate for all."""
        if len(self.params.learning_rates) == 1:
            return ""
        rates = [f"{self.rules[rule].title} {rate:g}" for rule, rate in self.chosen.items()]
        by = f"the learning rate that {len(self.statistics.tuning)} tuning replicates chose"
        return f"Each rule at {by}: {', '.join(rates) or 'none yet'}"

    @property
    def at_rates(self) -> str:
        """The same as the end of a caption."""
        return f" {self.words_on_rates}." if self.words_on_rates else ""

    @property
    def words_on_code(self) -> str:
        """Of a caption, where runs are scored on code."""
        start = " Code after RL on mathematics is that of the model of both domains."
        return start if self.joint_results else ""

    @cached_property
    def drawn(self) -> dict[str, str]:
        """Claim -> the benchmark drawn beside its figure, where the profile has one."""
        mine = {about.paper: name for name, about in named(self.params.profile).items()}
        return {claim: mine[its] for claim, (its, _) in SCORES.items() if its in mine}


def _at(rate: float, rule: str) -> str:
    return f"learning rate {rate:g}: {rule}"
