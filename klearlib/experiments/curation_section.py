"""Tables, figures and the published section of notebook 01."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.curation.curate_pass import STAGES
from klearlib.curation.difficulty import difficulties
from klearlib.curation.majority import kept_by_majority
from klearlib.curation.pass_rates import RATES, PassRate, read_pass_rates
from klearlib.experiments.curation import DOMAINS, NOTEBOOK, RULES, curated, responses, stages
from klearlib.experiments.data_arms import ranked_sources
from klearlib.experiments.data_scores import card_of
from klearlib.experiments.demos import data_rules as data_demos
from klearlib.experiments.demos import planted
from klearlib.experiments.publish import departures, publish_section, runs_dir
from klearlib.params import CurationParams, DataOptions, uses_miniature
from klearlib.report.bars import stacked_bars
from klearlib.run.entry import DONE, read_own_json
from klearlib.run.stage import Stage, is_done

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_EQUATIONS = (
    {
        "number": "3.1",
        "latex": r"\text{remove }x\iff\exists\,b\in\text{benchmarks}:\ "
        r"\mathrm{ngrams}_9(x)\cap\mathrm{ngrams}_9(b)\neq\emptyset",
        "says": "A prompt that shares nine words in a row with a benchmark item is not trained on.",
    },
    {
        "number": "3.2.1",
        "latex": r"\text{keep }x\iff\frac{1}{n}\sum_{i=1}^{n}"
        r"\mathbb{1}[\text{response } i\text{ of a teacher passes the validator}]>\frac{1}{2}",
        "says": "A maths problem is kept for RL where the majority of a teacher's responses agree "
        "with its answer.",
    },
)
# Planted kind -> what the rejects may say about it; the search for overlap comes first.
_FINDS = {
    "duplicate": ("duplicate", "overlap"),
    "contamination": ("overlap",),
    "broken": None,
    "few_tests": ("few_tests", "overlap"),
}
_LEVEL = 0.95


def rule_cases(params: CurationParams) -> pd.DataFrame:
    """The rules of overlap and of duplicates on edge cases; see `data_demos.rule_cases`."""
    del params  # the same at every scale
    return data_demos.rule_cases()


def funnel_table(params: CurationParams) -> pd.DataFrame:
    """For each source the rows that each stage takes away, the problems that are left and the
    responses to them; a line for each domain at its end."""
    import pandas as pd

    columns = ["source", "rows", *STAGES, "problems", "share_kept", "responses"]
    rows = []
    for domain in DOMAINS:
        card = card_of(curated(params)[domain, "used"])
        if card is None:
            continue
        mine = [
            [name, *_funnel(card, name), card["responses"][name]] for name in _sources(card, domain)
        ]
        for name, read, removed, kept, given in mine:
            merged = given["num_kept"] + given["num_merged"]
            rows.append([name, read, *removed.values(), kept, kept / read, merged])
        sums = [
            sum(column) for column in zip(*(row[1:] for row in rows[-len(mine) :]), strict=True)
        ]
        sums[-2] = sums[-3] / sums[0]
        rows.append([f"all of {domain}", *sums])
    return pd.DataFrame(rows, columns=columns)


def funnel_figure(params: CurationParams) -> Figure:
    """What becomes of the rows of each source."""
    bars = {}
    for domain in DOMAINS:
        card = card_of(curated(params)[domain, "used"])
        for name in _sources(card, domain) if card else ():
            _, removed, kept = _funnel(card, name)
            named = {_STAGE_WORDS[stage]: number for stage, number in removed.items()}
            bars[name.replace("_", " ")] = {"problems kept": kept} | named
    return stacked_bars(bars, x_label="rows", heading="Here: rows of each source", per_row=3)


def found_table(params: CurationParams) -> pd.DataFrame:
    """What was planted and what curation found of it, by kind and way.

    A repeated prompt, or a problem with few tests, that shares something with a benchmark counts as
    found where it is removed for that.
    """
    import pandas as pd

    columns = ["domain", "planted", "how", "rows", "found", "recall"]
    rows = []
    for domain in DOMAINS:
        stage = curated(params)[domain, "used"]
        if not uses_miniature(params) or not is_done(stage, runs_dir()):
            continue  # nothing is planted in real data
        rejects = planted.rejected(stage.folder(runs_dir()))
        groups: dict[tuple[str, str], list[bool]] = {}
        for place, row in planted.truth(_input(stage, "sources"), domain).items():
            how = "1 to 15 tests" if row["kind"] == "few_tests" else row["how"]
            reasons = _FINDS[row["kind"]]
            hit = place in rejects and (reasons is None or rejects[place]["reason"] in reasons)
            groups.setdefault((row["kind"], how), []).append(hit)
        for (kind, how), hits in sorted(groups.items()):
            share = sum(hits) / len(hits)
            rows.append([domain, kind.replace("_", " "), how, len(hits), sum(hits), share])
    return pd.DataFrame(rows, columns=columns)


def overlap_table(params: CurationParams) -> pd.DataFrame:
    """Three rules of overlap against the planted truth.

    Recall is the share of planted prompts of benchmarks that are removed, with its 95 % Wilson
    interval. `others_removed` are prompts that nobody planted; `others_share_ngram` are those of
    them for which another count of words finds the named n-gram in the prompt and in the item: all
    of them, or the search is wrong. `boilerplate` is the share of all removals whose shared n-grams
    are all held by several items.
    """
    import pandas as pd
    from scipy.stats import binomtest

    columns = ["rule", "domain", "planted", "removed", "recall", "low", "high"]
    columns += ["others_removed", "others_share_ngram", "boilerplate", "problems_left"]
    rows = []
    for (domain, rule), stage in curated(params).items():
        card = card_of(stage)
        if card is None:
            continue
        if not uses_miniature(params):
            rows.append(_unplanted(params, rule, domain, card, stage))
            continue
        sources, world = _input(stage, "sources"), _input(stage, "world")
        names = [benchmark["name"] for benchmark in stage.params["benchmarks"]]
        removals, texts = planted.removals(stage.folder(runs_dir())), planted.items(world, names)
        truth = planted.truth(sources, domain)
        leaks = [p for p, row in truth.items() if row["kind"] == "contamination"]
        hits = sum(place in removals for place in leaks)
        bounds = binomtest(hits, len(leaks)).proportion_ci(_LEVEL, "wilson") if leaks else None
        others = {place: row for place, row in removals.items() if place not in set(leaks)}
        prompts = planted.prompts(sources, domain)
        shared = sum(
            planted.truly_shared(
                row["ngram"],
                prompts[place],
                texts[row["benchmark"], row["item"]],
                num_words=params.data_options.ngram_words,
            )
            for place, row in others.items()
        )
        boilerplate = card["overlap"]["num_boilerplate"] / max(1, len(removals))
        row = [_rule_words(params, rule), domain, len(leaks), hits, hits / max(1, len(leaks))]
        row += [bounds.low, bounds.high] if bounds else [float("nan")] * 2
        rows.append([*row, len(others), shared, boilerplate, card["num_kept"]])
    return pd.DataFrame(rows, columns=columns)


def difficulty_table(params: CurationParams) -> pd.DataFrame:
    """The share of the maths pool that is hard, at several thresholds; the paper: 88 %."""
    import pandas as pd

    rates, n = _rates(params, "reference"), params.reference_responses
    rows = []
    for easy_from in dict.fromkeys([params.easy_from, *(k / n for k in range(1, n + 1))]):
        found = difficulties(list(rates), rates, easy_from=easy_from)
        if found:
            used = " (used)" if easy_from == params.easy_from else ""
            rows.append(
                {
                    "easy_from": f"{easy_from:g}{used}",
                    "problems": len(found),
                    "easy": found.count("easy"),
                    "hard": found.count("hard"),
                    "unknown": found.count("unknown"),
                    "hard_share": found.count("hard") / len(found),
                    "paper_hard_share": 0.88,
                }
            )
    return pd.DataFrame(rows)


def difficulty_figure(params: CurationParams) -> Figure:
    """How often the reference solves the problems of the maths pool."""
    rates = _rates(params, "reference")
    found = difficulties(list(rates), rates, easy_from=params.easy_from)
    bars = {
        f"{k} of {params.reference_responses}": {} for k in range(params.reference_responses + 1)
    }
    for rate, word in zip(rates.values(), found, strict=True):
        counts = bars[f"{rate.num_correct} of {params.reference_responses}"]
        counts[word] = counts.get(word, 0) + 1
    ordered = {
        label: {word: counts.get(word, 0) for word in ("easy", "hard")}
        for label, counts in bars.items()
    }
    return stacked_bars(
        ordered,
        x_label="problems of the maths pool",
        heading="Here: right responses of the reference",
    )


def set_table(params: CurationParams) -> pd.DataFrame:
    """The sets at the end, beside the paper's sizes."""
    import pandas as pd

    rows = []
    for domain in DOMAINS:
        card = card_of(curated(params)[domain, "used"])
        if card is None:
            continue
        ranked = ranked_sources(params.profile, domain)
        kept = [card["responses"][name] for name in ranked]
        rows.append(
            {
                "set": f"SFT, {domain}",
                "problems": sum(card["sources"][name]["num_kept"] for name in ranked),
                "responses": sum(row["num_kept"] + row["num_merged"] for row in kept),
                "paper": "1.5M samples, both domains",
            }
        )
    rates = _rates(params, "strong")
    if rates:
        left = sum(kept_by_majority(list(rates), rates))
        rule = f"RL, math: majority of {params.num_responses} of the strong teacher"
        rows.append({"set": rule, "problems": left, "paper": "88K, majority of 16"})
    card = card_of(curated(params)["code", "used"])
    if card:
        rule = f"RL, code: at least {params.data_options.min_tests} tests"
        learnt = ranked_sources(params.profile, "code")
        pool = [name for name in card["sources"] if name not in learnt]
        left = sum(card["sources"][name]["num_kept"] for name in pool)
        rows.append({"set": rule, "problems": left, "paper": "18K, after pass@16 as well"})
    return pd.DataFrame(rows, columns=["set", "problems", "responses", "paper"])


def cost_table(params: CurationParams) -> pd.DataFrame:
    """Seconds of each stage, start of its process included, and the rows or responses that it
    handled."""
    import pandas as pd

    rows = []
    raw = curated(params)["math", "used"].inputs
    every = [raw["sources" if "sources" in raw else "benchmarks"], *stages(params)]
    for stage in every:
        if not is_done(stage, runs_dir()):
            continue
        folder = stage.folder(runs_dir())
        seconds = read_own_json(folder / DONE, "seconds")["seconds"]
        handled = {"curate": "num_read", "responses": "num_responses"}.get(stage.name)
        card = read_own_json(folder / "card.json") if handled else None
        number = card[handled] if card else None
        rows.append(
            {
                "stage": stage.title,
                "seconds": seconds,
                "rows": str(number) if stage.name == "curate" else "",
                "responses": str(number) if stage.name == "responses" else "",
                "per_second": number / seconds if number else None,
            }
        )
    return pd.DataFrame(rows, columns=["stage", "seconds", "rows", "responses", "per_second"])


def publish(params: CurationParams) -> Path:
    """Write tables, figures and section.json for what is done so far."""
    is_curated = all(is_done(curated(params)[d, "used"], runs_dir()) for d in DOMAINS)
    return publish_section(
        NOTEBOOK,
        params,
        stages=stages(params),
        title="From raw sources to training sets",
        section="3.1, 3.2.1",
        question="What do deduplication, decontamination and the filters take away, do they find "
        "what they should, and what do they cost?",
        equations=_EQUATIONS,
        figures=_figures(params) if is_curated else {},
        tables={
            "funnel": (funnel_table(params), "Rows of each source, stage by stage."),
            "found": (found_table(params), "What was planted, and what was found of it."),
            "overlap": (
                overlap_table(params),
                "Rules of overlap against the planted truth; 95 % Wilson intervals.",
            ),
            "difficulty": (
                difficulty_table(params),
                "The share of hard problems by the reference's pass rate, beside the paper's.",
            ),
            "sets": (set_table(params), "The sets at the end, beside the paper's sizes."),
            "cost": (cost_table(params), "Seconds, rows and responses of each stage."),
            "rule_cases": (
                rule_cases(params),
                "The 9-gram rule and the rule for duplicates on edge cases.",
            ),
        },
        verdicts=[],
        notes=[
            *_FAMILIES[: uses_miniature(params)],
            "Of equal prompts the one of the better source stays, because sources are read best "
            "first. A prompt that shares something with a benchmark counts as overlap also where "
            "it is a duplicate.",
            "Difficulty is the pass rate of the maths SFT checkpoint; the paper's labels are a "
            "model's annotation.",
            *departures(params.options, DataOptions),
        ],
    )


_FAMILIES = (
    "The miniature's prompts come from few families, whose phrases stand in many benchmark items. "
    "The rule that is used cuts these phrases out of both sides; the strict rule, which leaves "
    "them in, removes much that is no copy, each by a 9-gram that it does share.",
)
_STAGE_WORDS = {
    "adapter": "unusable",
    "duplicates": "duplicate",
    "overlap": "overlap with a benchmark",
    "gold": "no answer or tests",
    "tests": "too few tests",
}


def _funnel(card: dict, name: str) -> tuple[int, dict[str, int], int]:
    """Rows read, removed by each stage, and kept, of one source."""
    removed = {row["stage"]: row["num_removed"] for row in card["funnel"] if row["source"] == name}
    counts = card["sources"][name]
    return counts["num_read"], {stage: removed[stage] for stage in STAGES}, counts["num_kept"]


def _sources(card: dict, domain: str) -> list[str]:
    """The sources of a card, which are read from best to worst, the pool last."""
    return [name for name in card["sources"] if card["sources"][name]["num_read"]]


def _unplanted(params: CurationParams, rule: str, domain: str, card: dict, stage: Stage) -> list:
    """The row of a rule on real data: nothing is planted, so no recall is known."""
    removed = len(planted.removals(stage.folder(runs_dir())))
    boilerplate = card["overlap"]["num_boilerplate"] / max(1, removed)
    nan = float("nan")
    row = [_rule_words(params, rule), domain, 0, 0, nan, nan, nan]
    return [*row, removed, nan, boilerplate, card["num_kept"]]


def _rule_words(params: CurationParams, rule: str) -> str:
    assert rule in RULES
    words = {
        "used": "phrases of families cut out (used)",
        "strict": "nothing cut out",
        "stop list": f"n-grams in more than {params.stop_list} items stopped",
    }
    return words[rule]


def _rates(params: CurationParams, name: str) -> dict[str, PassRate]:
    stage = responses(params).get(name)
    if stage is None or not is_done(stage, runs_dir()):
        return {}
    return read_pass_rates(stage.folder(runs_dir()) / RATES)


def _input(stage, name: str) -> Path:
    return stage.inputs[name].folder(runs_dir())


def _figures(params: CurationParams) -> dict[str, tuple[Figure, str, str]]:
    figures = {
        "funnel": (
            funnel_figure(params),
            "What becomes of the rows of each source.",
            "One bar for each source: problems kept, and rows lost as unusable, duplicate, overlap "
            "with a benchmark, or with too few tests.",
        ),
    }
    if _rates(params, "reference"):
        figures["difficulty"] = (
            difficulty_figure(params),
            "How often the reference solves the problems of the maths pool.",
            "One bar for each number of right responses of the reference: problems that count as "
            "easy and as hard.",
        )
    return figures
