"""The runs of notebook 11: which arms each exploration compares, from what start."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from klearlib.errors import ParameterError
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.nb02_data_correctness import (
    DOSED,
    CorrectnessParams,
    DataCorrectness,
    graded_responses,
)
from klearlib.experiments.origins import Start, origins, wrong_words
from klearlib.experiments.results import Arm, Results
from klearlib.experiments.rl_stages import rl_arm
from klearlib.params import is_real
from klearlib.params.fields import amended, count, parameter
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams
from klearlib.params.statistics import WORLDS
from klearlib.run.stage import Stage

EXPLORATIONS = ("E2", "E3", "E4")
RULES = ("clip_higher", "gppo", "cispo")
STEPS = {
    "D1": {"dual_clip": 10.0},
    "D5": {"lm_normalizer": "micro_batch"},
    "D6": {"group_std": "unbiased", "group_epsilon": 1e-6},
    "D7": {"loss_denominator": "micro_batch"},
    "D8": {"zero_advantage_filter": "accuracy"},
    "D9": {"format_scores": "released", "format_penalty": 0.0},
}
"""Row of docs/deviations.md -> the options of the released code."""
RELEASED = {name: value for step in STEPS.values() for name, value in step.items()}
RESPONSES_OF_ERRING = 6
"""To a problem, of the teachers of E3: the largest dose needs more wrong ones than four hold."""


@dataclass(frozen=True)
class BeyondParams(MathsRLParams):
    """Notebook 11: what the paper leaves open, E2 to E4 of claims.yaml."""

    worlds: ClassVar[tuple[str, ...]] = ("miniature", "code_miniature", "data_miniature")

    explorations: list[str] = parameter(
        ["E2"], choices=EXPLORATIONS, unique=True, help="which of them run"
    )
    seeds = amended(help="one run per arm and seed; E3: one student")
    learning_rate: float = parameter(3.0e-4, **MATHS_RATE | {"help": "of the policy in E4"})
    frontier_rates: list[float] = parameter(
        [3.0e-4], **MATHS_RATE | {"help": "the grid of E2"}, unique=True
    )
    updates: list[int] = count("updates per rollout batch in E2", default=[1, 4], unique=True)
    alpha: float = parameter(
        0.1, **ALPHA | {"help": "of the LM loss in E4"}, paper=0.1, place="Table 6"
    )
    micro_batch_tokens: int = count(
        "tokens of a micro-batch where E4 averages by them", default=400, paper=NOT_STATED
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for number in self.updates:
            if self.num_problems % number:
                raise ParameterError(
                    f"updates: {number} updates cannot have equal shares of {self.num_problems} "
                    "problems: give divisors of num_problems"
                )
        if "E2" in self.explorations and 1 not in self.updates:
            raise ParameterError("updates must hold 1, at which all rules are equal: add 1")
        if "E3" in self.explorations and is_real(self.profile):
            raise ParameterError(
                f"E3 needs teachers made to err, which profile {self.profile!r} has not: leave it "
                "out of explorations"
            )
        shared = [name for name in RELEASED if name in self.options]
        if "E4" in self.explorations and shared:
            raise ParameterError(f"E4 switches {', '.join(shared)}: leave it out of options")


class BeyondArms(Experiment):
    """An arm is a series "exploration, where: name", as "E2, 0.0001, 8 updates: gppo"."""

    name = "11_beyond"
    Params = BeyondParams

    @cached_property
    def correctness(self) -> CorrectnessParams:
        """How the students of E3 are trained: as those of the profile's notebook 02."""
        return DataCorrectness.params_of(self.params.profile)

    def reads(self) -> dict[str, object]:
        return {DataCorrectness.name: self.correctness} if self.asks("E3") else {}

    def asks(self, exploration: str) -> bool:
        return exploration in self.params.explorations

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        p, found = self.params, {}
        students = self.students()
        for seed, of in origins(p.profile, p.seeds).items():
            start = of.start("math")
            for exploration, made in (
                ("E2", self._frontier),
                ("E4", self._released),
            ):
                if self.asks(exploration):
                    found |= {(series, seed): stage for series, stage in made(start, seed)}
            found |= {(series, seed): stage for series, stage in students.get(seed, {}).items()}
        return found

    def _frontier(self, start: Start, seed: int) -> Iterator[tuple[str, Stage]]:
        p = self.params
        for rate, number, rule in itertools.product(p.frontier_rates, p.updates, RULES):
            # At one update all rules are one: the first replicate shows it, the others rely on it.
            trained = "gppo" if number == 1 and seed != p.seeds[0] else rule
            how = {"learning_rate": rate, "alpha": 0.0, "seed": seed, "rule": trained}
            how["mini_batch_problems"] = p.num_problems // number
            label = f"{trained}, learning rate {rate:g}, {number} updates a batch"
            yield f"{at('E2', rate, number)}: {rule}", rl_arm(p, start, label=label, **how)

    def _released(self, start: Start, seed: int) -> Iterator[tuple[str, Stage]]:
        p = self.params
        parts = start.compute | {"micro_batch_tokens": p.micro_batch_tokens}
        for arm, changed in {"paper": {}, **STEPS, "released": RELEASED}.items():
            how = {"learning_rate": p.learning_rate, "alpha": p.alpha, "seed": seed}
            how["options"] = replace(p.rl_options, **changed)
            begin = replace(start, compute=parts) if "micro_batch" in changed.values() else start
            yield f"E4: {arm}", rl_arm(p, begin, label=f"{arm}, alpha {p.alpha:g}", **how)

    def students(self) -> dict[int, dict[str, Stage]]:
        """Seed -> the students of E3 by series; each kind of error has a teacher of its own."""
        if not self.asks("E3"):
            return {}
        from klearlib.experiments.origins.miniature import (
            ERRING_TEACHER,
            ERROR_KINDS,
            ErringOrigin,
        )

        p, found = self.params, {}
        how = replace(self.correctness, num_responses=RESPONSES_OF_ERRING)
        for seed in p.seeds:
            world, mine = seed if self.statistics.design == WORLDS else 0, {}
            for kind in ERROR_KINDS:
                data = ErringOrigin(kind, p.profile, how.data_options, world)
                for difficulty, share in itertools.product(DOSED, how.wrong_shares):
                    chosen = graded_responses(data, ERRING_TEACHER, how, difficulty, share)
                    mine[f"E3: {difficulty}_{kind}_{share:g}"] = data.student(
                        "math",
                        chosen,
                        how,
                        label=f"{difficulty}, {kind}, {wrong_words(share)}",
                        seed=seed,
                        num_responses=how.eval_responses,
                    )
            found[seed] = mine
        return found

    def judged_on(self) -> dict[str, Results]:
        found = super().judged_on()
        for name in EXPLORATIONS:
            found[name] = self.runs.of(*(s for s in self.runs.series() if s.startswith(name)))
        return found

    def part(self, where: str) -> Results:
        """The finished runs of an exploration, by arm."""
        mine = [series for series in self.runs.series() if series.partition(": ")[0] == where]
        return self.runs.of(*mine).renamed({each: each.rpartition(": ")[2] for each in mine})


def at(exploration: str, rate: float, updates: int) -> str:
    """Where an arm stands, as "E2, 0.0001, 8 updates"."""
    return f"{exploration}, {rate:g}, {updates} updates"
