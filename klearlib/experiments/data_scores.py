"""What the three data ablations share: scores beside the paper's tables, comparisons, notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.experiments import curves
from klearlib.experiments.benchmarks import counterparts, titles
from klearlib.experiments.publish import departures, runs_dir
from klearlib.experiments.score_tables import seed_interval
from klearlib.experiments.verdict_dicts import decide_ordering, measure
from klearlib.paper import claim, table
from klearlib.params import DataOptions
from klearlib.report.decide import Measured
from klearlib.run.entry import read_own_json
from klearlib.run.stage import Stage, is_done

if TYPE_CHECKING:
    import pandas as pd

    Runs = Mapping[tuple[str, int], Path]


@dataclass(frozen=True)
class Arm:
    """An arm as readers know it: what it is called here, and its column in the paper's table."""

    label: str
    column: str


def scores_frame(runs: Runs, benchmark: str) -> pd.DataFrame:
    """Columns series, seed, value: avg@n of every student on `benchmark`."""
    return curves.score_curves(runs, benchmark).drop(columns="step")


def score_table(
    runs: Runs, arms: Mapping[str, Arm], *, profile: str, domain: str, paper_table: int
) -> pd.DataFrame:
    """One row for each benchmark and series: mean over seeds with its 95 % t interval, the paper's
    cell beside it, all in fractions; how many responses could not be judged (they count as wrong)
    and how many were truncated. The mean over the benchmarks comes last: it is what the claim is
    decided by."""
    import pandas as pd

    columns = ["benchmark", "arm", "seeds", "score", "low", "high"]
    columns += ["paper_benchmark", "paper", "not_judged", "truncated"]
    called, rows, means = titles(profile), [], []
    for series, arm in arms.items():
        mine = curves.of_series(runs, series)
        if not mine:
            continue
        parts, printed, counts = [], [], []
        for name, paper_name in counterparts(profile, domain).items():
            parts.append(scores_frame(mine, name).set_index("seed")["value"])
            printed.append(paper_cell(paper_table, paper_name, arm.column))
            counts.append(curves.last_counts(mine, name))
            row = [called[name], arm.label, len(mine), *seed_interval(parts[-1])]
            rows.append([*row, paper_name, printed[-1], *counts[-1]])
        mean = [float(np.mean(printed)), *(sum(column) for column in zip(*counts, strict=True))]
        interval = seed_interval(sum(parts) / len(parts))
        means.append(["mean of both", arm.label, len(mine), *interval, "mean of both", *mean])
    order = list(called.values())
    rows.sort(key=lambda row: order.index(row[0]))
    return pd.DataFrame([*rows, *means], columns=columns)


def paper_cell(number: int, benchmark: str, column: str) -> float:
    """A cell of a table of the paper as a fraction."""
    return float(table(number).loc[benchmark, column]) / 100


def comparisons(
    runs: Runs, claim_id: str, *, profile: str, domain: str, series: Mapping[str, str]
) -> list[Measured] | str:
    """The claim's comparisons, paired by seed and by the problems of the domain's benchmarks, or
    why there are none. An arm that stands on one side with others is averaged with them.

    series: arm of claims.yaml -> series of `runs`.
    """
    about = claim(claim_id)
    wanted = [series[arm] for arm in about.arms]
    seeds = curves.common_seeds(runs, wanted)
    if not seeds:
        return f"no seed of all arms is done yet: {', '.join(about.arms)}"
    names = list(counterparts(profile, domain))
    scores = {arm: curves.problem_scores(runs, series[arm], seeds, names) for arm in about.arms}
    return [
        measure(c.name, _mean(scores[arm] for arm in c.a), _mean(scores[arm] for arm in c.b))
        for c in about.comparisons
    ]


def verdict(
    claim_id: str,
    corrected: list[Measured],
    *,
    profile: str,
    domain: str,
    runs: Runs,
    paper_scale: bool,
) -> dict:
    """`decide_ordering`, with a word on the benchmarks that decide here and on responses that could
    not be judged."""
    found = decide_ordering(claim(claim_id), corrected, paper_scale=paper_scale)
    found["reason"] += f". {decided_on(claim_id, profile, domain)}"
    names = counterparts(profile, domain)
    failures = sum(curves.last_counts(runs, name)[0] for name in names)
    if failures:
        found["reason"] += f". {failures} responses could not be judged"
    return found


def decided_on(claim_id: str, profile: str, domain: str) -> str:
    """Which benchmarks stand for which of the paper's, and which of the paper's have none here.

    >>> decided_on("C5", "smoke", "math")[-67:]
    'LiveCodeBench V5 has no counterpart: a maths student writes no code'
    """
    here, called = counterparts(profile, domain), titles(profile)
    paper = dict.fromkeys(name for c in claim(claim_id).comparisons for name in c.benchmarks)
    pairs = " and ".join(
        there if called[name] == there else f"{called[name]} for {there}"
        for name, there in here.items()
    )
    missing = [name for name in paper if name not in here.values()]
    if not missing:
        return f"Decided on {pairs}"
    verb = "has" if len(missing) == 1 else "have"
    why = "a maths student writes no code" if domain == "math" else "a code student does no maths"
    return f"Decided on {pairs}; {' and '.join(missing)} {verb} no counterpart: {why}"


def card_of(stage: Stage) -> dict | None:
    """card.json of a stage, None where it is not done yet."""
    if not is_done(stage, runs_dir()):
        return None
    return read_own_json(stage.folder(runs_dir()) / "card.json")


def mean_loss(stages: Mapping[tuple[str, int], Stage], series: str) -> float:
    """The training loss of the last steps (a tenth of them), mean over the seeds that are done."""
    from klearlib.run.entry import read_metrics

    losses = []
    for (name, _), stage in stages.items():
        training = stage.inputs["model"]
        if name == series and is_done(training, runs_dir()):
            lines = [row["sft/loss"] for row in read_metrics(training.folder(runs_dir()))]
            losses.append(np.mean(lines[-max(1, len(lines) // 10) :]))
    return float(np.mean(losses)) if losses else float("nan")


def common_notes(params, *, arms_text: str) -> list[str]:
    """The notes that the data ablations end with."""
    options = params.data_options
    return [
        *departures(params.options, DataOptions),
        f"All {arms_text} have the same number of examples and of updates; K-center covers the "
        f"{options.embedding_text} by hashed TF-IDF, for which the paper names no embedding.",
        "Seeds share the base model and the examples; they differ in the order of training and in "
        "the sampling of the benchmarks. Benchmarks are sampled at temperature "
        f"{options.eval_temperature:g} and top-p {options.eval_top_p:g}, as in the paper.",
    ]


def _mean(scores: Iterable[np.ndarray]) -> np.ndarray:
    return np.mean(list(scores), axis=0)


def spread(stage: Stage, names: Sequence[str]) -> dict[str, int]:
    """How many examples of a selection come from each source, in the order of `names`."""
    card = card_of(stage)
    if card is None:
        return {}
    return {name: card["sources"][name]["num_kept"] for name in names if name in card["sources"]}
