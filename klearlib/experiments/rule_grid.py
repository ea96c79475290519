"""The runs of notebook 12: clipping rules over learning rates, and the same under other
conditions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np

from klearlib import paper
from klearlib.errors import ParameterError
from klearlib.evaluate.statistics import Comparison, compare
from klearlib.experiments.benchmarks import decided_on, deciding
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.origins import origins
from klearlib.experiments.own_rates import useful_rates
from klearlib.experiments.results import Arm, Results
from klearlib.experiments.rl_stages import rl_arm
from klearlib.experiments.rules import at_rate, read_rules, require_usable, rule_key, rule_title
from klearlib.params import LOCAL, RLOptions
from klearlib.params.fields import Record, amended, choice, count, parameter
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams
from klearlib.report.curves import CORNER_TITLES
from klearlib.run.stage import Stage

FIRST = ("gppo_ratio_low", "gppo", "gppo_no_low", "clip_higher")
"""The rules of E1 and E8, which run first, and the rule that the others are compared with."""
BASELINE = "clip_higher"
VARIANTS, LEFT_OUT, VALIDATION = "variants", "left out", "validation"
STEEP = "gppo"
"""The rule whose corners are left out one at a time."""
PARTS = {
    "nothing": "nothing",
    **{corner: title.split("\n")[0] for corner, title in CORNER_TITLES.items()},
    "floor": "the floor: F = r low",
}
"""What is left out (`klearlib.rl.left_out.PARTS`) -> what people call it."""


def _some_rules(given: object) -> list[str | dict]:
    return read_rules(given) if given else []


@dataclass(frozen=True)
class Variant(Record):
    """Runs of some rules that differ from those of the grid in what is named here."""

    rules: object = parameter([], check=read_rules, help="as `rules`")
    seeds: list[int] = count(
        "of the notebook's; none: all of them", [], minimum=0, unique=True, may_be_empty=True
    )
    learning_rate: float | None = parameter(None, above=0.0, help="in place of the deciding one")
    group_size: int | None = count("responses per problem", None, minimum=2)
    options: dict = parameter({}, record=RLOptions, help="fields of RLOptions that differ")


@dataclass(frozen=True)
class RuleGridParams(MathsRLParams):
    """Notebook 12: which clipping rule, and how much room it leaves."""

    rules: object = parameter(
        ["clip_higher", "gppo", "gppo_ratio_low"],
        check=read_rules,
        help="names or FILE.py:NAME, at every rate",
    )
    more_rules: object = parameter([], check=_some_rules, help="run at common_rates alone")
    seeds = amended([0, 1], help="one run per rule, learning rate and seed")
    learning_rates: list[float] = parameter(
        [3.0e-4], **MATHS_RATE | {"help": "of the policy"}, unique=True
    )
    common_rates: list[float] = parameter(
        [3.0e-4],
        **MATHS_RATE | {"help": "those of all rules; E1 and E8 are decided at the largest"},
        unique=True,
    )
    decides_on: str = choice(
        "what decides: benchmarks or validation set",
        *("benchmarks", VALIDATION),
    )
    variants: dict = parameter(
        {"lag": {"rules": ["gppo"], "options": {"policy_lag": 1}}},
        entries=Variant,
        may_be_empty=True,
        help="other conditions",
    )
    alpha: float = parameter(0.0, **ALPHA, paper=NOT_STATED, place="Fig. 2 does not say")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rules", "more_rules"):  # the defaults have not been read
            object.__setattr__(self, name, _some_rules(getattr(self, name)))
        # In the order of published files, so that rebuilding from them gives the same.
        whole = {name: asdict(each) for name, each in sorted(self.named_variants.items())}
        object.__setattr__(self, "variants", whole)
        if other := sorted({*self.common_rates} - {*self.learning_rates}):
            raise ParameterError(f"common_rates has {other[0]:g}: add it to learning_rates too")
        both = [*self.rules, *self.more_rules]
        read_rules(both)  # no title twice
        for name, variant in self.named_variants.items():
            both += variant.rules
            if other := sorted({*variant.seeds} - {*self.seeds}):
                raise ParameterError(
                    f"variants: {name}: seeds has {other[0]}: add it to the notebook's seeds too"
                )
        require_usable(both, self)

    @property
    def named_variants(self) -> dict[str, Variant]:
        return {name: Variant(**each) for name, each in self.variants.items()}

    @property
    def decided_at(self) -> float:
        """The learning rate of E1 and E8."""
        return max(self.common_rates)


class RuleGrid(Experiment):
    """A run for each rule, learning rate and seed, and sets of variants."""

    name = "12_rules"
    Params = RuleGridParams

    @cached_property
    def rules(self) -> dict[str, str | dict]:
        """Key -> the rule, in the order of the parameters."""
        return {rule_key(rule): rule for rule in [*self.params.rules, *self.params.more_rules]}

    @cached_property
    def titles(self) -> dict[str, str]:
        """Key -> what people call the rule."""
        variants = self.params.named_variants.values()
        others = (rule for each in variants for rule in each.rules)
        return {rule_key(rule): rule_title(rule) for rule in [*self.rules.values(), *others]}

    def rates_of(self, *rules: str) -> list[float]:
        """The learning rates that all of `rules` run at, smallest first."""
        p = self.params
        wide = [rule_key(rule) for rule in p.rules]
        return sorted(p.learning_rates if {*rules} <= {*wide} else p.common_rates)

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        """What decides E1 and E8 comes first, for all seeds."""
        p = self.params
        first = [(rule, p.decided_at) for rule in FIRST if rule in self.rules]
        cells = [(rule, rate) for rule in self.rules for rate in self.rates_of(rule)]
        rest = [cell for cell in cells if cell not in first]
        starts = {seed: of.start("math") for seed, of in origins(p.profile, p.seeds).items()}
        return {
            (at_rate(rate, rule), seed): rl_arm(
                p,
                starts[seed],
                label=f"{self.titles[rule]}, learning rate {rate:g}",
                seed=seed,
                rule=self.rules[rule],
                learning_rate=rate,
            )
            for part in (first, rest)
            for seed, (rule, rate) in itertools.product(p.seeds, part)
        }

    @cached_property
    def variant_arms(self) -> dict[Arm, Stage]:
        """("name of the variant: rule", seed) -> its run."""
        p, found = self.params, {}
        starts = origins(p.profile, p.seeds)
        for name, each in p.named_variants.items():
            how = {"learning_rate": each.learning_rate or p.decided_at}
            how |= {"group_size": each.group_size} if each.group_size else {}
            how["options"] = replace(p.rl_options, **each.options)
            for seed, rule in itertools.product(each.seeds or p.seeds, each.rules):
                label = f"{rule_title(rule)}, {name}"
                start = starts[seed].start("math")
                stage = rl_arm(p, start, label=label, seed=seed, rule=rule, **how)
                found[f"{name}: {rule_key(rule)}", seed] = stage
        return found

    @cached_property
    def left_out_arms(self) -> dict[Arm, Stage]:
        """(GPPO, seed) -> the updates at its largest rate after its run at the smallest common one,
        for the seeds that measure gradients by corner."""
        p, found = self.params, {}
        asked = [v for v in p.named_variants.values() if v.options.get("corner_gradients")]
        seeds = dict.fromkeys(seed for each in asked for seed in each.seeds or p.seeds)
        for seed in seeds if STEEP in self.rules and p.engine == LOCAL else ():
            run = self.arms[at_rate(min(p.common_rates), STEEP), seed]
            found[STEEP, seed] = Stage(
                "left_out",
                "klearlib.rl.left_out:leave_corners_out",
                run.params | {"learning_rate": max(self.rates_of(STEEP)), "num_updates": 4},
                {n: each for n, each in run.inputs.items() if n in ("world", "pool")} | {"rl": run},
                label=f"updates with one corner left out, seed {seed}",
                estimate_s=60.0,
            )
        return found

    def run_sets(self) -> dict[str, Mapping[Arm, Stage]]:
        return super().run_sets() | {VARIANTS: self.variant_arms, LEFT_OUT: self.left_out_arms}

    def at(self, rate: float) -> Results:
        """The runs at one learning rate, by rule."""
        return self.runs.under(f"learning rate {rate:g}")

    def judged_on(self) -> dict[str, Results]:
        return {"": self.at(self.params.decided_at), "E5": self.runs}

    def looked_on(self) -> list[Results]:
        return [self.at(self.params.decided_at)]

    def common_seeds(self, *rules: str) -> list[int]:
        """The seeds that all of `rules` have finished at all of their common rates."""
        rates = self.rates_of(*rules)
        return self.runs.common_seeds([at_rate(x, rule) for x in rates for rule in rules])

    def values(
        self, rule: str, seeds: Sequence[int], rates: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """For a rule, [rates, seeds] each: the score that decides claims, and the right responses
        to the validation set at the last step."""
        runs = [self.at(rate) for rate in rates]
        ends = [mine.ends(rule, "validation") for mine in runs]
        right = [[each[seed].total("right") for seed in seeds] for each in ends]
        return np.array([self._scores(mine, rule, seeds) for mine in runs]), np.array(right)

    @cached_property
    def decided_in_words(self) -> str:
        if self.params.decides_on == VALIDATION:
            return "Decided on the validation set at temperature 1"
        return decided_on("E1", self.params.profile, "math")

    @cached_property
    def decided_on_benchmarks(self) -> list[str]:
        if self.params.decides_on == VALIDATION:
            return [VALIDATION]
        return deciding("E1", self.params.profile, "math")

    def _scores(self, runs: Results, rule: str, seeds: Sequence[int]) -> np.ndarray:
        on = self.decided_on_benchmarks
        return runs.replicate_scores(rule, seeds, on, statistic="second_half")

    def _points(self, a: np.ndarray, b: np.ndarray) -> Comparison:
        """a - b in points, paired by replicate."""
        return compare(100 * a, 100 * b, margin=100 * self.statistics.margin)

    def _collapsed(self, runs: Results, rule: str, seeds: Sequence[int]) -> np.ndarray:
        """bool [seeds]: whether each run ends further below its start than C3 allows."""
        most = paper.claim("C3").rule.numbers["max_score_drop"]
        return -np.array(runs.with_seeds(seeds).score_changes()[rule]) > most

    def _useful(self, rule: str) -> list[float]:
        """The useful rates of a rule, over the seeds that it has finished at all of its rates."""
        rates, seeds = self.rates_of(rule), self.common_seeds(rule)
        if not seeds:
            return []
        means = self.values(rule, seeds, rates)[0].mean(1)
        near = useful_rates(means, margin=self.statistics.margin)
        return [rate for rate, is_near in zip(rates, near, strict=True) if is_near]
