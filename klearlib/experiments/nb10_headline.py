"""Notebook 10: from curated data to final scores (sections 3 and 4, Table 1, Fig. 1)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from klearlib import paper
from klearlib.errors import KlearError
from klearlib.evaluate import scores
from klearlib.evaluate.counts import Evaluation
from klearlib.experiments.benchmarks import REAL, Named, deciding
from klearlib.experiments.headline_pipeline import BUDGET, DOMAINS, MODELS, Pipeline
from klearlib.experiments.score_tables import score_title, seed_interval
from klearlib.experiments.shown import Figure, Frame, Rows, figure, table
from klearlib.params import uses_miniature
from klearlib.report.bars import BarPanel, headline_bars
from klearlib.report.section import Counterpart
from klearlib.report.tables import interval_text
from klearlib.report.verdicts import Evidence

_KLEAR = "Klear-Reasoner-8B"
_LONGER_ROW = "w/ 64K Inference Budget"
_PAPER_ROWS = {"sft": f"{_KLEAR}-SFT", "code_rl": _KLEAR, "code_rl_long": _LONGER_ROW}
"""Series -> the row of Table 1 that it corresponds to."""
_IN_TABLE_ALONE = "HMMT 2025"  # and not in Fig. 1
# Models of Fig. 1 by their names in Table 1, which has HMMT 2025.
_TABLE_NAMES = {_KLEAR: _LONGER_ROW, "Deepseek-R1-0528-8B": "Deepseek-R1-0528-Distill-8B"}
_RELEASED = "authors' published responses, judged here"
_NS = "avg@{p.maths_responses} for maths, avg@{p.code_responses} for code"
_SAMPLED = ("score", "sampling_low", "sampling_high")
_BUDGETS = {"code_rl": "32K", "code_rl_long": "64K"}
_SAMPLING = {"temperature": 0.6, "top_p": 0.95}
_DRAWN = {
    "32K": {"max_tokens": 32768, "yarn_factor": None} | _SAMPLING,
    "64K": {"max_tokens": 65536, "yarn_factor": 2.5} | _SAMPLING,
}
"""How the paper's numbers were drawn, by the keys of a sampling record."""
_STANDS_FOR = (
    "profile paper, which measures AIME, HMMT and LiveCodeBench with the paper's base model; their "
    "stand-ins here are never compared with the paper's numbers"
)
_SMALLER = "profile paper: the same benchmarks with the paper's base model, data and budgets"


class Headline(Pipeline):
    """All phases in a row, and what each adds."""

    title = "The whole pipeline and its scores"
    section = "3, 4"
    question = (
        "What do fine-tuning, RL on maths and RL on code add one after the other, and what does a "
        "longer budget add at the end?"
    )
    phase = "all phases in a row, evaluation"
    counterparts = (
        Counterpart("Table 1", "scores of all models", ("table1",)),
        Counterpart("Fig. 1", "final scores of all models", ("fig1",)),
    )

    @figure(
        "The paper's Fig. 1 and ours.",
        alt="Horizontal bars for five benchmarks. Top: the paper's six models, Klear-Reasoner-8B "
        "first. Bottom: our base model, SFT checkpoint, and the models after RL on maths and on "
        "code, the last one also with YaRN and with a longer budget.",
        when=lambda e: any(map(e.done, DOMAINS)),
    )
    def fig1(self) -> Figure:
        import pandas as pd

        every, panels = self.table("scores"), []
        columns = {"score": "value", "sampling_low": "low", "sampling_high": "high"}
        for name, about in self.named.items():
            mine = every[every["benchmark"] == about.title].rename(columns=columns)
            seeds = [
                (label, seed, scores.avg_at_n(record.correct))
                for series, label in MODELS.items()
                for seed, record in self.records(series, name).items()
            ]
            panels.append(
                BarPanel(
                    about.paper + ("\n(Table 1)" if about.paper == _IN_TABLE_ALONE else ""),
                    score_title(self.params.profile, name, self.responses_to(about.domain)),
                    _paper_bars(about),
                    mine[["model", "value", "low", "high"]],
                    pd.DataFrame(seeds, columns=["model", "seed", "value"]),
                )
            )
        return headline_bars(
            panels,
            paper_models=list(dict.fromkeys(paper.figure("1")["model"])),
            our_models=list(MODELS.values()),
            highlight=_KLEAR,
        )

    @table(
        "Every row of the paper's Table 1, in percent (dagger: measured by its authors), and ours: "
        f"{_NS}, mean over seeds, 95 % interval of sampling noise.",
    )
    def table1(self) -> Rows:
        printed = paper.table(1)
        marks, dagger = printed.attrs["marks"], set(printed.attrs["dagger"])
        for label, cells in printed.attrs["cells"].items():
            budget = marks.get(label, "(32K)").partition("(")[2].rstrip(")")
            model = f"{_KLEAR} {label}" if label == _LONGER_ROW else label
            yield {"from": "paper", "model": model, "budget": budget} | {
                _head(about): cells[about.column] + "†" * ((label, about.column) in dagger)
                for about in self.named.values()
            }
        found = {(row.series, row.benchmark): row for row in self.table("scores").itertuples()}
        for series, model in MODELS.items():
            row = {"from": "here", "model": model, "budget": self.setting_text(series)}
            for about in self.named.values():
                mine = found.get((series, about.title))
                ends = [100 * getattr(mine, each) for each in _SAMPLED] if mine else ()
                row[_head(about)] = interval_text(*ends) if ends else "not run yet"
            if any(name == series for name, _ in found):
                yield row
        if judged := self.released_records:
            row = {"from": "here", "model": _RELEASED, "budget": BUDGET}
            for about in self.named.values():
                mine = judged.get(about.paper)
                row[_head(about)] = "" if mine is None else f"{100 * mine.correct.mean():.1f}"
            yield row

    @table(
        f"The same scores as fractions: {_NS}; intervals of sampling noise (problems and models "
        "fixed) and over seeds.",
        columns="series, model, budget, benchmark, seeds, score, sampling_low, sampling_high, "
        "seeds_low, seeds_high, stands_for, paper, responses, tokens_mean, truncated, not_judged",
    )
    def scores(self) -> Rows:
        printed = paper.table(1)
        for domain, series in itertools.product(DOMAINS, MODELS):
            for name, about in self.named.items():
                if about.domain != domain or not (mine := self.records(series, name)):
                    continue
                every, corrects = mine.values(), [record.correct for record in mine.values()]
                mean, *over_seeds = seed_interval(map(scores.avg_at_n, corrects))
                cell = float("nan")
                if series in _PAPER_ROWS:
                    cell = float(printed.loc[_PAPER_ROWS[series], about.column]) / 100
                yield [
                    *(series, MODELS[series], self.setting_text(series), about.title, len(mine)),
                    *(mean, *scores.sampling_interval(*corrects), *over_seeds, about.paper, cell),
                    corrects[0].shape[1],
                    float(np.mean([each.tokens.mean() for each in every])),
                    _truncated(every),
                    sum(each.total("not_judged") for each in every),
                ]

    def evidence(self) -> dict[str, Evidence | str]:
        about, joint = paper.claim("C24"), self.joint
        runs = self.done("math").of(*about.arms)
        names = [*joint.deciding] or deciding("C24", self.params.profile, "math")
        numbers = partial(runs.replicate_scores, benchmarks=names, statistic=about.statistic)
        plain = [r for name in names for r in runs.ends(about.arms[1], name).values()]
        (check,) = about.checks
        cut = {check.name: _truncated(plain)} if plain else {}
        words = [f"Decided on {' and '.join(names)}"]
        longer = self.paired("C24", runs, numbers, words=words, checked=cut)
        return {"C24": longer, "C13": self._against_paper()}

    def _against_paper(self) -> Evidence:
        """From the final model of the first seed alone, never the best."""
        first, by_budget = self.params.seeds[0], {}
        for series, budget in _BUDGETS.items():
            every = {name: self.records(series, name) for name in self.named}
            by_budget[budget] = {name: each[first] for name, each in every.items() if first in each}
        # Below paper scale the numbers are drawn in another way and decide nothing.
        numbers = measured_numbers(by_budget) if self.paper_scale else {}
        judged = {
            number: record.correct
            for name, record in self.released_records.items()
            if (number := f"{name}, {BUDGET}") not in numbers
        }
        settle = _STANDS_FOR if uses_miniature(self.params) else _SMALLER
        return Evidence(
            numbers | judged,
            words=[f"{', '.join(judged)}: the {_RELEASED}"] if judged else [],
            paper_scale=self.paper_scale or bool(judged),
            otherwise={"settle": settle, "measured": self._for_information()},
        )

    def _for_information(self) -> str:
        """Our scores of the final model at the base budget, as a text that compares nothing."""
        texts = []
        for name, about in self.named.items():
            if corrects := [record.correct for record in self.records("code_rl", name).values()]:
                mean = 100 * sum(correct.mean() for correct in corrects) / len(corrects)
                low, high = (100 * bound for bound in scores.sampling_interval(*corrects))
                problems, responses = corrects[0].shape
                size = f"{problems} problems x {responses} responses x {len(corrects)} seeds"
                texts.append(f"{about.title} {mean:.1f} [{low:.1f}, {high:.1f}] ({size})")
        return f"not comparable: {'; '.join(texts)}" if texts else ""

    def notes(self) -> list[str]:
        p = self.params
        of_origin = [
            "The paper's SFT data are 1.5M unpublished responses of DeepSeek-R1-0528; here SFT "
            "learns examples of the named data sets, whose responses other teachers wrote.",
        ]
        if uses_miniature(p):
            of_origin = [
                f"SFT also has {self.joint.long_examples} right long chains made by the suite, "
                "since the sources have none; the base model has already seen such chains as chat "
                "turns, so it is no raw base model, and maths C is no test of generalisation to "
                "longer chains.",
                "This profile does not measure the real benchmarks, so C13 cannot be decided here: "
                "their stand-ins are never compared with the paper's numbers.",
            ]
        return [
            *self.departures("options", "test_filter", "data_options"),
            self.note_on_seeds("the base model and the SFT checkpoint"),
            "Scores are those of the last step, never the best; the first seed decides C13.",
            *of_origin,
            "Scores with and without YaRN come from different settings and have separate rows: "
            "the factor is static and changes short outputs too.",
            "The paper prints neither the number of steps of each phase nor a score between them.",
        ]


def measured_numbers(by_budget: Mapping[str, Mapping[str, Evaluation]]) -> dict[str, np.ndarray]:
    """The numbers of C13 by their names in claims.yaml: correct, bool [P, n].

    by_budget: "32K" or "64K" -> benchmark -> record; benchmarks not in the paper are left out.
    Raises KlearError for a record that was drawn in another way than the paper's number.
    """
    measured = {}
    for budget, found in by_budget.items():
        wanted = _DRAWN[budget]
        for name in (each for each in found if each in REAL):
            number, sampling = f"{REAL[name].paper}, {budget}", found[name].sampling
            drawn = {key: sampling.get(key) for key in wanted}
            if drawn != wanted:
                both = (", ".join(f"{k} {v}" for k, v in how.items()) for how in (drawn, wanted))
                raise KlearError(
                    f"{number}: drawn with {next(both)}, the paper's number with {next(both)}: "
                    "evaluate the model in the paper's way"
                )
            measured[number] = found[name].correct
    return measured


def _paper_bars(about: Named) -> Frame:
    """Columns model, value: Fig. 1's bars, from Table 1 where Fig. 1 has no such benchmark."""
    printed = paper.figure("1")
    if about.paper == _IN_TABLE_ALONE:
        cells = paper.table(1)[about.column]
        models = printed[["model"]].drop_duplicates()
        named = [_TABLE_NAMES.get(model, model) for model in models["model"]]
        return models.assign(value=[cells[model] / 100 for model in named])
    mine = printed[printed["benchmark"].str.startswith(about.paper.replace("AIME ", "AIME"))]
    return mine.assign(value=mine["value"] / 100)[["model", "value"]]


def _head(about: Named) -> str:
    """The head of a column: the paper's benchmark, and what stands for it, if anything.

    >>> _head(Named("math", "maths A", "AIME 2024", "AIME2024 avg@64"))
    'AIME 2024 / maths A'
    """
    return about.paper if about.title == about.paper else f"{about.paper} / {about.title}"


def _truncated(found: Iterable[Evaluation]) -> float:
    return float(np.mean([each.total("truncated") / each.size for each in found]))
