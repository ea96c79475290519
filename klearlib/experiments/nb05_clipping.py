"""Notebook 05: GPPO, Clip-Higher and CISPO from the same start (section 5.2.1, Fig. 2)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from klearlib import paper
from klearlib.experiments import objectives
from klearlib.experiments.benchmarks import curve_titles, deciding
from klearlib.experiments.clipping_arms import SCORES, ClippingArms
from klearlib.experiments.judged import done_at_all, largest_rates, shares_in_corners
from klearlib.experiments.results import Results
from klearlib.experiments.rules import made, note_on_own
from klearlib.experiments.score_tables import learning_table, score_panel, seed_interval
from klearlib.experiments.shown import Figure, Frame, Rows, figure, table
from klearlib.params import VERL
from klearlib.report.curves import (
    CORNER_TITLES,
    Panel,
    corner_shares,
    paper_beside_ours,
)
from klearlib.report.rule_figures import coefficient_grid
from klearlib.report.section import NOT_RUN, Counterpart
from klearlib.report.style import series_order, series_style
from klearlib.report.verdicts import Evidence, answer

if TYPE_CHECKING:
    from klearlib.paper import Claim
    from klearlib.rl.coefficients import Rule


class Clipping(ClippingArms):
    """One arm for each clipping rule, at the learning rate at which it does best.

    A series is a rule of `rules`; the claims are judged on the arms that they name.
    """

    title = "GPPO against Clip-Higher and CISPO"
    section = "5.2.1"
    question = (
        "Does keeping bounded gradients from clipped tokens train better than dropping them "
        "(Clip-Higher) or clamping all of them (CISPO)?"
    )
    phase = "RL for mathematics"
    counterparts = (
        Counterpart("Fig. 2a", "clipping rules, mathematics", ("fig2",)),
        Counterpart("Fig. 2b", "clipping rules, code", ("code_scores",)),
        Counterpart("Fig. 2c", "clipping rules, gradient norm", ("fig2",)),
    )

    @cached_property
    def gradients(self) -> Frame:
        p = self.params
        others = {name: rule for name, rule in self.others.items() if rule.weights is None}
        return objectives.gradient_check(eps_low=p.eps_low, eps_high=p.eps_high, others=others)

    @cached_property
    def others(self) -> dict[str, Rule]:
        """Series -> the rule, for rules that are not the paper's."""
        return {a.series: made(a.rule, self.params) for a in self.rules.values() if a.is_own}

    @table(
        "Your rules, each minus a rule of the library, by the number that decides C1 and the same "
        "paired t-test, in points. differs_on: the share of tokens whose coefficients may differ.",
        columns="rule, against, seeds, difference, low, high, differs_on, verdict, why",
        when=lambda e: bool(e.others),
    )
    def your_rules(self) -> Rows:
        decides, benchmarks = self.statistics.decides, deciding("C1", self.params.profile, "math")
        statistic = paper.claim("C1").statistic
        against = [name for name in ("gppo", "clip_higher") if name in self.rules]
        for own, other in itertools.product(self.others, against):
            seeds = self.runs.common_seeds([own, other])
            seeds = [s for s in seeds if s in self.deciding_seeds] if decides else seeds
            row = [self.rules[own].title, self.rules[other].title, len(seeds)]
            differs = self._differs_on(own, other)
            if len(seeds) < 2:
                done = f"{len(seeds)} replicate{'' if len(seeds) == 1 else 's'} of both"
                why = f"{done} done, and the test needs two"
                yield [*row, *[float("nan")] * 3, differs, NOT_RUN, why]
                continue
            scores = [
                self.runs.replicate_scores(arm, seeds, benchmarks, statistic=statistic)
                for arm in (own, other)
            ]
            value, low, high, word, reason = answer(*scores, self.judging)
            yield [*row, value, low, high, differs, word, reason]

    def _differs_on(self, own: str, other: str) -> float:
        """The share of tokens in those regions, inside the clip range or in a corner of it, where
        the coefficients of two rules differ at all: mean over steps and runs of both. 1 for weights
        of responses or mini-batches."""
        import torch

        from klearlib.rl.coefficients import coefficient, corner_masks
        from klearlib.rl.rule_specs import trial_tokens

        rules = [made(self.rules[name].rule, self.params) for name in (own, other)]
        if any(rule.weights is not None for rule in rules):
            return 1.0
        ratio, advantage, of_token = trial_tokens(torch.float64, clip=rules[1])
        first, second = (coefficient(ratio, advantage, rule, **of_token) for rule in rules)
        apart = ~torch.isclose(first, second) & (advantage != 0)
        masks = corner_masks(ratio, advantage, rules[1])
        runs, share = self.runs.of(own, other), 0.0
        inside = 1.0
        for corner, mask in masks.items():
            here = runs.mean(f"train/token_share_{corner}")
            inside -= here
            share += here if bool(apart[mask].any()) else 0.0
            apart &= ~mask
        return share + (inside if bool(apart.any()) else 0.0)

    def answers(self) -> list[str]:
        return [
            f"{each.rule} - {each.against}: {each.difference:+.1f} points "
            f"[{each.low:+.1f}, {each.high:+.1f}], n = {each.seeds}: {each.verdict} ({each.why}); "
            f"their coefficients differ on at most {100 * each.differs_on:.2g} % of the tokens"
            if each.seeds > 1
            else f"{each.rule} - {each.against}: {each.why}"
            for each in (self.table("your_rules").itertuples() if self.others else ())
        ]

    @figure(
        "The paper's Fig. 2 and ours.{e.words_on_code}{e.at_rates}",
        alt="The paper's curves for AIME 2024, LiveCodeBench V5 and the gradient norm, dashed, "
        "above ours for maths, for code where it is measured, and the gradient norm, mean over "
        "seeds; below them scores minus GPPO's, paired by seed, with a 95 % band.",
    )
    def fig2(self) -> Figure:
        drawn = {"C1": (self.params, self.runs)}
        if self.code_results:
            drawn["C2"] = self.soft, self.code_results
        panels = [
            score_panel(*by, self.drawn[name], SCORES[name][1], less="gppo")
            for name, by in drawn.items()
        ]
        norm, words = self.runs.curve("train/grad_norm"), "gradient norm"
        last = Panel(words, words, paper.figure("2c"), norm, "norm", log_y=True)
        return paper_beside_ours([*panels, last])

    @figure(
        "The coefficient F of the rules, solid where A > 0 and dashed where A < 0.",
        alt="Small multiples, one for each rule: F against the ratio for both signs of A, with "
        "F = r in grey.",
        when=lambda e: True,
        name="rules",
    )
    def rules_figure(self) -> Figure:
        p = self.params
        printed = {
            name: rule for name, (rule, _) in objectives.rules(p.eps_low, p.eps_high).items()
        }
        del printed["gppo_released"]  # GPPO at the ratios that are drawn
        drawn = printed | self.others
        shapes = {
            series_style(name).label: objectives.coefficients_of(drawn[name])
            for name in series_order(drawn)
        }
        return coefficient_grid(shapes)

    @figure(
        "Where tokens leave the clip range.{e.at_rates}",
        alt="Share of tokens and of gradient mass in each of the four corners over the RL steps.",
    )
    def corners(self) -> Figure:
        import pandas as pd

        parts = [
            self.runs.curve(f"train/{stem}_{corner}").assign(corner=corner, quantity=quantity)
            for quantity, stem in (("tokens", "token_share"), ("gradient", "gradient_share"))
            for corner in CORNER_TITLES
        ]
        return corner_shares(pd.concat(parts, ignore_index=True))

    @table("Each rule's coefficient in the four corners, by autograd.", name="rules")
    def rules_table(self) -> Frame:
        p = self.params
        found = objectives.corner_table(
            self.gradients, eps_low=p.eps_low, eps_high=p.eps_high, others=self.others
        )
        return found.assign(rule=[series_style(rule).label for rule in found["rule"]])

    @table(
        "Scores at the first and last step: avg@{p.eval_responses} at temperature 0.6 for the "
        "benchmarks, share right at temperature 1 for the validation set; mean over seeds, 95 % t "
        "interval over seeds.{e.at_rates}",
    )
    def scores(self) -> Frame:
        return self._learnt(self.runs, "math")

    @table(
        "The same for RL on code, avg@{e.soft.eval_responses}; a program is right if it passes "
        "every test.",
        when=lambda e: bool(e.code_results),
    )
    def code_scores(self) -> Frame:
        return self._learnt(self.code_results, "code")

    def _learnt(self, runs: Results, domain: str) -> Frame:
        printed = {mine: SCORES[name][1] for name, mine in self.drawn.items()}
        how = {"paper_figures": printed, "what": "rule"}
        return learning_table(runs, self.params.profile, domain, **how)

    @table(
        "Every rule at every learning rate: last scores on the validation set, by which the rate "
        "is chosen, and on the benchmarks, which play no part in it; mean over seeds, 95 % t "
        "interval.",
        when=lambda e: len(e.params.learning_rates) > 1,
    )
    def rates(self) -> Rows:
        titles = {"validation": "validation"} | curve_titles(self.params.profile, "math")
        for rule, rate in itertools.product(self.rules, sorted(self.params.learning_rates)):
            if runs := self.at(rate, [rule], self.params.seeds):
                row = {"rule": series_style(rule).label, "learning_rate": f"{rate:g}"}
                row["seeds"] = len(runs)
                for name, title in titles.items():
                    interval = seed_interval(runs.end_scores(name)["value"])
                    row |= zip((title, f"{title} low", f"{title} high"), interval, strict=True)
                mine = [*self.chosen.get(rule, {}).values()]
                times = mine.count(rate)
                text = "yes" if times == len(mine) else f"{times} of {len(mine)}"
                yield row | {"chosen": text if times else ""}

    def evidence(self) -> dict[str, Evidence | str]:
        gppo = self.gradients[self.gradients["rule"] == "gppo"]
        # "Never zero" is part of C14: one token without a gradient refutes it, whatever the error.
        error = float(gppo["error"].max()) if (gppo["autograd"] != 0).all() else float("inf")
        claims = ("C1", "C2", "C18", "C25", "C26", "E6", "C3")
        return {"C14": Evidence(error), **{name: self._on_runs(name) for name in claims}}

    def seeds_deciding(self, claim_id: str) -> list[int]:
        return self.statistics.code_rl if claim_id == "C2" else self.deciding_seeds

    def _on_runs(self, claim_id: str) -> Evidence | str:
        about, rates = paper.claim(claim_id), self.params.learning_rates
        if changed := self.changed_rule_options:
            return f"the rules are not the paper's with {changed}"
        if claim_id == "E6" and len(rates) == 1:
            return "there is only one learning rate: give several (learning_rates)"
        if why := self.why_not_judged(about.arms):
            return why
        if claim_id in ("C25", "E6"):
            by_rate = {rate: self.at(rate, about.arms, self.params.seeds) for rate in rates}
            if claim_id == "C25":
                return self._pushed_down(by_rate, about)
            # log10 of the largest rate at which a run is stable by the rule of C3
            return self.paired("E6", *largest_rates(by_rate, about.arms))
        domain, runs, words = "math", self.runs, [self.words_on_rates]
        if claim_id == "C2":
            if not self.params.code:
                return "no run is trained on code: set code: true"
            domain, runs, words = "code", self.code_results, []
        runs = runs.of(*about.arms).with_seeds(self.seeds_deciding(claim_id))
        how = {"words": words, "checked": shares_in_corners(runs, about)}
        if claim_id == "C3":
            values = runs.gradient_norms(), runs.score_changes()
            seeds = runs.common_seeds(about.arms)
            return Evidence(values, seeds, words) if runs else "no run has finished yet"
        tries = min((runs.end(arm, "validation").n for arm in runs.runs), default=4)
        if claim_id == "C26" and tries < 4:
            return f"pass@k of {tries // 2} tries explores nothing: set validation_responses to 4"
        if claim_id == "C26":
            return self.paired(claim_id, runs, runs.pass_at_half, **how)
        return self.compared(claim_id, runs, domain, **how)

    def _pushed_down(self, by_rate: Mapping[float, Results], about: Claim) -> Evidence | str:
        """C25: both rules at the same learning rates, since a larger rate pushes further."""
        if self.params.engine == VERL or self.params.rl_options.policy_lag:
            return "log-probabilities after a step are not measured with policy_lag or on verl"
        shares = {rate: runs.pushed_down() for rate, runs in by_rate.items()}
        measured = {
            rate: Results({arm: runs.runs[arm] for arm in shares[rate]})
            for rate, runs in by_rate.items()
        }

        def share(rule: str, seeds: Sequence[int]) -> np.ndarray:
            return np.mean([[of[rule, seed] for seed in seeds] for of in shares.values()], axis=0)

        return self.paired("C25", done_at_all(measured, about.arms), share)

    def notes(self) -> list[str]:
        on_code = []
        if self.params.code:
            changes = ", ".join(
                f"{key}: {value}" for key, value in self.params.code_changes.items()
            )
            on_code.append(
                "C2's runs train on code, from the checkpoint that writes programs, with the "
                f"settings of notebook 07{changes and f', except {changes}'}. "
                "What RL on mathematics does for code is not measured here."
            )
        return [
            *self.departures("options"),
            *note_on_own(self.rules.values()),
            self._note_on_rates(),
            "The rules of a seed share the order of problems. "
            + self.note_on_seeds("the SFT checkpoint"),
            *on_code,
        ]

    def _note_on_rates(self) -> str:
        """How far an ordering of rules holds, given the learning rates."""
        rates = self.params.learning_rates
        why = (
            "GPPO never cuts off tokens that it pushes down, and rests on small steps more than "
            "Clip-Higher does (docs/miniature.md has the runs)."
        )
        if len(rates) == 1:
            return (
                f"One learning rate for all rules ({rates[0]:g}). An order of rules measured at "
                f"one learning rate holds at that learning rate: {why}"
            )
        tried, tuning = ", ".join(f"{rate:g}" for rate in sorted(rates)), self.statistics.tuning
        over = f"over the seeds {', '.join(map(str, tuning))}, which decide nothing"
        over = over if tuning else "of each seed over all others"
        return (
            f"{self.words_on_rates}, of {tried}: the most right responses on the validation set at "
            f"the last step, {over}; a tie goes to the smallest rate. No benchmark plays a part in "
            f"the choice. Why a grid: {why}"
        )
