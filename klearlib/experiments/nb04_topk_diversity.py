"""Notebook 04: the best source alone or with more of them, equal in size (Tables 4 and 5)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from klearlib.experiments.origins import DOMAIN_WORDS, Origin, wrong_words
from klearlib.experiments.shown import Figure, figure
from klearlib.experiments.students import Beside, Student, StudentExperiment
from klearlib.params.data import SFT_RATE, StudentParams
from klearlib.params.fields import amended, count, rate
from klearlib.params.options import NOT_STATED
from klearlib.report.bars import scores_over_count
from klearlib.report.section import Counterpart
from klearlib.run.stage import Stage

NUM_SOURCES = {"math": (1, 2, 4, 6, 8, 10), "code": (1, 2, 4, 6)}
"""How many sources each arm of a domain in Tables 4 and 5 has."""
EQUAL_SHARE = 0.05
"""Wrong responses in the arms of equal errors: about those of the best source; fixed in E7."""


_RANKS = {
    "maximum": max(NUM_SOURCES["math"]),
    "may_be_empty": True,
    "unique": True,
    "paper": "none",
}


@dataclass(frozen=True)
class TopKParams(StudentParams):
    """Notebook 04: the best source or more of them (Section 5.1.3, Tables 4 and 5)."""

    single_sources: list[int] = count(
        "ranks of sources with an arm of their own; the best is Top1", [], minimum=2, **_RANKS
    )
    equal_sources: list[int] = count(
        "numbers of best maths sources at equal errors; E7: 1, 4, 10", default=[], **_RANKS
    )
    num_examples = amended(24, help="examples of every maths arm, by K-center", paper=31600)
    code_examples: int = count("examples of every code arm, by K-center", default=12, paper=31600)
    batch_size = amended(help="maths examples per update")
    code_batch_size: int = count("code examples per update", default=2, paper=NOT_STATED)
    code_learning_rate: float = rate("the same for code", default=3.0e-3, **SFT_RATE)
    code_eval_responses: int = count(
        "the same for code",
        default=1,
        paper=NOT_STATED,
        place="rounding fits 16 on AIME and 4 on LiveCodeBench",
    )


@dataclass(frozen=True)
class Mixture(Student):
    """Examples from the sources of these ranks, 1 the best; wrong_share: the share of wrong
    responses, None for as they come."""

    ranks: Sequence[int] = ()
    wrong_share: float | None = None


class TopKDiversity(StudentExperiment):
    """Sets from the best one, two, ... sources of a domain, all of one size; on request from one
    source alone, and from several with as many errors as the best one has."""

    name = "04_topk_diversity"
    title = "The best source, or more of them"
    section = "5.1.3"
    question = (
        "At an equal number of examples, do more sources of lower quality add anything to the best "
        "ones?"
    )
    Params = TopKParams
    counterparts = (
        Counterpart("Table 4", "few or many sources, mathematics", ("tables4_5",)),
        Counterpart("Table 5", "few or many sources, code", ("tables4_5",)),
    )
    beside = (Beside("math", 4, ("C6", "E7")), Beside("code", 5, ("C7",)))
    printed = "Tables 4 and 5"

    @cached_property
    def students(self) -> tuple[Mixture, ...]:
        """The arms, those of Tables 4 and 5 first."""
        found = []

        def add(domain: str, group: str, words: str, ranks: Sequence[int], column="", **how):
            name, label = f"{domain}_{group}", f"{DOMAIN_WORDS[domain]} {words}"
            found.append(Mixture(name, label, column, group, domain=domain, ranks=ranks, **how))

        for domain, most in ((domain, n) for domain, counts in NUM_SOURCES.items() for n in counts):
            add(domain, f"top{most}", f"top {most}", range(1, most + 1), f"Top{most}")
        for domain, rank in itertools.product(NUM_SOURCES, self.params.single_sources):
            if rank <= max(NUM_SOURCES[domain]):
                add(domain, f"alone{rank}", f"source {rank} alone", [rank])
        for most in self.params.equal_sources:
            words = f"top {most}, {wrong_words(EQUAL_SHARE)}"
            add("math", f"equal{most}", words, range(1, most + 1), wrong_share=EQUAL_SHARE)
        return tuple(found)

    def choose(self, data: Origin, student: Mixture) -> Stage:
        p = self.params
        return data.chosen_sources(
            student.domain,
            ranks=student.ranks,
            size=p.num_examples if student.domain == "math" else p.code_examples,
            words=student.label.partition(" ")[2],
            wrong_share=student.wrong_share,
        )

    @figure(
        "The paper's Tables 4 and 5, dashed, and ours.",
        alt="Two panels, mathematics and code: scores on two benchmarks each over the number of "
        "sources, the paper's dashed, ours with 95 % intervals.",
    )
    def tables4_5(self) -> Figure:
        panels, domains = self.panels(), {}
        for each in self.beside:  # as many benchmarks of each
            count = len(panels) // len(self.beside)
            first = count * len(domains)
            domains[DOMAIN_WORDS[each.domain]] = panels[first : first + count]
        kinds = {"top": "", "equal": ", at equal errors"}
        return scores_over_count(domains, kinds, x_label="sources, best first")

    def notes(self) -> list[str]:
        return [
            "The miniature's sources are ranked by construction: from rank to rank more steps are "
            "wrong, left out or needless, and the notation clashes more. How steep this is decides "
            "how much there is to lose.",
            "From Top1 to Top10 the quality falls while the number of sources grows. Arms of one "
            "source (single_sources) show quality without mixing. Arms of equal errors "
            f"(equal_sources, {100 * EQUAL_SHARE:g} % wrong by the truth) show mixing without more "
            "wrong answers; they do not even out wrong steps that the answer does not show, "
            "missing or needless steps, or notation.",
            "With more sources, K-center over prompts chooses from more problems the ones that lie "
            "furthest apart: longer chains and fewer of the shortest family. So arms differ in "
            "their problems too, also those of E7, whose verdict is on all of this together.",
            "Each domain has its own base model, so a maths student is measured on maths and a "
            "code student on code; the paper measures both on all four benchmarks.",
            *self.common_notes("arms of a domain"),
        ]
