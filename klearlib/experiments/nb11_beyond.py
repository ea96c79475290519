"""Notebook 11: what the paper leaves open, E2 to E4 of claims.yaml."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from klearlib import paper
from klearlib.experiments.benchmarks import decided_on, deciding
from klearlib.experiments.beyond_arms import (
    EXPLORATIONS,
    RESPONSES_OF_ERRING,
    RULES,
    STEPS,
    BeyondArms,
    at,
)
from klearlib.experiments.judged import largest_rates, stable_runs
from klearlib.experiments.nb02_data_correctness import DOSED
from klearlib.experiments.results import Results, last_fifth
from klearlib.experiments.score_tables import seed_interval
from klearlib.experiments.shown import Figure, Frame, Rows, figure, table
from klearlib.report.bars import forest_figure, heat_maps
from klearlib.report.curves import learning_curves
from klearlib.report.section import NOT_TESTED, SampleItem
from klearlib.report.verdicts import Evidence

if TYPE_CHECKING:
    import pandas as pd

_COST = {"0": 1, "0.3": -1}
"""Share of wrong responses -> the sign of its score in what they cost."""


class Beyond(BeyondArms):
    """Three explorations; a profile runs those that `explorations` names."""

    title = "What the paper leaves open"
    section = "beyond the paper"
    question = (
        "How do clipping rules age off-policy, when do wrong data help, and what does the released "
        "code change?"
    )
    phase = "RL for mathematics"

    def scores(self, runs: Results, arm: str, seeds: Sequence[int], how="second_half") -> pd.Series:
        """By seed: the score of each run of an arm, as the claims take it."""
        import pandas as pd

        benchmarks = deciding("E4", self.params.profile, "math")
        found = runs.replicate_scores(arm, seeds, benchmarks, statistic=how)
        return pd.Series(found, pd.Index(seeds, name="seed"))

    @table(
        "Differences of scores over the second half (E3: at the end), paired by seed, with 95 % t "
        "interval, not corrected. What decides a claim is in the table of replicates.",
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
        runs, how = self.part(where), "second_half" if where == "E4" else "last"
        if seeds := runs.common_seeds(weights):
            total = sum(w * self.scores(runs, arm, seeds, how) for arm, w in weights.items())
            found = seed_interval(total, lowest=-1.0)
            rate = f"learning rate {self.params.learning_rate:g}"
            among = rate if where == "E4" else "easy and hard problems"
            yield [where, among, name, len(seeds), *found]

    def effects_of(self, exploration: str) -> Frame:
        effects = self.table("effects")
        return effects[effects["exploration"] == exploration]

    @table(
        "E2: score over the second half, stability by the limits of C3, entropy over the last "
        "fifth of the steps, updates that a batch had after the filter. At one update all rules "
        "are equal: the first seed is trained by each of them, and equal is 1 where its metrics "
        "and weights are the same bit for bit; the other seeds have one run for all rules.",
        columns="rule, rate, updates, seeds, score, low, high, stable, entropy, made, equal",
        when=lambda e: e.asks("E2"),
    )
    def frontier(self) -> Rows:
        p = self.params
        for rate in sorted(p.frontier_rates) if self.asks("E2") else ():
            for number in sorted(p.updates):
                runs = self.part(at("E2", rate, number))
                same, stable = self._equal_seeds(rate), stable_runs(runs)
                for rule, mine in runs.each(RULES):
                    seeds = mine.common_seeds([rule])
                    scores = self.scores(mine, rule, seeds)
                    row = [rule, rate, number, len(seeds), *seed_interval(scores)]
                    share = float(np.mean([stable[rule, seed] for seed in seeds]))
                    row += [share, last_fifth(mine.curve("train/entropy"))]
                    made = mine.mean("train/num_updates")
                    yield [*row, made, sum(same.values()) if number == 1 else np.nan]

    def _equal_seeds(self, rate: float) -> dict[int, bool]:
        """Seed that each rule trained -> whether all left the same metrics and weights at one
        update a batch."""
        runs, found = self.part(at("E2", rate, 1)), {}
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
        "are more steps of the optimiser too. {e.says[E2]}",
        alt="A heat map for each clipping rule, with the stability frontier drawn.",
        when=lambda e: bool(len(e.table("frontier"))),
    )
    def e2(self) -> Figure:
        return heat_maps(self.table("frontier"))

    @figure(
        "E3, the score against the share of wrong responses, by kind of error. {e.says[E3]}",
        alt="One panel for easy and one for hard problems, one line for each kind of error: score "
        "over the percentage of wrong responses.",
        when=lambda e: bool(e.part("E3")),
    )
    def e3(self) -> Figure:
        import pandas as pd

        from klearlib.experiments.origins.miniature import ERROR_KINDS

        runs, rows = self.part("E3"), []
        for arm in itertools.product(DOSED, ERROR_KINDS, self.correctness.wrong_shares):
            difficulty, kind, share = arm
            name = f"{difficulty}_{kind}_{share:g}"
            if seeds := runs.common_seeds([name]):
                where = kind, f"{difficulty} problems", 100 * share
                rows += [(*where, *it) for it in self.scores(runs, name, seeds, "last").items()]
        frame = pd.DataFrame(rows, columns=["series", "panel", "step", "seed", "value"])
        return learning_curves(frame, x_label="wrong responses, percent")

    @figure(
        "E4, from the paper to its released code: each step by itself, then all of them; right of "
        "0 the paper's way scores higher. {e.says[E4]}",
        alt="Forest plot: the paper's way less each of the released code's differences.",
        when=lambda e: len(e.effects_of("E4")) > 0,
    )
    def e4(self) -> Figure:
        return forest_figure(self.effects_of("E4"), margin=self.statistics.margin)

    @cached_property
    def says(self) -> dict[str, str]:
        """Exploration -> its verdict in one sentence."""
        return {
            each.claim: f"{each.claim} is {each.verdict}: "
            f"{each.reason if each.verdict == NOT_TESTED else each.measured or each.reason}."
            for each in self.verdicts()
        }

    def evidence(self) -> dict[str, Evidence | str]:
        absent = "was not asked for (explorations): profile full"
        found = {name: f"{name} {absent}" for name in EXPLORATIONS}
        for name in filter(self.asks, EXPLORATIONS):
            found[name] = self._on_frontier() if name == "E2" else self._on_scores(name)
        return found

    def _on_scores(self, name: str) -> Evidence | str:
        words = [decided_on(name, self.params.profile, "math")]
        return self.compared(name, self.part(name), "math", words=words)

    def _on_frontier(self) -> Evidence | str:
        p = self.params
        rates, most = sorted(p.frontier_rates), max(p.updates)
        if most == 1:
            return "one update per rollout batch: more are needed (updates)"
        runs = {rate: self.part(at("E2", rate, most)) for rate in rates}
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
        return []  # of as many arms they would fill the page

    def notes(self) -> list[str]:
        return [
            *self.departures("options"),
            "Arms that another notebook has too are the same runs.",
            f"E3's teachers give {RESPONSES_OF_ERRING} responses to a problem, as the largest dose "
            "needs more wrong ones than four hold.",
            "E4 averages by micro-batches of "
            f"{self.params.micro_batch_tokens} tokens for D5 and D7; at one micro-batch both are "
            "the paper's way.",
            self.note_on_seeds("the SFT checkpoint"),
        ]
