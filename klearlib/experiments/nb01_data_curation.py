"""Notebook 01: from raw sources to the sets for SFT and RL (sections 3.1 and 3.2.1)."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from klearlib.curation.pass_rates import (
    PassRate,
    difficulties,
    rates_by_id,
    rejected_by_pass_rate,
)
from klearlib.data.lines import read_lines
from klearlib.experiments.origins import DOMAIN_WORDS
from klearlib.experiments.score_tables import wilson
from klearlib.experiments.shown import Rows, fact, table
from klearlib.experiments.students import DataExperiment
from klearlib.miniature.source_plan import curate_sources
from klearlib.miniature.sources import TRUTH
from klearlib.params import uses_miniature
from klearlib.params.data import GradedParams
from klearlib.params.fields import parameter
from klearlib.params.options import NOT_STATED
from klearlib.run.stage import Stage

# Planted kind -> what the rejects may say about it; None: anything.
_FINDS = {
    "duplicate": ("duplicate", "overlap"),
    "contamination": ("overlap",),
    "broken": None,
    "few_tests": ("few_tests", "overlap"),
}
_FAMILIES = (
    "The miniature's prompts come from a few families, and a family's phrases occur in many "
    "benchmark items. The rule in use cuts these phrases out of both sides; the strict rule keeps "
    "them, and so removes many prompts that are no copies, each for a 9-gram that it does share."
)


@dataclass(frozen=True)
class CurationParams(GradedParams):
    """Notebook 01: from raw sources to the sets for SFT and RL (Sections 3.1, 3.2.1)."""

    stop_list: int = parameter(
        1, minimum=1, help="compared rule: n-grams in more items are boilerplate", paper=NOT_STATED
    )


class DataCuration(DataExperiment):
    """Raw sources through the funnel under three rules of overlap; no claim of the paper."""

    name = "01_data_curation"
    title = "From raw sources to training sets"
    section = "3.1, 3.2.1"
    question = (
        "What do deduplication, decontamination and the filters take away, and do they find what "
        "they should?"
    )
    Params = CurationParams

    @cached_property
    def curated(self) -> dict[tuple[str, str], Stage]:
        """(domain, overlap rule) -> the sources after that rule: with phrases that all items of a
        family share cut out; with nothing cut out; with nothing cut out, where what several items
        share removes nothing."""
        stopped = {"stop_more_than": self.params.stop_list, "words": "overlap with a stop list"}
        rules: dict[str, dict] = {
            "used": {},
            "strict": {"templates": (), "words": "strict overlap"},
            "stop list": {"templates": (), **stopped},
        }
        every = itertools.product(rules, DOMAIN_WORDS)
        return {(domain, rule): self.data.curated(domain, **rules[rule]) for rule, domain in every}

    @cached_property
    def responses(self) -> dict[str, Stage]:
        """The judged responses to the maths pool: the reference's, for difficulty, and the strong
        teacher's, for the majority filter, unless the problems have passed it already."""
        p, answers, teacher = self.params, self.data.responses, self.data.majority_teacher()
        found = {"reference": answers("reference", num_responses=p.reference_responses)}
        if teacher is not None:
            found["strong"] = answers(teacher, num_responses=p.num_responses)
        return found

    def stages(self) -> list[Stage]:
        return [*self.curated.values(), *self.responses.values()]

    @fact
    def cards(self) -> dict[str, dict]:
        """Domain -> the card of its curation by the rule in use, where it is done."""
        found = {domain: self.card(self.curated[domain, "used"]) for domain in DOMAIN_WORDS}
        return {domain: card for domain, card in found.items() if card}

    @fact
    def answered(self) -> dict[str, list[dict]]:
        """``reference``, ``strong`` -> the pass rate of each problem, where they are known."""
        return {name: self.rates(stage) for name, stage in self.responses.items()}

    @cached_property
    def pass_rates(self) -> dict[str, dict[str, PassRate]]:
        return {name: rates_by_id(rows) for name, rows in self.answered.items()}

    @table(
        "Rows of each source, stage by stage.",
        # Between rows and problems `klearlib.curation.curate.STAGES`: what each removed.
        columns="source, rows, adapter, duplicates, overlap, gold, tests, problems, share_kept, "
        "responses",
    )
    def funnel(self) -> Rows:
        for domain, card in self.cards.items():
            mine = []
            by_number = sorted(card["sources"].items(), key=lambda each: _natural(each[0]))
            for name, counts in by_number:
                read, kept, given = counts["num_read"], counts["num_kept"], card["responses"][name]
                if read:
                    removed = [
                        row["num_removed"] for row in card["funnel"] if row["source"] == name
                    ]
                    responses = given["num_kept"] + given["num_merged"]
                    mine.append([name, read, *removed, kept, kept / read, responses])
            sums = [sum(column) for column in zip(*(row[1:] for row in mine), strict=True)]
            sums[-2] = sums[-3] / sums[0]
            yield from [*mine, [f"all of {domain}", *sums]]

    @fact
    def planted(self) -> list[list]:
        """Domain, kind, way, number of rows, and how many of them curation found."""
        rows = []
        for domain in self.cards if uses_miniature(self.params) else ():
            stage = self.curated[domain, "used"]
            sources = self.folder(stage.inputs["sources"])
            for (kind, how), hits in planted_rows(self.folder(stage), sources, domain).items():
                rows.append([domain, kind.replace("_", " "), how, len(hits), sum(hits)])
        return rows

    @table(
        "What was planted, and how much of it was found.",
        columns="domain, planted, how, rows, found, recall",
    )
    def found(self) -> Rows:
        for *row, number, hits in self.planted:
            yield [*row, number, hits, hits / number]

    @fact
    def removed(self) -> list[dict]:
        """For each overlap rule and domain: how many rows it removed, and how many of the planted
        ones."""
        rows = []
        for (domain, rule), stage in self.curated.items():
            if not (card := self.card(stage)):
                continue
            removals, leaks = {*_by_place(self.folder(stage) / "removals.jsonl")}, set()
            if uses_miniature(self.params):
                truth = _truth(self.folder(stage.inputs["sources"]), domain)
                leaks = {p for p, row in truth.items() if row["kind"] == "contamination"}
            counts = {"planted": len(leaks), "hits": len(leaks & removals), "rows": len(removals)}
            counts |= {"boilerplate": card["overlap"]["num_boilerplate"]}
            rows.append({"domain": domain, "rule": rule, "left": card["num_kept"], **counts})
        return rows

    @table(
        "Rules of overlap against the planted truth; 95 % Wilson intervals.",
        columns="rule, domain, planted, removed, recall, low, high, "
        "others_removed, boilerplate, problems_left",
    )
    def overlap(self) -> Rows:
        """Recall is the share of planted benchmark prompts that are removed (NaN on real data);
        `others_removed` are prompts that nobody planted. `boilerplate`: share of removals whose
        n-grams all occur in several items."""
        words = {
            "used": "phrases of families cut out (used)",
            "strict": "nothing cut out",
            "stop list": f"n-grams in more than {self.params.stop_list} items stopped",
        }
        for each in self.removed:
            planted, hits, rows = each["planted"], each["hits"], each["rows"]
            row = [words[each["rule"]], each["domain"], planted, hits, *wilson(hits, planted)]
            yield [*row, rows - hits, each["boilerplate"] / max(1, rows), each["left"]]

    @table("The share of hard problems by the reference's pass rate, and the paper's share.")
    def difficulty(self) -> Rows:
        used, n = self.params.easy_from, self.params.reference_responses
        rates = self.pass_rates["reference"]
        for easy_from in dict.fromkeys([used, *(k / n for k in range(1, n + 1))]) if rates else ():
            found = difficulties(list(rates), rates, easy_from=easy_from)
            words = f"{easy_from:g}{' (used)' if easy_from == used else ''}"
            counts = {word: found.count(word) for word in ("easy", "hard", "unknown")}
            share = {"hard_share": counts["hard"] / len(found), "paper_hard_share": 0.88}
            yield {"easy_from": words, "problems": len(found)} | counts | share

    @table(
        "The final sets, with the paper's sizes.",
        columns="set, problems, responses, paper",
    )
    def sets(self) -> Rows:
        for domain, card in self.cards.items():
            ranked = self.data.ranked_sources(domain)
            kept = [card["responses"][name] for name in ranked]
            problems = sum(card["sources"][name]["num_kept"] for name in ranked)
            responses = sum(row["num_kept"] + row["num_merged"] for row in kept)
            yield [f"SFT, {domain}", problems, responses, "1.5M samples, both domains"]
        if rates := self.pass_rates.get("strong"):
            rule = f"RL, math: majority of {self.params.num_responses} of the strong teacher"
            why = rejected_by_pass_rate(list(rates), rates, threshold=0.5, keep_equal=False)
            yield [rule, why.count(""), None, "88K, majority of 16"]
        if card := self.cards.get("code"):
            rule = f"RL, code: at least {self.params.data_options.min_tests} tests"
            learnt = self.data.ranked_sources("code")
            pool = [counts for name, counts in card["sources"].items() if name not in learnt]
            left = sum(counts["num_kept"] for counts in pool)
            yield [rule, left, None, "18K, after pass@16 as well"]

    def notes(self) -> list[str]:
        return [
            *([_FAMILIES] if uses_miniature(self.params) else []),
            "Of equal prompts, the one from the better source stays, because sources are read best "
            "first. A prompt that shares something with a benchmark counts as overlap even if it "
            "is a duplicate too.",
            "Difficulty is the pass rate of the maths SFT checkpoint; in the paper a model "
            "annotates it.",
            *self.departures("options"),
        ]


def planted_rows(curated: Path, sources: Path, domain: str) -> dict[tuple[str, str], list[bool]]:
    """Kind and way of what was planted in a domain -> for each row whether curation found it.

    A repeated prompt, or a problem with few tests, that shares something with a benchmark counts as
    found where it is removed for that: the search for overlap comes first.
    """
    rejects, groups = _by_place(curated / "rejects.jsonl"), {}
    for place, row in _truth(sources, domain).items():
        how = "1 to 15 tests" if row["kind"] == "few_tests" else row["how"]
        reasons = _FINDS[row["kind"]]
        hit = place in rejects and (reasons is None or rejects[place]["reason"] in reasons)
        groups.setdefault((row["kind"], how), []).append(hit)
    return dict(sorted(groups.items()))


def _truth(sources: Path, domain: str) -> dict[tuple[str, int], dict]:
    """The planted rows of a domain, by their place: kind, how, of."""
    names = {source["alias"] for source in curate_sources(domain)}
    return {at: row for at, row in _by_place(sources / TRUTH).items() if at[0] in names}


def _by_place(file: Path) -> dict[tuple[str, int], dict]:
    """Name of a source and number of a row in its file -> what ``rejects.jsonl``,
    ``removals.jsonl`` or the truth says of it."""
    return {(row["source"], row["row"]): row for row in read_lines(file)}


def _natural(name: str) -> list[int | str]:
    """For an order in which source 2 stands before source 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
