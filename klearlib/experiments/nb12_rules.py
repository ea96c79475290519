"""Notebook 12: published clipping rules under one protocol, E1, E5 and E8 of claims.yaml."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np

from klearlib import paper
from klearlib.evaluate.statistics import holm
from klearlib.experiments.judged import shares_in_corners
from klearlib.experiments.own_rates import at_own_rates, counted, own_rates, swap_p, two_sided, word
from klearlib.experiments.results import KINDS, last_fifth, not_judged_text
from klearlib.experiments.rule_grid import BASELINE, FIRST, LEFT_OUT, PARTS, VARIANTS
from klearlib.experiments.rule_pictures import RulePictures
from klearlib.experiments.rules import without
from klearlib.experiments.score_tables import seed_interval
from klearlib.experiments.shown import Frame, Rows, table
from klearlib.paper.schema import Claim
from klearlib.params import is_real
from klearlib.report.section import SampleItem
from klearlib.report.verdicts import Evidence, verdicts
from klearlib.rl.rule_table import PUBLISHED

_CLIP = (0.2, 0.28)  # of the published rules that have none of their own
SECONDARY = (("clip_higher", "gppo"), ("gppo_ratio_low", "clip_higher"))
LOW_CORNER = (("gppo_ratio_low", "gppo"), ("gppo_no_low", "gppo_ratio_low"), ("cispo", "gppo"))
AA = "tis"
"""Clip-Higher by another name here: the sampler and the trainer agree to rounding."""


class Rules(RulePictures):
    """Each rule at every learning rate, at its own, and under other conditions."""

    title = "Which clipping rule"
    section = "beyond the paper"
    question = (
        "Which clipping rule should one use, how much room does it leave for the learning rate, "
        "and what in GPPO's low corner costs stability?"
    )
    phase = "RL for mathematics"

    # what decides

    def evidence(self) -> dict[str, Evidence | str]:
        first = self._at_one_rate("E1")
        return {"E1": first, "E5": self._at_own_rates(), "E8": self._second(first)}

    def _at_one_rate(self, claim_id: str) -> Evidence | str:
        about, rate = paper.claim(claim_id), self.params.decided_at
        if absent := self._lacks(about):
            return absent
        mine = self.at(rate).with_seeds(self.deciding_seeds)
        lost = mine.of(*about.arms).not_judged(self.decided_on_benchmarks, statistic="second_half")
        words = [self.decided_in_words, f"At learning rate {rate:g}", not_judged_text(lost)]
        checked = shares_in_corners(mine, about)
        numbers = partial(self._scores, mine)
        return self.paired(claim_id, mine, numbers, words=words, checked=checked)

    def _second(self, first: Evidence | str) -> Evidence | str:
        """E8 follows E1 in a fixed sequence, so that both share one error rate."""
        if isinstance(first, str):
            return first
        found = verdicts({"E1": first}, self.judging)[0].verdict
        if found not in ("supported", "reproduced"):
            return f"it follows E1 in a fixed sequence, and E1 is {found}"
        return self._at_one_rate("E8")

    def _at_own_rates(self) -> Evidence | str:
        about = paper.claim("E5")
        if absent := self._lacks(about):
            return absent
        done = [{*self.common_seeds(*each.a, *each.b)} for each in about.comparisons]
        seeds = sorted(set.intersection({*self.deciding_seeds}, *done))
        if len(seeds) < 2:
            return "it needs two replicates of all rules at all of their learning rates"
        values = {}
        for each in about.comparisons:
            rates = self.rates_of(*each.a, *each.b)
            both = (self.values(rule, seeds, rates) for rule in (*each.a, *each.b))
            values[each.name] = tuple(at_own_rates(*of) for of in both)
        return Evidence(values, seeds, [self.decided_in_words])

    def _lacks(self, about: Claim) -> str:
        p = self.params
        changed = self.changed_rule_options
        if changed or (p.eps_low, p.eps_high) != _CLIP:
            return f"the rules are not the claim's with {changed or 'another clip range'}"
        absent = [rule for rule in about.arms if rule not in self.rules]
        return without(absent) if absent else ""

    # what is shown

    @table(
        "Each rule at its own learning rate, which the validation sets of the other replicates "
        "choose, minus Clip-Higher at its own, of the rates that both run at. In points; p by the "
        "paired t-test, two-sided, corrected by Holm over the rules (except TIS, the A/A pair), "
        "and by swapping both rules in whole replicates, rates chosen again (p_swap; p_swap_holm "
        "corrected alike). better: the share of replicates in which the rule is above Clip-Higher. "
        "verdict, by the t-test: higher or lower where the corrected p is at most 0.05; same where "
        "the 90 % interval is inside the margin.",
        columns="rule, source, own_rate, seeds, score, low, high, difference, diff_low, diff_high, "
        "p, p_holm, p_swap, p_swap_holm, better, verdict",
        when=lambda e: bool(e.compared_rules),
        name="rules",
    )
    def rules_table(self) -> Rows:
        pairs, tests, swaps = {}, {}, {}
        for rule, seeds in self.compared_rules.items():
            rates = self.rates_of(rule, BASELINE)
            both = [self.values(each, seeds, rates) for each in (rule, BASELINE)]
            pairs[rule] = [np.stack(each) for each in zip(*both, strict=True)]
            tests[rule] = self._points(*at_own_rates(*pairs[rule]))
            swaps[rule] = swap_p(*pairs[rule])
        corrected = _corrected({rule: two_sided(test) for rule, test in tests.items()})
        swaps_corrected = _corrected(swaps)
        for rule, (scores, right) in pairs.items():
            (a, b), found = at_own_rates(scores, right), tests[rule]
            rates = self.rates_of(rule, BASELINE)
            chosen = ", ".join(counted(rates[place] for place in own_rates(right[0])))
            row = [self.titles[rule], self._source(rule), chosen, len(a), *seed_interval(a)]
            if rule == BASELINE:
                yield [*row, *[np.nan] * 8, ""]
                continue
            p = corrected.get(rule, np.nan)
            row += [found.value, found.low, found.high, two_sided(found), p]
            row += [swaps[rule], swaps_corrected.get(rule, np.nan)]
            better = float(np.mean((a > b) + (a == b) / 2))
            yield [*row, better, "A/A pair" if rule == AA else word(found, p)]

    @table(
        "Your rules among the published ones of results/full, which ran on another machine and, "
        "where the numbers of seeds differ, in other worlds of the same kind.",
        when=lambda e: bool(e.own) and e.published_table_of("rules") is not None,
        name="published",
    )
    def published_table(self) -> Frame:
        import pandas as pd

        here = self.table("rules").assign(where="here")
        both = pd.concat([here, self.published_table_of("rules").assign(where="results/full")])
        columns = ["rule", "seeds", "score", "difference", "diff_low", "diff_high", "verdict"]
        return both.sort_values("difference", ascending=False)[[*columns, "where"]]

    @cached_property
    def own(self) -> list[str]:
        """The rules from the user's files."""
        return [k for k, rule in self.rules.items() if isinstance(rule, dict) and "source" in rule]

    def answers(self) -> list[str]:
        if not self.own or not self.compared_rules:
            return []
        rows = self.table("rules").set_index("rule")
        return [
            f"{name} - Clip-Higher, each at its own learning rate: {row.difference:+.1f} points "
            f"[{row.diff_low:+.1f}, {row.diff_high:+.1f}], n = {row.seeds}: {row.verdict} "
            f"(p {row.p_holm:.2g}, by swaps {row.p_swap:.2g})"
            for name in (self.titles[key] for key in self.own)
            if name in rows.index and not np.isnan((row := rows.loc[name]).difference)
        ]

    @table(
        "Of a real model, registered beside E1: Clip-Higher minus GPPO, and F = r low minus "
        "Clip-Higher, at each learning rate that was run. In points, 95 % t interval paired by "
        "replicate; p two-sided, corrected by Holm over the rows.",
        columns="difference, learning_rate, seeds, value, low, high, p, p_holm, verdict",
        when=lambda e: is_real(e.params.profile),
    )
    def secondary(self) -> Rows:
        p, done = self.params, self.done(VARIANTS)
        runs = {p.decided_at: self.at(p.decided_at)}
        for name in self._other_rates:
            runs[p.named_variants[name].learning_rate] = done.under(name)
        found = {}
        for rate, pair in itertools.product(runs, SECONDARY):
            seeds = [s for s in runs[rate].common_seeds(pair) if s in self.deciding_seeds]
            if len(seeds) > 1:
                a, b = (self._scores(runs[rate], rule, seeds) for rule in pair)
                found[" - ".join(map(self.titles.get, pair)), rate] = seeds, self._points(a, b)
        corrected = holm([two_sided(test) for _, test in found.values()])
        for ((name, rate), (seeds, test)), p_holm in zip(found.items(), corrected, strict=True):
            row = [name, f"{rate:g}", len(seeds), test.value, test.low, test.high]
            yield [*row, two_sided(test), p_holm, word(test, p_holm)]

    @table(
        "The mean over the common learning rates, in points minus Clip-Higher's, tested as above. "
        "How robust a rule is, shown and not tested: interquartile mean over replicates and rates, "
        "and the window of useful learning rates (doublings within the margin of the best). At the "
        "largest common rate: collapsed is the share of runs that end more than 5 points below "
        "their start on the validation set, p_collapse McNemar's exact test against Clip-Higher.",
        columns="rule, seeds, score, low, high, difference, diff_low, diff_high, p, p_holm, "
        "interquartile, window, collapsed, p_collapse, entropy, low_corner",
        when=lambda e: bool(e.compared_rules),
    )
    def common(self) -> Rows:
        from scipy.stats import binomtest, trim_mean

        rates = sorted(self.params.common_rates)
        scores = {
            rule: [self.values(each, seeds, rates)[0] for each in (rule, BASELINE)]
            for rule, seeds in self.compared_rules.items()
        }
        tests = {rule: self._points(*(of.mean(0) for of in both)) for rule, both in scores.items()}
        corrected = _corrected({rule: two_sided(test) for rule, test in tests.items()})
        for rule, seeds in self.compared_rules.items():
            own, found = scores[rule][0], tests[rule]
            mine = self.at(max(rates)).with_seeds(seeds)
            fell, theirs = (self._collapsed(mine, each, seeds) for each in (rule, BASELINE))
            only = int(np.sum(fell & ~theirs)), int(np.sum(theirs & ~fell))
            near = self._useful(rule) or [np.nan]
            window = np.log2(max(near) / min(near)) if len(self.rates_of(rule)) > 2 else np.nan
            against = [found.value, found.low, found.high, two_sided(found)]
            against = [np.nan] * 4 if rule == BASELINE else against
            row = [self.titles[rule], len(seeds), *seed_interval(own.mean(0)), *against]
            row += [corrected.get(rule, np.nan), trim_mean(own.ravel(), 0.25), window]
            row += [float(fell.mean()), binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0]
            row += [last_fifth(mine.of(rule).curve("train/entropy"))]
            yield [*row, mine.of(rule).mean("train/token_share_low_negative")]

    @table(
        "Every rule at every learning rate: the score that decides, mean over replicates with 95 % "
        "t interval, its difference from Clip-Higher's at the same rate, in points, paired, not "
        "corrected, and metrics of the runs.",
        columns="rule, learning_rate, seeds, score, low, high, difference, diff_low, diff_high, "
        "collapsed, entropy, low_corner, smallest_ratio, truncated",
        name="rates",
    )
    def rates_table(self) -> Rows:
        for rule in self.rules:
            for rate in self.rates_of(rule):
                mine = self.at(rate).of(rule)
                if not (seeds := mine.common_seeds([rule])):
                    continue
                scores = self.values(rule, seeds, [rate])[0][0]
                row = [self.titles[rule], f"{rate:g}", len(seeds), *seed_interval(scores)]
                both = self.at(rate).common_seeds([rule, BASELINE])
                if rule == BASELINE or len(both) < 2:
                    row += [np.nan] * 3
                else:
                    found = self._points(*self._pair(rule, BASELINE, both, rate))
                    row += [found.value, found.low, found.high]
                row += [float(self._collapsed(mine, rule, seeds).mean())]
                row += [last_fifth(mine.curve("train/entropy"))]
                row += [mine.mean("train/token_share_low_negative")]
                row += [float(mine.curve("train/ratio_min")["value"].min())]
                yield [*row, last_fifth(mine.curve("rollout/truncated_rate"))]

    @table(
        "GPPO's low corner at each learning rate: differences in points, paired by replicate, with "
        "95 % t interval and median, not corrected. E1 and E8 are the first two at the deciding "
        "rate. CISPO has GPPO's constant there too.",
        columns="difference, learning_rate, seeds, value, low, high, median",
        when=lambda e: all(rule in e.rules for rule in FIRST),
    )
    def low_corner(self) -> Rows:
        for a, b in LOW_CORNER:
            for rate in self.rates_of(a, b) if a in self.rules else ():
                if len(seeds := self.at(rate).common_seeds([a, b])) > 1:
                    pair = self._pair(a, b, seeds, rate)
                    found, middle = self._points(*pair), 100 * np.median(pair[0] - pair[1])
                    row = [f"{self.titles[a]} - {self.titles[b]}", f"{rate:g}", len(seeds)]
                    yield [*row, found.value, found.low, found.high, middle]

    def _pair(self, a: str, b: str, seeds: Sequence[int], rate: float) -> list[np.ndarray]:
        """The scores [seeds] of two rules at one learning rate."""
        return [self.values(rule, seeds, [rate])[0][0] for rule in (a, b)]

    @table(
        "What was written at the deciding rate: the responses kept from the first step, which all "
        "rules take with the same weights, and from the last. restated (of a real model): the last "
        "number is wrong and one of the problem's own; nonsense: no answer could be judged.",
        columns="rule, step, seeds, responses, {e.kinds_of_samples}",
        when=lambda e: any(run.samples for run in e.runs.runs.values()),
    )
    def written(self) -> Rows:
        for rule, mine in self.at(self.params.decided_at).each(self.rules):
            steps = max((run.sampled_steps for run in mine.runs.values()), key=len)
            for end, step in zip((0, -1), steps, strict=False):
                found = mine.sample_kinds(end)
                if not is_real(self.params.profile):
                    found["wrong"] += found.pop("restated", 0)
                row = [self.titles[rule], step, len(mine), found.total()]
                yield row + [found[kind] for kind in self.kinds_of_samples.split(", ")]

    @property
    def kinds_of_samples(self) -> str:
        """The columns of `written`: in the miniature any wrong digit is one of the problem's."""
        real = is_real(self.params.profile)
        return ", ".join(kind for kind in KINDS if real or kind != "restated")

    @table(
        "The same rules under other conditions, variant by variant: the score that decides, and "
        "its difference in points, paired by replicate, from Clip-Higher's in the variant and from "
        "the rule's own in the grid at the same learning rate; 95 % t intervals, not corrected.",
        columns="variant, rule, seeds, score, low, high, minus_clip_higher, clip_low, clip_high, "
        "minus_grid, grid_low, grid_high",
        when=lambda e: bool(e.params.variants) and bool(e.done(VARIANTS)),
    )
    def variants(self) -> Rows:
        for name, how in self.params.named_variants.items():
            runs = self.done(VARIANTS).under(name)
            grid = self.at(how.learning_rate or self.params.decided_at)
            same = not (how.options or how.group_size)  # then the grid's Clip-Higher will do
            beside = grid if same and BASELINE not in runs.series() else runs
            for rule in runs.series():
                seeds = runs.common_seeds([rule])
                row = [name, self.titles[rule], len(seeds)]
                row += seed_interval(self._scores(runs, rule, seeds))
                for other, against in ((beside, BASELINE), (grid, rule)):
                    both = [s for s in other.common_seeds([against]) if s in seeds]
                    if len(both) < 2 or (other is beside and rule == BASELINE):
                        row += [np.nan] * 3
                        continue
                    theirs = self._scores(other, against, both)
                    found = self._points(self._scores(runs, rule, both), theirs)
                    row += [found.value, found.low, found.high]
                yield row

    @table(
        "One corner left out: GPPO's run at the smallest common rate goes on for four updates at "
        "its largest, then four more with the whole rule (nothing), with F = 0 in one corner, or "
        "with F = r in place of the floor. Shown: the score on the validation set at temperature 1 "
        "after them, and its difference in points from that with the whole rule, paired by "
        "replicate, 95 % t interval, not corrected; and how far the last four moved "
        "log-probabilities, in nats per token, where A < 0 and where tokens stood in the low "
        "corner before them.",
        columns="left_out, seeds, before, score, minus_nothing, low, high, moved_negative, "
        "moved_low, entropy, grad_norm",
        when=lambda e: bool(e.done(LEFT_OUT)),
        name="left_out",
    )
    def left_out_table(self) -> Rows:
        runs = self.done(LEFT_OUT)
        lines = [run.metrics[0] for run in runs.runs.values()]
        scores = {name: np.array([line[f"score/{name}"] for line in lines]) for name in PARTS}
        for name, mine in scores.items():
            row = [PARTS[name], len(lines), runs.mean("score/before"), mine.mean()]
            found = [np.nan] * 3
            if len(lines) > 1 and name != "nothing":
                compared = self._points(mine, scores["nothing"])
                found = [compared.value, compared.low, compared.high]
            metrics = ("moved_negative", "moved_low", "entropy", "grad_norm")
            yield [*row, *found, *(runs.mean(f"{metric}/{name}") for metric in metrics)]

    def _source(self, rule: str) -> str:
        spec = self.rules[rule]
        if isinstance(spec, str):
            return "2508.07629"
        known = PUBLISHED.get(spec["name"])
        return known.source if known else "of your own"

    def drawn_samples(self) -> list[SampleItem]:
        shown = [*FIRST, *self.own]  # those of all rules would fill the page
        return self.at(self.params.decided_at).of(*shown).drawn_samples()

    def notes(self) -> list[str]:
        rates = ", ".join(f"{rate:g}" for rate in sorted(self.params.common_rates))
        return [
            *self.departures("options"),
            f"All rules run at {rates}; E1 and E8 are decided at {self.params.decided_at:g}. E8 "
            "follows E1 in a fixed sequence and is tested only if E1 is supported.",
            "A rule has the constants and the averaging of its paper or its authors' code (column "
            "source), and 0.2 and 0.28 where they give no clip range.",
            "Choosing a rate by the other replicates costs a rule whose two best rates are nearly "
            "tied: a replicate that favours one of them leaves the others favouring the other. The "
            "table of rates compares rules at one rate.",
            "TIS corrects for the sampler, which here computes as the trainer does, so TIS equals "
            "Clip-Higher up to rounding: this A/A pair shows the noise of training.",
            self.note_on_seeds("the SFT checkpoint"),
        ]


def _corrected(p_values: Mapping[str, float]) -> dict[str, float]:
    """Rule -> its two-sided p-value, corrected by Holm over the rules other than Clip-Higher."""
    family = [rule for rule in p_values if rule not in (AA, BASELINE)]
    return dict(zip(family, holm([p_values[rule] for rule in family]), strict=True))
