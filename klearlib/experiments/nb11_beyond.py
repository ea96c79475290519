"""Notebook 11: what the paper leaves open, E2 to E4 of claims.yaml."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from klearlib import paper
from klearlib.errors import ParameterError
from klearlib.experiments.benchmarks import deciding
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.judged import largest_rates, stable_runs
from klearlib.experiments.nb02_data_correctness import (
    DOSED,
    IN_TABLE_2,
    CorrectnessParams,
    DataCorrectness,
    graded_responses,
)
from klearlib.experiments.origins import Start, origins, wrong_words
from klearlib.experiments.results import Arm, Results, last_fifth
from klearlib.experiments.rl_stages import rl_arm
from klearlib.experiments.score_tables import seed_interval
from klearlib.experiments.shown import Figure, Rows, figure, table
from klearlib.params import is_real
from klearlib.params.fields import amended, count, parameter
from klearlib.params.options import NOT_STATED
from klearlib.params.rl import ALPHA, MATHS_RATE, MathsRLParams
from klearlib.params.statistics import WORLDS
from klearlib.report.bars import forest_figure, heat_maps
from klearlib.report.curves import learning_curves
from klearlib.report.section import NOT_TESTED, SampleItem
from klearlib.report.verdicts import Evidence
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
WORDS = {
    "D1": "dual clip at 10",
    "D5": "LM loss by micro-batch",
    "D6": "deviation by G - 1",
    "D7": "policy loss by micro-batch",
    "D8": "filter by accuracy",
    "D9": "format score, no penalty",
}
"""The same for people."""
RELEASED = {name: value for step in STEPS.values() for name, value in step.items()}
RESPONSES_OF_ERRING = 6
"""Responses per problem of E3's teachers: four may hold too few wrong ones."""

_COST = {"0": 1, "0.3": -1}
"""Share of wrong responses -> the sign of its score in what they cost."""


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
        if "E2" in self.explorations and self.rl_options.policy_lag:
            raise ParameterError(
                "E2 trains one rule for all at one update, where ratios are 1, which they are not "
                "with policy_lag: leave it out of options"
            )
        if "E3" in self.explorations and is_real(self.profile):
            raise ParameterError(
                f"E3 needs teachers made to err, which profile {self.profile!r} lacks: leave it "
                "out of explorations"
            )
        shared = [name for name in RELEASED if name in self.options]
        if "E4" in self.explorations and shared:
            raise ParameterError(f"E4 switches {', '.join(shared)}: leave it out of options")


class Beyond(Experiment):
    """Three explorations; a profile runs those that `explorations` names. An arm is a series
    "exploration, where: name", as "E2, 0.0001, 8 updates: gppo"."""

    name = "11_beyond"
    title = "What the paper leaves open"
    section = "beyond the paper"
    question = (
        "How do clipping rules age off-policy, when do wrong data help, and what does the released "
        "code change?"
    )
    phase = "RL for mathematics"
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
        makers = {"E2": self._frontier, "E4": self._released, "E3": self._students}
        for seed, of in origins(p.profile, p.seeds).items():
            start = of.start("math")
            for make in (make for name, make in makers.items() if self.asks(name)):
                found |= {(series, seed): stage for series, stage in make(start, seed)}
        return found

    def _frontier(self, start: Start, seed: int) -> Iterator[tuple[str, Stage]]:
        p = self.params
        for rate, number, rule in itertools.product(p.frontier_rates, p.updates, RULES):
            # At one update all rules are equal: the first replicate shows it, the others use it.
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

    def _students(self, _: Start, seed: int) -> Iterator[tuple[str, Stage]]:
        """Those of E3; each kind of error has a teacher of its own."""
        from klearlib.experiments.origins.miniature import ERRING_TEACHER, ERROR_KINDS, ErringOrigin

        if not self.can_run("E3", seed):
            return
        how = replace(self.correctness, num_responses=RESPONSES_OF_ERRING)
        world = seed if self.statistics.design == WORLDS else 0
        for kind in ERROR_KINDS:
            data = ErringOrigin(kind, self.params.profile, how.data_options, world)
            for difficulty, share in itertools.product(DOSED, IN_TABLE_2):
                chosen = graded_responses(data, ERRING_TEACHER, how, difficulty, share)
                label = f"{difficulty}, {kind}, {wrong_words(share)}"
                of = {"label": label, "seed": seed, "num_responses": how.eval_responses}
                series = f"E3: {difficulty}_{kind}_{share:g}"
                yield series, data.student("math", chosen, how, **of)

    def judged_on(self) -> dict[str, Results]:
        found = super().judged_on()
        for name in EXPLORATIONS:
            found[name] = self.runs.of(*(s for s in self.runs.series() if s.startswith(name)))
        return found

    def scores(
        self, runs: Results, arm: str, seeds: Sequence[int], how="second_half"
    ) -> np.ndarray:
        """float [seeds]: the score of each run of an arm, as the claims take it."""
        benchmarks = deciding("E4", self.params.profile, "math")
        return runs.replicate_scores(arm, seeds, benchmarks, statistic=how)

    @table(
        "Differences of scores over the second half (E3: at the end), paired by seed, with 95 % t "
        "interval, not corrected. The numbers that decide claims are in table replicates.",
        columns="exploration, where, difference, seeds, value, low, high",
    )
    def effects(self) -> Rows:
        costs = {}
        for kind, sign in {"habit": 1, "random": -1}.items():
            cost = {f"{each}_{kind}_{at}": way / 2 for each in DOSED for at, way in _COST.items()}
            costs |= {arm: sign * weight for arm, weight in cost.items()}
            yield from self._effect("E3", f"cost of 30 % wrong, {kind}", cost)
        yield from self._effect("E3", "cost of habits - of random errors", costs)
        for step in (*STEPS, "released"):
            name = f"paper - {step if step in STEPS else 'all of them'}"
            yield from self._effect("E4", name, {"paper": 1, step: -1})

    def _effect(self, where: str, name: str, weights: dict) -> Rows:
        """Of E3 the score of the students at the end."""
        runs, how = self.runs.under(where), "second_half" if where == "E4" else "last"
        if seeds := runs.common_seeds(weights):
            total = sum(w * self.scores(runs, arm, seeds, how) for arm, w in weights.items())
            found = seed_interval(total, lowest=-1.0)
            at_rate = f"learning rate {self.params.learning_rate:g}"
            among = at_rate if where == "E4" else "easy and hard problems"
            yield [where, among, name, len(seeds), *found]

    @table(
        "E2: score over the second half, stability by the limits of C3, entropy over the last "
        "fifth of the steps, updates per batch after the filter. At one update all rules are "
        "equal: the first seed is trained with each rule, and equal is 1 if its metrics and "
        "weights are the same bit for bit; the other seeds have one run for all rules.",
        columns="rule, rate, updates, seeds, score, low, high, stable, entropy, made, equal",
        when=lambda e: e.asks("E2"),
    )
    def frontier(self) -> Rows:
        p = self.params
        for rate, number in itertools.product(sorted(p.frontier_rates), sorted(p.updates)):
            runs = self.runs.under(at("E2", rate, number))
            same, stable = self._equal_seeds(rate), stable_runs(runs)
            for rule, mine in runs.each(RULES):
                seeds = mine.common_seeds([rule])
                row = [rule, rate, number, len(seeds)]
                row += seed_interval(self.scores(mine, rule, seeds))
                row.append(float(np.mean([stable[rule, seed] for seed in seeds])))
                row += [last_fifth(mine.curve("train/entropy")), mine.mean("train/num_updates")]
                yield [*row, sum(same.values()) if number == 1 else np.nan]

    def _equal_seeds(self, rate: float) -> dict[int, bool]:
        """Seed that each rule trained -> whether all gave the same metrics and weights at one
        update per batch."""
        runs, found = self.runs.under(at("E2", rate, 1)), {}
        for seed in runs.common_seeds(RULES):
            mine = [runs.runs[rule, seed] for rule in RULES]
            if len({run.key for run in mine}) > 1:
                # As texts: NaN is not equal to itself.
                left = [json.dumps([run.metrics, run.about["weights"]]) for run in mine]
                found[seed] = all(each == left[0] for each in left)
        return found

    @figure(
        "E2, score over the second half by learning rate and updates per rollout batch; above the "
        "line fewer than half of the runs are stable. Compare rules within a column: more updates "
        "also mean more optimiser steps. {e.says[E2]}",
        alt="A heat map for each clipping rule, with the stability frontier drawn.",
        when=lambda e: bool(len(e.table("frontier"))),
    )
    def e2(self) -> Figure:
        return heat_maps(self.table("frontier"))

    @figure(
        "E3, the score against the share of wrong responses, by kind of error. {e.says[E3]}",
        alt="One panel for easy and one for hard problems, one line for each kind of error: score "
        "over the percentage of wrong responses.",
        when=lambda e: bool(e.runs.under("E3")),
    )
    def e3(self) -> Figure:
        import pandas as pd

        from klearlib.experiments.origins.miniature import ERROR_KINDS

        runs, rows = self.runs.under("E3"), []
        for arm in itertools.product(DOSED, ERROR_KINDS, IN_TABLE_2):
            difficulty, kind, share = arm
            name = f"{difficulty}_{kind}_{share:g}"
            if seeds := runs.common_seeds([name]):
                where = kind, f"{difficulty} problems", 100 * share
                scores = self.scores(runs, name, seeds, "last")
                rows += [(*where, *each) for each in zip(seeds, scores, strict=True)]
        frame = pd.DataFrame(rows, columns=["series", "panel", "step", "seed", "value"])
        return learning_curves(frame, x_label="wrong responses, percent")

    @figure(
        "E4, from the paper to its released code: each step on its own, then all of them; right of "
        "0 the paper's way scores higher. {e.says[E4]}",
        alt="Forest plot: the paper's way minus each of the released code's differences.",
        when=lambda e: len(e.table("effects").query("exploration == 'E4'")) > 0,
    )
    def e4(self) -> Figure:
        rows = self.table("effects").query("exploration == 'E4'")
        names = rows["difference"].replace({f"paper - {key}": word for key, word in WORDS.items()})
        return forest_figure(rows.assign(difference=names), margin=self.statistics.margin)

    @cached_property
    def says(self) -> dict[str, str]:
        """Exploration -> its verdict in one sentence."""
        return {
            each.claim: f"{each.claim} is {each.verdict}: "
            f"{each.reason if each.verdict == NOT_TESTED else each.measured or each.reason}."
            for each in self.verdicts()
        }

    def evidence(self) -> dict[str, Evidence | str]:
        absent = "was not asked for: add it to explorations"
        found = {name: f"{name} {absent}" for name in EXPLORATIONS}
        for name in filter(self.asks, EXPLORATIONS):
            if name == "E2":
                found[name] = self._on_frontier()
            else:
                found[name] = self.compared(name, self.runs.under(name), "math")
        return found

    def _on_frontier(self) -> Evidence | str:
        p = self.params
        rates, most = sorted(p.frontier_rates), max(p.updates)
        if most == 1:
            return "there is only one update per rollout batch: give more (updates)"
        runs = {rate: self.runs.under(at("E2", rate, most)) for rate in rates}
        equal = [same for rate in rates for same in self._equal_seeds(rate).values()]
        done, largest = largest_rates(runs, RULES)
        found = [largest(rule, done.common_seeds(RULES)) for rule in RULES]  # [rules, seeds]
        ends = np.log10([min(rates) / 2, max(rates)])  # stable at no rate, and at the largest
        inside = ~np.logical_or(*(np.equal(found, end).all(axis=0) for end in ends))
        names = [check.name for check in paper.claim("E2").checks]
        shares = [float(np.mean(each)) if len(each) else 0.0 for each in (equal, inside)]
        return self.paired(
            "E2",
            done,
            largest,
            words=[f"At {most} updates per rollout batch"],
            checked=dict(zip(names, shares, strict=True)),
        )

    def drawn_samples(self) -> list[SampleItem]:
        return []  # with so many arms they would fill the page

    def notes(self) -> list[str]:
        return [
            *self.departures("options"),
            "Arms that another notebook also has are the same runs.",
            f"E3's teachers give {RESPONSES_OF_ERRING} responses to a problem, because four may "
            "hold too few wrong ones.",
            "E4 averages by micro-batches of "
            f"{self.params.micro_batch_tokens} tokens for D5 and D7; with one micro-batch both are "
            "the paper's way.",
            self.note_on_seeds("the SFT checkpoint"),
        ]


def at(exploration: str, rate: float, updates: int) -> str:
    """Where an arm stands, as "E2, 0.0001, 8 updates"."""
    return f"{exploration}, {rate:g}, {updates} updates"
