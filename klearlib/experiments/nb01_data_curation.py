"""Notebook 01: from raw sources to the sets for SFT and RL (sections 3.1 and 3.2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property

from klearlib.curation.pass_rates import PassRate, difficulties, kept_by_majority
from klearlib.experiments.demos import planted
from klearlib.experiments.origins import DOMAIN_WORDS
from klearlib.experiments.score_tables import wilson
from klearlib.experiments.shown import Rows, fact, table
from klearlib.experiments.students import DataExperiment
from klearlib.params import uses_miniature
from klearlib.params.data import GradedParams
from klearlib.params.fields import parameter
from klearlib.params.options import NOT_STATED
from klearlib.run.stage import Stage

RULES = ("used", "strict", "stop list")
"""Rules of overlap that are compared: phrases that all items of a family hold are cut out; nothing
is cut out; nothing is cut out, and what several items hold removes nothing."""
_STAGE_WORDS = {
    "adapter": "unusable",
    "duplicates": "duplicate",
    "overlap": "overlap with a benchmark",
    "gold": "no answer or tests",
    "tests": "too few tests",
}  # `klearlib.curation.curate.STAGES`
_FAMILIES = (
    "The miniature's prompts come from few families, whose phrases stand in many benchmark items. "
    "The rule that is used cuts these phrases out of both sides; the strict rule, which leaves "
    "them in, removes much that is no copy, each by a 9-gram that it does share."
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
        """(domain, rule of overlap) -> the sources after that rule."""
        stopped = {"stop_more_than": self.params.stop_list, "words": "overlap with a stop list"}
        how: dict[str, dict] = {
            "used": {},
            "strict": {"templates": (), "words": "strict overlap"},
            "stop list": {"templates": (), **stopped},
        }
        return {
            (domain, rule): self.data.curated(domain, **how[rule])
            for rule in RULES
            for domain in DOMAIN_WORDS
        }

    @cached_property
    def responses(self) -> dict[str, Stage]:
        """The judged responses to the maths pool: of the reference, for difficulty, and of the
        strong teacher, for the majority filter, unless the problems have passed it already."""
        p, answers, teacher = self.params, self.data.responses, self.data.majority_teacher()
        found = {"reference": answers("reference", num_responses=p.reference_responses)}
        if teacher is not None:
            found["strong"] = answers(teacher, num_responses=p.num_responses)
        return found

    def stages(self) -> list[Stage]:
        return [*self.curated.values(), *self.responses.values()]

    @fact
    def cards(self) -> dict[str, dict]:
        """Domain -> the card of its curation by the rule that is used, where it is done."""
        found = {domain: self.card(self.curated[domain, "used"]) for domain in DOMAIN_WORDS}
        return {domain: card for domain, card in found.items() if card}

    @fact
    def answered(self) -> dict[str, list[dict]]:
        """``reference``, ``strong`` -> the pass rate of each problem, where they are known."""
        found = {name: self.rates(stage) for name, stage in self.responses.items()}
        return {name: [*map(asdict, rates.values())] for name, rates in found.items()}

    @cached_property
    def pass_rates(self) -> dict[str, dict[str, PassRate]]:
        return {
            name: {row["id"]: PassRate(**row) for row in rows}
            for name, rows in self.answered.items()
        }

    def _funnel(self, domain: str) -> Iterator[tuple[str, int, dict[str, int], int]]:
        """(source, rows read, rows that each stage removed, problems kept), best first, the pool
        last."""
        card = self.cards[domain]
        for name, counts in card["sources"].items():
            if counts["num_read"]:
                rows = [row for row in card["funnel"] if row["source"] == name]
                removed = {row["stage"]: row["num_removed"] for row in rows}
                assert list(removed) == list(_STAGE_WORDS)
                yield name, counts["num_read"], removed, counts["num_kept"]

    @table(
        "Rows of each source, stage by stage.",
        columns=f"source, rows, {', '.join(_STAGE_WORDS)}, problems, share_kept, responses",
    )
    def funnel(self) -> Rows:
        for domain, card in self.cards.items():
            mine = []
            for name, read, removed, kept in self._funnel(domain):
                given = card["responses"][name]
                responses = given["num_kept"] + given["num_merged"]
                mine.append([name, read, *removed.values(), kept, kept / read, responses])
            sums = [sum(column) for column in zip(*(row[1:] for row in mine), strict=True)]
            sums[-2] = sums[-3] / sums[0]
            yield from [*mine, [f"all of {domain}", *sums]]

    @fact
    def planted(self) -> list[list]:
        """Domain, kind, way, rows, and those of them that curation found."""
        rows = []
        for domain in self.cards if uses_miniature(self.params) else ():
            stage = self.curated[domain, "used"]
            sources = self.folder(stage.inputs["sources"])
            for (kind, how), hits in planted.found(self.folder(stage), sources, domain).items():
                rows.append([domain, kind.replace("_", " "), how, len(hits), sum(hits)])
        return rows

    @table(
        "What was planted, and what was found of it.",
        columns="domain, planted, how, rows, found, recall",
    )
    def found(self) -> Rows:
        for *row, number, hits in self.planted:
            yield [*row, number, hits, hits / number]

    @fact
    def removed(self) -> list[dict]:
        """Of each rule of overlap and domain: how many rows it removed, how many of those that were
        planted, and how many others do share an n-gram."""
        rows = []
        for (domain, rule), stage in self.curated.items():
            if not (card := self.card(stage)):
                continue
            removals = planted.by_place(self.folder(stage) / "removals.jsonl")
            leaks, shared = set(), None
            if uses_miniature(self.params):
                truth = planted.truth(self.folder(stage.inputs["sources"]), domain)
                leaks = {p for p, row in truth.items() if row["kind"] == "contamination"}
                shared = self._others_that_share(stage, domain, removals, leaks)
            counts = {"planted": len(leaks), "hits": len(leaks & set(removals)), "shared": shared}
            counts |= {"rows": len(removals), "boilerplate": card["overlap"]["num_boilerplate"]}
            rows.append({"domain": domain, "rule": rule, "left": card["num_kept"], **counts})
        return rows

    @table(
        "Rules of overlap against the planted truth; 95 % Wilson intervals.",
        columns="rule, domain, planted, removed, recall, low, high, "
        "others_removed, others_share_ngram, boilerplate, problems_left",
    )
    def overlap(self) -> Rows:
        """Recall is the share of planted prompts of benchmarks that are removed (NaN on real data);
        `others_removed` are prompts that nobody planted, `others_share_ngram` those of them for
        which another count of words finds the named n-gram in prompt and item: all, or the search
        is wrong. `boilerplate`: share of removals whose n-grams are all held by several items."""
        words = {
            "used": "phrases of families cut out (used)",
            "strict": "nothing cut out",
            "stop list": f"n-grams in more than {self.params.stop_list} items stopped",
        }
        for each in self.removed:
            planted, hits, rows = each["planted"], each["hits"], each["rows"]
            shared = float("nan") if each["shared"] is None else each["shared"]
            row = [words[each["rule"]], each["domain"], planted, hits, *wilson(hits, planted)]
            yield [*row, rows - hits, shared, each["boilerplate"] / max(1, rows), each["left"]]

    def _others_that_share(self, stage: Stage, domain: str, removals: dict, leaks: set) -> int:
        names = [benchmark["name"] for benchmark in stage.params["benchmarks"]]
        items = planted.items(self.folder(stage.inputs["world"]), names)
        prompts = planted.prompts(self.folder(stage.inputs["sources"]), domain)
        others = {place: row for place, row in removals.items() if place not in leaks}
        texts = (
            (row["ngram"], prompts[place], items[row["benchmark"], row["item"]])
            for place, row in others.items()
        )
        num_words = self.params.data_options.ngram_words
        return sum(planted.truly_shared(*each, num_words=num_words) for each in texts)

    @table("The share of hard problems by the reference's pass rate, beside the paper's.")
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
        "The sets at the end, beside the paper's sizes.",
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
            yield [rule, sum(kept_by_majority(list(rates), rates)), None, "88K, majority of 16"]
        if card := self.cards.get("code"):
            rule = f"RL, code: at least {self.params.data_options.min_tests} tests"
            learnt = self.data.ranked_sources("code")
            pool = [counts for name, counts in card["sources"].items() if name not in learnt]
            left = sum(counts["num_kept"] for counts in pool)
            yield [rule, left, None, "18K, after pass@16 as well"]

    def notes(self) -> list[str]:
        return [
            *([_FAMILIES] if uses_miniature(self.params) else []),
            "Of equal prompts the one of the better source stays, because sources are read best "
            "first. A prompt that shares something with a benchmark counts as overlap also where "
            "it is a duplicate.",
            "Difficulty is the pass rate of the maths SFT checkpoint; the paper's labels are a "
            "model's annotation.",
            *self.departures("options"),
        ]
