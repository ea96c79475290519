"""The figures of notebook 12."""

from __future__ import annotations

from functools import cached_property

from klearlib.experiments.objectives import coefficients_of
from klearlib.experiments.results import Results
from klearlib.experiments.rule_grid import BASELINE, LEFT_OUT, VARIANTS, RuleGrid
from klearlib.experiments.rules import made
from klearlib.experiments.score_tables import seed_interval
from klearlib.experiments.shown import Figure, Frame, figure
from klearlib.params import is_real, root
from klearlib.report.bars import forest_figure
from klearlib.report.rule_figures import (
    coefficient_grid,
    mechanism,
    profiles,
    rate_windows,
    two_worlds,
)


class RulePictures(RuleGrid):
    """The grid with its figures; those that show a table take it from the subclass, `Rules`."""

    @cached_property
    def compared_rules(self) -> dict[str, list[int]]:
        """Rule -> the deciding seeds that it and Clip-Higher have finished at all rates of both;
        rules with fewer than two are left out."""
        found = {}
        for rule in self.rules if BASELINE in self.rules else ():
            seeds = self.common_seeds(rule, BASELINE)
            mine = [seed for seed in seeds if seed in self.deciding_seeds]
            if len(mine) > 1:
                found[rule] = mine
        return found

    @cached_property
    def measured(self) -> dict[str, Results]:
        """Variant -> its runs, for variants that measure the gradient of each corner."""
        names = self.params.named_variants.items()
        asked = [name for name, how in names if how.options.get("corner_gradients")]
        return {name: runs for name in asked if (runs := self.done(VARIANTS).under(name))}

    @figure(
        "The coefficient F of every rule against the ratio, solid for a positive and dashed for a "
        "negative advantage; for rules that weigh whole responses, of a response of one token.",
        alt="Small multiples, one for each rule: F over r up to 2.2 for both signs of A, and "
        "F = r in grey.",
        when=lambda e: True,
    )
    def coefficients(self) -> Figure:
        drawn = {self.titles[k]: made(rule, self.params) for k, rule in self.rules.items()}
        return coefficient_grid({title: coefficients_of(rule) for title, rule in drawn.items()})

    @figure(
        "Score over learning rate; the bar below a panel is the window of rates within the margin "
        "of the rule's best.",
        alt="One panel for each rule that runs at every rate: mean score with 95 % interval "
        "against the learning rate, its useful window drawn below.",
        when=lambda e: len(e.params.learning_rates) > 1,
    )
    def windows(self) -> Figure:
        import pandas as pd

        rows = []
        for rule in self.rules:
            rates, seeds = self.rates_of(rule), self.common_seeds(rule)
            if seeds and len(rates) == len(self.params.learning_rates) > 1:
                near = self._useful(rule)
                for rate, scores in zip(rates, self.values(rule, seeds, rates)[0], strict=True):
                    spread = seed_interval(scores)
                    rows.append([self.titles[rule], rate, *spread, rate in near])
        columns = ["rule", "learning_rate", "score", "low", "high", "useful"]
        return rate_windows(pd.DataFrame(rows, columns=columns))

    @figure(
        "Each rule minus Clip-Higher, at its own learning rate and as the mean of the common ones; "
        "the margin is shaded.",
        alt="Forest plot, one row for each rule, with 95 % intervals.",
        when=lambda e: bool(e.compared_rules),
    )
    def forest(self) -> Figure:
        import pandas as pd

        tables = {"at its own rate": "rules", "mean of the common rates": "common"}
        parts = [self.table(name).assign(where=where) for where, name in tables.items()]
        frame = pd.concat(parts).dropna(subset="difference")
        names = ["difference", "diff_low", "diff_high"]
        values = frame[names].div(100).set_axis(["value", "low", "high"], axis=1)
        rows = pd.concat([frame["where"], frame["rule"].rename("difference"), values], axis=1)
        return forest_figure(rows, margin=self.statistics.margin)

    @figure(
        "Performance profiles: the share of replicates and common learning rates in which a rule "
        "scores at least the value on the x axis; higher is better everywhere.",
        alt="A panel with a falling line for each rule, and Clip-Higher's in grey beside it.",
        when=lambda e: bool(e.compared_rules),
    )
    def profile(self) -> Figure:
        rates = sorted(self.params.common_rates)
        return profiles(
            {
                self.titles[rule]: self.values(rule, seeds, rates)[0].ravel()
                for rule, seeds in self.compared_rules.items()
            },
            beside=self.titles[BASELINE],
        )

    @figure(
        "What the low corner does. Left: the squared norm of the gradient of its tokens, divided "
        "by that of the tokens inside. Middle: how far a step moves the log-probability of tokens "
        "with a negative advantage. Right: one logit of a rare token that is pushed down n times "
        "at a rate of eta: a constant F never lets go, F = r does. Last, where it was measured: "
        "the score after four updates at GPPO's largest rate with one corner left out, minus the "
        "score after the same with the whole rule.",
        alt="Three panels: two over RL steps with a line for each rule, and the closed form of the "
        "one-logit model; a fourth with an interval for each corner left out.",
        when=lambda e: bool(e.measured),
    )
    def mechanism(self) -> Figure:
        runs = next(iter(self.measured.values()), Results({}))
        return mechanism(
            runs.curve("train/gradient_norm2_low_negative"),
            runs.curve("train/gradient_norm2_inside"),
            runs.curve("train/moved_negative"),
            titles=self.titles,
            floor=1 - self.params.eps_low,
            left_out=self.table("left_out") if self.done(LEFT_OUT) else None,
        )

    @figure(
        "The same rules in the miniature (results/full, left) and here: the score that decides "
        "against the learning rate, mean over replicates with 95 % t interval.",
        alt="Two panels, a line for each rule: score against learning rate, miniature and here.",
        when=lambda e: e.miniature_rates is not None and bool(e.runs),
    )
    def beside(self) -> Figure:
        import pandas as pd

        columns = ["rule", "learning_rate", "seeds", "score", "low", "high"]
        here = [self.table("rates")[columns]]
        for name, how in self.params.named_variants.items():
            if name in self._other_rates:
                mine = self.table("variants").query("variant == @name")
                here.append(mine.assign(learning_rate=how.learning_rate)[columns])
        both = {"miniature": self.miniature_rates, "here": pd.concat(here)}
        return two_worlds(both, self.titles)

    @cached_property
    def miniature_rates(self) -> Frame | None:
        """The table of rates of results/full, shown with runs of a real model."""
        return self.published_table_of("rates") if is_real(self.params.profile) else None

    @cached_property
    def _other_rates(self) -> list[str]:
        """The variants that differ from the grid only in the learning rate."""
        return [
            name
            for name, how in self.params.named_variants.items()
            if how.learning_rate not in (None, *self.params.learning_rates)
            and not (how.options or how.group_size)
        ]

    def published_table_of(self, name: str) -> Frame | None:
        """A table of this notebook in results/full, if another folder is being written."""
        import pandas as pd

        file = root() / "results" / "full" / self.name / f"{name}.csv"
        there = file.is_file() and file.parent != self.place.folder / self.name
        return pd.read_csv(file) if there else None
