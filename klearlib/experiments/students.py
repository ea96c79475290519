"""What the notebooks on data share: stages, students compared with the paper's tables, notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from klearlib import paper
from klearlib.experiments.benchmarks import counterparts
from klearlib.experiments.experiment import Experiment
from klearlib.experiments.origins import DOMAIN_WORDS, Origin, origin, origins
from klearlib.experiments.results import Arm
from klearlib.experiments.score_tables import Row, score_bars, score_table
from klearlib.experiments.shown import Frame, table
from klearlib.paper import claim
from klearlib.params.data import SFTSchedule
from klearlib.report.curves import Panel
from klearlib.report.verdicts import Evidence
from klearlib.run.stage import Stage


class DataExperiment(Experiment):
    """An experiment on data: its stages come from `data`, the first world if each replicate has its
    own."""

    phase = "long chain-of-thought SFT"
    replicated = "students"

    @cached_property
    def data(self) -> Origin:
        return origin(self.params.profile, self.params.data_options)


@dataclass(frozen=True)
class Beside:
    """A table of the paper that the students of a domain are compared with, and the claims that
    they decide."""

    domain: str
    table: int
    claims: tuple[str, ...]


@dataclass(frozen=True)
class Student:
    """An arm: its label here, its column in the paper's table ("" if it has none), its group on the
    x axis of the figure and its mark there."""

    series: str
    label: str
    column: str
    group: str
    mark: str = "student"
    domain: str = "math"


class StudentExperiment(DataExperiment):
    """Students that differ only in their examples, with tables of the paper.

    students: the arms, which claims name by series or by group. printed: the tables of `beside` in
    words. choose: (origin, student) -> the stage that chooses its examples.
    """

    students: ClassVar[tuple[Student, ...]]
    beside: ClassVar[tuple[Beside, ...]]
    printed: ClassVar[str]
    choose: Callable[[Origin, Student], Stage]

    def own(self, domain: str, name: str):
        """A parameter of the students of a domain; those for code begin with ``code_``."""
        return getattr(self.params, f"code_{name}" if domain == "code" else name)

    def schedule(self, domain: str) -> SFTSchedule:
        own = {name: self.own(domain, name) for name in ("batch_size", "learning_rate")}
        return SFTSchedule(self.params.num_epochs, **own, normalizer=self.params.normalizer)

    @cached_property
    def arms(self) -> dict[Arm, Stage]:
        p, found = self.params, {}
        for seed, data in origins(p.profile, p.seeds, p.data_options).items():
            for each in self.students_in(seed):
                found[each.series, seed] = data.student(
                    each.domain,
                    self.choose(data, each),
                    self.schedule(each.domain),
                    label=each.label,
                    seed=seed,
                    num_responses=self.own(each.domain, "eval_responses"),
                )
        return found

    def students_in(self, seed: int) -> Sequence[Student]:
        """The students that can be trained in this replicate."""
        return self.students

    def of_domain(self, domain: str) -> dict[str, Student]:
        return {each.series: each for each in self.students if each.domain == domain}

    @property
    def measured_by(self) -> str:
        """As "avg@4", or "avg@4 for maths, avg@2 for code"."""
        words = {b.domain: f"avg@{self.own(b.domain, 'eval_responses')}" for b in self.beside}
        if len(words) == 1:
            return "".join(words.values())
        return ", ".join(f"{text} for {DOMAIN_WORDS[domain]}" for domain, text in words.items())

    def rows(self, beside: Beside) -> list[Row]:
        printed, found = paper.table(beside.table) / 100, []
        for series, each in self.of_domain(beside.domain).items():
            cells = printed[each.column].to_dict() if each.column else {}
            found.append(Row(each.label, self.runs.of(series), cells, each.group, each.mark))
        return found

    @table(
        "{e.printed}, the paper's and ours: {e.measured_by}, mean over seeds with 95 % t interval.",
    )
    def scores(self) -> Frame:
        import pandas as pd

        profile = self.params.profile
        parts = [
            score_table(self.rows(each), counterparts(profile, each.domain), profile)
            for each in self.beside
        ]
        return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)

    def panels(self, also: Sequence[Row] = ()) -> list[Panel]:
        """The paper's scores and ours, benchmark by benchmark. also: to draw beside ours."""
        return [
            panel
            for each in self.beside
            for panel in score_bars(
                [*self.rows(each), *also],
                counterparts(self.params.profile, each.domain),
                self.params.profile,
                responses=self.own(each.domain, "eval_responses"),
                seeds=self.params.seeds,
            )
        ]

    def evidence(self) -> dict[str, Evidence | str]:
        found = {}
        for each in self.beside:
            arms = self.of_domain(each.domain)
            known = {*arms, *(arm.group for arm in arms.values())}
            for name in each.claims:
                if absent := [arm for arm in claim(name).arms if arm not in known]:
                    found[name] = f"needs the arms {', '.join(absent)}, which are not asked for"
                    continue
                groups = {s: arm.group for s, arm in arms.items() if arm.group in claim(name).arms}
                runs = self.runs.of(*arms).renamed(groups)
                found[name] = self.compared(name, runs, each.domain)
        return found

    def common_notes(self, arms: str) -> list[str]:
        """The notes at the end of these notebooks. arms: the arms in words."""
        options = self.params.data_options
        return [
            *self.departures("options"),
            f"All {arms} have the same number of examples and of updates; K-center covers the "
            f"{options.embedding_text} by hashed TF-IDF; the paper does not name its embedding.",
            self.note_on_seeds("the base model and the examples")
            + " Benchmarks are sampled at temperature "
            f"{options.eval_temperature:g} and top-p {options.eval_top_p:g}, as in the paper.",
        ]
