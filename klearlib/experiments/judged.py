"""How an experiment decides its claims: its numbers, paired by replicate, and what they rest on:
whether RL runs are stable, and how many of their tokens a rule can act on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from klearlib.experiments import registered
from klearlib.experiments.benchmarks import curved, decided_on, deciding
from klearlib.experiments.results import Results, not_judged_text
from klearlib.experiments.rules import RULE_OPTIONS
from klearlib.experiments.shown import changed_options
from klearlib.paper import Claim, claim
from klearlib.params import STATISTICS, RLOptions, load
from klearlib.params.statistics import WORLDS
from klearlib.report.decide import is_stable
from klearlib.report.verdicts import Evidence, Judging

if TYPE_CHECKING:
    from klearlib.experiments.tidy import Arm
    from klearlib.params.statistics import StatisticsParams


class Judged:
    """A part of every experiment, which has `params`, `runs`, `judged_on` and `known_rules`."""

    def compared(
        self, claim_id: str, runs: Results, domain: str, *, where: str = "", **how
    ) -> Evidence | str:
        """`paired` scores on what decides a domain, by the claim's statistic, which may be the
        distance of their curve from a straight line. Arms on the same side of a comparison are
        averaged. where: ends the sentence on what decides."""
        profile, about = self.params.profile, claim(claim_id)
        if about.statistic == "curve":
            distances = partial(runs.curve_distances, benchmarks=curved(claim_id, profile, domain))
            return self.paired(claim_id, runs, distances, **how)
        benchmarks = deciding(claim_id, profile, domain)
        if not benchmarks:
            return "none of the claim's benchmarks is measured here"
        asked = {"benchmarks": benchmarks, "statistic": about.statistic}
        found = self.paired(claim_id, runs, partial(runs.replicate_scores, **asked), **how)
        if isinstance(found, str):
            return found
        lost = runs.of(*about.arms).with_seeds(found.replicates).not_judged(**asked)
        decided = f"{decided_on(claim_id, profile, domain)}{where}"
        return replace(found, words=[decided, *found.words, not_judged_text(lost)])

    def paired(
        self,
        claim_id: str,
        runs: Results,
        numbers: Callable[[str, Sequence[int]], np.ndarray],
        *,
        words: Sequence[str] = (),
        checked: Mapping[str, float] | None = None,
    ) -> Evidence | str:
        """The claim's comparisons over the replicates that all of its arms have and that the
        profile decides by, or why there are none.

        numbers: (arm, seeds) -> float [seeds], one for each run. words, checked: see `Evidence`.
        """
        about = claim(claim_id)
        wanted = self.seeds_deciding(claim_id)
        seeds = [seed for seed in runs.common_seeds(about.arms) if seed in wanted]
        if not seeds:
            return f"no replicate has all arms done yet: {', '.join(about.arms)}"

        def side(arms: Sequence[str]) -> np.ndarray:
            return np.mean([numbers(arm, seeds) for arm in arms], axis=0)

        values = {each.name: (side(each.a), side(each.b)) for each in about.comparisons}
        return Evidence(values, seeds, words, checked or {})

    @property
    def statistics(self) -> StatisticsParams:
        return load(self.params.profile, STATISTICS)

    @property
    def deciding_seeds(self) -> list[int]:
        """The seeds by which the profile decides claims."""
        return getattr(self.statistics, self.replicated)

    def seeds_deciding(self, claim_id: str) -> list[int]:
        """The seeds that decide one claim."""
        return self.deciding_seeds

    def can_run(self, claim_id: str, seed: int) -> bool:
        """False for a registered replicate in which claims.yaml says that a claim cannot be run."""
        return seed not in claim(claim_id).unrunnable or seed not in self.deciding_seeds

    @property
    def changed_rule_options(self) -> str:
        """The options that make clipping rules differ from the paper's, "" for none."""
        changed = changed_options(self.params.options, RLOptions)
        return " and ".join(name for name in RULE_OPTIONS if name in changed)

    def note_on_seeds(self, shared: str) -> str:
        """What a seed is, by the profile's design, and which of its scores count. shared: what all
        seeds of one world share."""
        text = f"Seeds share {shared}; they differ in the order of training and in all sampling"
        if self.statistics.design == WORLDS:
            text = (
                "Each seed has its own world, problems included; tables and figures on data, "
                "teachers and filters show the first"
            )
        counts = "Tables of scores show the last step; table replicates names what claims count."
        return f"{text}. {counts}"

    @property
    def judging(self) -> Judging:
        return Judging(
            profile=self.params.profile,
            statistics=self.statistics,
            paper_scale=self.paper_scale,
            replicates=self.seeds_deciding,
            rule=self._rule,
            idle=self._idle,
        )

    def _rule(self, about: Claim) -> tuple[str, bool]:
        rule, sets = registered.digest(about, self.params.profile), self.judged_on()
        runs = sets.get(about.id, sets[""])
        times = (run.about["provenance"]["utc"] for run in runs.runs.values())
        since = self.known_rules.get(rule)
        return rule, since is None or since > min(times, default="")  # or never written down

    def _idle(self, about: Claim) -> list[str]:
        # An arm may be one of several comparisons ("alpha 0: filter"); without arms all are needed.
        sets = self.judged_on()
        idle = sets.get(about.id, sets[""]).untrained()
        names = {arm: arm[0].rpartition(": ")[2] for arm in idle}
        return [why for arm, why in idle.items() if not about.arms or names[arm] in about.arms]

    def _alarms(self) -> list[str]:
        """The sentences on arms in which no step trained, or truncation rose with the score."""
        sets = self.judged_on().values()
        found = [*(runs.untrained() for runs in sets), *(runs.truncation_rose() for runs in sets)]
        return [*dict.fromkeys(note for each in found for note in each.values())]


def stable_runs(runs: Results) -> dict[Arm, bool]:
    """Whether each run is stable by the limits of C3."""
    limits, found = claim("C3").rule.numbers, {}
    for series, seed in runs.runs:
        mine = runs.of(series).with_seeds([seed])
        (norms,), (change,) = mine.gradient_norms()[series], mine.score_changes()[series]
        found[series, seed] = is_stable(norms, change, limits)
    return found


def largest_rates(
    runs: Mapping[float, Results], rules: Sequence[str]
) -> tuple[Results, Callable[[str, Sequence[int]], np.ndarray]]:
    """The runs of the seeds that have all `rules` at every learning rate, at one of them; and
    (rule, seeds) -> log10 of the largest rate at which the run of each seed is stable, half the
    smallest where it is at none: float [seeds]."""
    stable = {rate: stable_runs(each) for rate, each in runs.items()}

    def largest(rule: str, seeds: Sequence[int]) -> np.ndarray:
        borne = [[rate for rate in runs if stable[rate][rule, seed]] for seed in seeds]
        return np.log10([max([min(runs) / 2, *rates]) for rates in borne])

    return done_at_all(runs, rules), largest


def done_at_all(runs: Mapping[float, Results], rules: Sequence[str]) -> Results:
    """The runs at the smallest learning rate of the seeds that have all `rules` at every one."""
    done = set.intersection(*(set(each.common_seeds(rules)) for each in runs.values()))
    return runs[min(runs)].with_seeds(done)


def shares_in_corners(runs: Results, about: Claim) -> dict[str, float]:
    """Check on corners -> the share of tokens in them, mean over steps, seeds and its arms."""
    found = {}
    for check in about.checks:
        mine = runs.of(*check.arms)
        shares = [mine.curve(f"train/token_share_{corner}")["value"] for corner in check.corners]
        # No share at all: no token was trained on, so nothing could show a difference.
        found[check.name] = sum(float(each.mean()) if len(each) else 0.0 for each in shares)
    return found
