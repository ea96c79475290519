"""Notebook 08: code RL on all problems against those with trusted tests (section 5.2.4, Fig. 4)."""

from __future__ import annotations

import json
from functools import cached_property

from klearlib.curation.pass_rates import PassRate, rates_by_id, rejected_by_pass_rate
from klearlib.experiments.nb07_soft_reward import CodeRL
from klearlib.experiments.results import Arm
from klearlib.experiments.rl_stages import filtered_code_start, teacher_pass_rates
from klearlib.experiments.score_tables import wilson
from klearlib.experiments.shown import Figure, Rows, fact, figure, table
from klearlib.params import uses_miniature
from klearlib.params.rl import CodeRLParams
from klearlib.report.curves import paper_beside_ours
from klearlib.report.section import Counterpart
from klearlib.report.verdicts import Evidence
from klearlib.run.stage import Stage

# The filter at other thresholds, from the same responses: (threshold, keep an equal rate).
_RULES = ((0.25, False), (0.5, False), (0.5, True), (0.75, False))
_PLANTED = (
    "The miniature's flaws are planted, so precision and recall are known exactly; benchmarks and "
    "validation problems have no flaws. The kinds of flaws, their share and the teacher's strength "
    "are the miniature's and decide how much there is to gain."
)
_UNKNOWN = (
    "It is not known which tests of real problems are flawed, so neither the filter's precision "
    "nor its recall is known here. Validation problems are not filtered."
)


class TestFilter(CodeRL):
    """Two arms that differ in the problems that they train on."""

    __test__ = False  # pytest, which would take it for a class of tests

    name = "08_test_filter"
    title = "Code RL with and without the test filter"
    section = "5.2.4"
    question = (
        "Does leaving out problems whose tests a teacher's programs seldom pass improve code RL, "
        "and are those the problems whose tests are flawed?"
    )
    Params = CodeRLParams
    series = ("filter", "no_filter")
    paper_figure = "4"
    what = "training problems"
    counterparts = (Counterpart("Fig. 4", "flawed tests filtered or not", ("fig4",)),)

    @cached_property
    def teachers(self) -> dict[int, Stage]:
        """Seed -> the teacher's pass rates that the filter uses: one stage, or one for each
        world."""
        return {seed: teacher_pass_rates(of, self.params) for seed, of in self.origins.items()}

    @property
    def teacher(self) -> Stage:
        """The first seed's; the tables show its problems."""
        return self.teachers[self.params.seeds[0]]

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        found = {}
        for seed, of in self.origins.items():
            starts = filtered_code_start(of, self.params), of.start("code")
            for name, start in zip(self.series, starts, strict=True):
                found[name, seed] = self.arm(start, seed=seed, code_reward="soft")
        return found

    @fact
    def teacher_rates(self) -> dict[str, list[dict]]:
        """Seed -> the teacher's pass rates, for the seeds where they are measured."""
        found = {str(seed): self.rates(teacher) for seed, teacher in self.teachers.items()}
        return {seed: rates for seed, rates in found.items() if rates}

    def rates_of(self, seed: int) -> dict[str, PassRate]:
        return rates_by_id(self.teacher_rates.get(str(seed), ()))

    @fact
    def flawed(self) -> dict[str, bool]:
        """Whether the tests of a problem of the first seed are flawed, as far as anyone knows."""
        if not self.is_done(self.teacher) or not uses_miniature(self.params):
            return {}
        path = self.folder(self.teacher.inputs["problems"]) / "truth.jsonl"
        with path.open(encoding="utf-8") as file:
            return {row["id"]: row["is_flawed"] for row in map(json.loads, file)}

    @figure(
        "The paper's Fig. 4 and ours.",
        alt="Top: the paper's LiveCodeBench V5 curves with and without the filter, dashed. Below: "
        "ours for the first code window, mean over seeds; last, with the filter minus without, by "
        "seed.",
    )
    def fig4(self) -> Figure:
        return paper_beside_ours([self.score_panel()])

    @property
    def _chosen(self) -> tuple[float, bool]:
        options = self.params.filter_options
        return options.threshold, options.keep_equal

    @table(
        "The filter against the planted truth; 95 % Wilson intervals.",
        columns="rule, kept, dropped, flawed_dropped, sound_dropped, precision, precision_low, "
        "precision_high, recall, recall_low, recall_high, flawed_share_kept, "
        "flawed_share_kept_low, flawed_share_kept_high",
    )
    def filter(self) -> Rows:
        """Precision is the share of dropped problems whose tests are flawed, recall the share of
        flawed problems that are dropped; neither is known for real problems."""
        rates = self.rates_of(self.params.seeds[0])
        for threshold, keep_equal in dict.fromkeys([self._chosen, *_RULES]) if rates else ():
            kept = _kept_at(rates, threshold, keep_equal)
            used = " (used)" if (threshold, keep_equal) == self._chosen else ""
            rule = f"pass rate {'>=' if keep_equal else '>'} {threshold:g}{used}"
            found = [float("nan")] * 11
            if self.flawed:
                flawed = [self.flawed[name] for name in rates]
                both = list(zip(flawed, kept, strict=True))
                hits, left = both.count((True, False)), both.count((True, True))
                found = [hits, both.count((False, False)), *wilson(hits, kept.count(False))]
                found += [*wilson(hits, flawed.count(True)), *wilson(left, kept.count(True))]
            yield [rule, kept.count(True), kept.count(False), *found]

    scores = CodeRL.scores

    def evidence(self) -> dict[str, Evidence | str]:
        known = [rates for seed in self.deciding_seeds if (rates := self.rates_of(seed))]
        kept = [_kept_at(rates, *self._chosen) for rates in known]
        removed = [1 - sum(each) / len(each) for each in kept]
        share = sum(removed) / len(removed) if removed else 0.0
        checked = {"problems that the filter removed": share}
        return {
            "C11": self.compared("C11", self.runs, "code", checked=checked),
            "C16": self.compared("C16", self.runs, "code", checked=checked),
        }

    def notes(self) -> list[str]:
        return [
            _PLANTED if uses_miniature(self.params) else _UNKNOWN,
            "The filter cannot tell flawed tests from a problem that the teacher cannot solve: "
            "besides flawed problems it drops those that are hard for the teacher.",
            "Both arms use the soft reward and take the same number of steps, so the arm with the "
            "filter sees fewer problems more often, and different ones at each step.",
            *super().notes(),
        ]


def _kept_at(rates: dict[str, PassRate], threshold: float, keep_equal: bool) -> list[bool]:
    """Whether the filter keeps each problem."""
    why = rejected_by_pass_rate(list(rates), rates, threshold=threshold, keep_equal=keep_equal)
    return [not reason for reason in why]
