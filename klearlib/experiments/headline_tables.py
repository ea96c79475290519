"""The tables of notebook 10: Table 1 with ours below, what each phase adds, what YaRN changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from klearlib.evaluate import scores
from klearlib.experiments import data_scores
from klearlib.experiments.benchmarks import Named
from klearlib.experiments.headline import DOMAIN_WORDS, DOMAINS, MODELS
from klearlib.experiments.headline_scores import (
    Gathered,
    paired_scores,
    sampling_interval,
)
from klearlib.experiments.score_tables import difference, seed_interval
from klearlib.paper import table
from klearlib.records import NOT_JUDGED, EvalRecord
from klearlib.report.tables import interval_text

if TYPE_CHECKING:
    import pandas as pd

LONGER_ROW = "w/ 64K Inference Budget"
LONG_CHAINS = "right long SFT chains made by the suite"
_PAPER_ROWS = {
    "sft": "Klear-Reasoner-8B-SFT",
    "code_rl": "Klear-Reasoner-8B",
    "code_rl_long": LONGER_ROW,
}
"""Series -> the row of Table 1 that it stands for."""
_SAMPLED = ("score", "sampling_low", "sampling_high")
_STEPS = (
    ("sft", "base"),
    ("maths_rl", "sft"),
    ("code_rl", "maths_rl"),
    ("code_rl", "sft"),
    ("code_rl_long", "code_rl"),
)


def table1(have: Gathered) -> pd.DataFrame:
    """Every row of the paper's Table 1 as printed, in percent, and ours below in the same form,
    with 95 % intervals of sampling noise.

    A dagger marks the paper's own evaluation of another's model.
    """
    import pandas as pd

    printed = table(1)
    marks, dagger = printed.attrs["marks"], set(printed.attrs["dagger"])
    heads = {name: _head(about) for name, about in have.named.items()}
    rows = []
    for label, cells in printed.attrs["cells"].items():
        budget = marks.get(label, "(32K)").partition("(")[2].rstrip(")")
        model = f"Klear-Reasoner-8B {label}" if label == LONGER_ROW else label
        row = {"from": "paper", "model": model, "budget": budget}
        for name, about in have.named.items():
            mark = "†" if (label, about.column) in dagger else ""
            row[heads[name]] = cells[about.column] + mark
        rows.append(row)
    found = score_table(have).set_index(["series", "benchmark"])
    for series, model in MODELS.items():
        mine = {name: found.loc[series, about.title] for name, about in have.named.items()
                if (series, about.title) in found.index}  # fmt: skip
        if not mine:
            continue
        row = {"from": "here", "model": model, "budget": have.setting_text(series)}
        for name in have.named:
            if name in mine:
                values = [100 * mine[name][column] for column in _SAMPLED]
                row[heads[name]] = interval_text(*values)
            else:
                row[heads[name]] = "not run yet"
        rows.append(row)
    return pd.DataFrame(rows, columns=["from", "model", "budget", *heads.values()])


def score_table(have: Gathered) -> pd.DataFrame:
    """One row for each model and benchmark: mean over seeds with the interval of sampling noise
    (problems and models fixed) and, where there are several, the t interval over seeds; the paper's
    cell of the row that it stands for; all in fractions. Then responses per problem, mean tokens,
    the share truncated, and how many could not be judged (they count as wrong)."""
    import pandas as pd

    columns = ["series", "model", "budget", "benchmark", "seeds", *_SAMPLED]
    columns += ["seeds_low", "seeds_high", "stands_for", "paper", "responses", "tokens_mean"]
    columns += ["truncated", "not_judged"]
    printed, rows = table(1), []
    for domain in DOMAINS:
        for series, model in MODELS.items():
            for name in have.benchmarks(domain):
                about = have.named[name]
                mine = have.of_series(series, name)
                if not mine:
                    continue
                corrects = [record.correct for record in mine.values()]
                paper = float("nan")
                if series in _PAPER_ROWS:
                    paper = float(printed.loc[_PAPER_ROWS[series], about.column]) / 100
                means = {seed: scores.avg_at_n(record.correct) for seed, record in mine.items()}
                mean, *over_seeds = seed_interval(pd.Series(means).rename_axis("seed"))
                row = [series, model, have.setting_text(series), about.title, len(mine), mean]
                row += [*sampling_interval(corrects), *over_seeds, about.paper, paper]
                every = mine.values()
                row += [corrects[0].shape[1], _mean(record.num_tokens for record in every)]
                row += [_mean(record.truncated for record in every)]
                row += [sum(int(np.isin(record.reason, NOT_JUDGED).sum()) for record in every)]
                rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def phase_table(have: Gathered) -> pd.DataFrame:
    """What each phase and the longer budget add on the benchmarks of each domain together, paired
    by seed and problem; and what the paper's Table 1 gives for it.

    There is one base model and one SFT checkpoint, so a difference from them sets every seed
    against the same scores, and theirs from one another has no interval over seeds.
    """
    import pandas as pd

    rows = []
    for domain in DOMAINS:
        names = have.benchmarks(domain)
        for after, before in _STEPS:
            pair = paired_scores(have.records[domain], names, after, before)
            if pair is None:
                continue
            gain = difference(*pair)
            rows.append(
                {
                    "benchmarks": " + ".join(have.named[name].title for name in names),
                    "step": f"{MODELS[after]} - {MODELS[before]}",
                    "seeds": len(pair[0]),
                    "problems": pair[0].shape[1],
                    "before": pair[1].mean(),
                    "after": pair[0].mean(),
                    "gain": gain.value,
                    "low": gain.low,
                    "high": gain.high,
                    "interval_over": gain.interval_over,
                    "paper_gain": _paper_gain(
                        [have.named[name].column for name in names], after, before
                    ),
                }
            )
    columns = ["benchmarks", "step", "seeds", "problems", "before", "after", "gain", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "interval_over", "paper_gain"])


def yarn_table(have: Gathered) -> pd.DataFrame:
    """The final model with YaRN, at the base and at the longer budget, against itself without it.

    `difference` is over all problems of a benchmark. `fitting` are those of them with no truncated
    response without YaRN in any of these seeds, where a longer budget has nothing to add:
    `difference_fitting` is what the factor does to short outputs. What is truncated with YaRN
    selects nothing: it is a part of what the factor does.
    """
    import pandas as pd

    rows = []
    for domain in DOMAINS:
        for name in have.benchmarks(domain):
            plain = have.of_series("code_rl", name)
            for series in ("code_rl", "code_rl_yarn", "code_rl_long"):
                mine = have.of_series(series, name)
                seeds = [seed for seed in mine if seed in plain]
                if not seeds:
                    continue
                ours, theirs = ([part[seed] for seed in seeds] for part in (mine, plain))
                row = {
                    "benchmark": have.named[name].title,
                    "setting": have.setting_text(series),
                    "seeds": len(seeds),
                    "score": _mean(record.correct for record in ours),
                    "truncated": _mean(record.truncated for record in ours),
                    "tokens_mean": _mean(record.num_tokens for record in ours),
                }
                rows.append(row | _changes(ours, theirs, itself=series == "code_rl"))
    columns = ["benchmark", "setting", "seeds", "score", "truncated", "tokens_mean", "difference"]
    columns += ["low", "high", "fitting", "difference_fitting", "fitting_low", "fitting_high"]
    return pd.DataFrame(rows, columns=[*columns, "interval_over"])


def pipeline_table(have: Gathered) -> pd.DataFrame:
    """What goes into each phase and what is left of it, as far as it is done."""
    import pandas as pd

    made, rows = have.made, []
    for domain, word in DOMAIN_WORDS.items():
        sources = data_scores.card_of(made.curated[domain])
        chosen = data_scores.card_of(made.selections[domain])
        pool = data_scores.card_of(made.pools[domain])
        filtered = "majority of the teacher's responses" if domain == "math" else "trusted tests"
        rows += [
            [f"{word}: curated sources", *_flow(sources and list(sources["sources"].values()))],
            [f"{word}: SFT examples of the two best sources", *_flow(chosen and [chosen])],
        ]
        if domain == "math" and made.joint.long_examples:
            rows.append(
                [
                    f"{word}: {LONG_CHAINS}",
                    *_long_chains(data_scores.card_of(made.stages["examples"])),
                ]
            )
        rows.append([f"{word}: RL problems, {filtered}", *_flow(pool and [pool])])
    return pd.DataFrame(rows, columns=["data", "read", "kept"])


def _long_chains(card: Mapping | None) -> tuple[int | None, int | None]:
    """All that the suite makes are kept."""
    if card is None:
        return None, None
    count = card["sources"].get("long_maths", 0)
    return count, count


def _flow(cards: Sequence[Mapping] | None) -> tuple[int | None, int | None]:
    if not cards:
        return None, None
    return sum(card["num_read"] for card in cards), sum(card["num_kept"] for card in cards)


def _head(about: Named) -> str:
    """Of a column: the paper's benchmark, and what stands for it where something does.

    >>> _head(Named("math", "maths A", "AIME 2024", "AIME2024 avg@64"))
    'AIME 2024 / maths A'
    """
    return about.paper if about.title == about.paper else f"{about.paper} / {about.title}"


def _paper_gain(columns: list[str], after: str, before: str) -> float:
    if after not in _PAPER_ROWS or before not in _PAPER_ROWS:
        return float("nan")
    printed = table(1)[columns]
    gain = printed.loc[_PAPER_ROWS[after]] - printed.loc[_PAPER_ROWS[before]]
    return float(gain.mean()) / 100


def _changes(ours: Sequence[EvalRecord], theirs: Sequence[EvalRecord], *, itself: bool) -> dict:
    cut = np.any([record.truncated.any(axis=1) for record in theirs], axis=0)
    row: dict = {"fitting": int((~cut).sum())}
    if itself:
        return row
    a, b = (np.array([r.correct.mean(axis=1) for r in part]) for part in (ours, theirs))
    every = difference(a, b)
    row |= {"difference": every.value, "low": every.low, "high": every.high}
    row |= {"interval_over": every.interval_over}
    if not cut.all():
        short = difference(a[:, ~cut], b[:, ~cut])
        row |= {"difference_fitting": short.value}
        row |= {"fitting_low": short.low, "fitting_high": short.high}
    return row


def _mean(arrays) -> float:
    return float(np.mean([array.mean() for array in arrays]))
