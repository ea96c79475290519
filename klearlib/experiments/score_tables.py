"""Tables and figures of scores that several experiments share, and the intervals in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from klearlib import paper
from klearlib.evaluate.statistics import compare
from klearlib.experiments.benchmarks import curve_titles, titles
from klearlib.experiments.results import Results
from klearlib.report.curves import Panel, seed_bands
from klearlib.report.style import series_style

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 0.95
_ROUNDING = 1e-12  # an interval narrower than this means that all differences are equal


def difference(deltas: np.ndarray) -> tuple[float, float, float, str]:
    """The mean of paired differences, float [seeds, problems], with its 95 % t interval over seeds,
    or over the problems of a single seed, which says nothing about other seeds; and which it is.

    Where all differences are equal, or there is one problem, there is no interval: that shows a
    lack of data, not certainty.
    """
    mean, over = float(deltas.mean()), "seeds" if len(deltas) > 1 else "problems"
    values = deltas if len(deltas) > 1 else deltas[0]
    if len(values) > 1:
        found = compare(values, np.zeros_like(values), margin=1.0, level=_LEVEL)
        if _ROUNDING < found.high - found.low < np.inf:
            return mean, found.low, found.high, over
    return mean, float("nan"), float("nan"), "none"


def seed_interval(values: Iterable[float], *, lowest: float = 0.0) -> tuple[float, float, float]:
    """Mean over seeds of a rate with its 95 % t interval, cut to [`lowest`, 1]: (mean, low, high).

    values: one for each seed. lowest: 0, or -1 for a difference of rates. With few seeds the t
    interval goes past what a rate can be; the cut removes no possible value, so the coverage stays
    the same. Claims are not decided by it.
    """
    import pandas as pd

    frame = pd.DataFrame({"series": "all", "step": 0, "value": [*values]})
    band = seed_bands(frame.assign(seed=frame.index), least=2).iloc[0]
    low, high = np.clip([band["low"], band["high"]], lowest, 1.0).tolist()
    return band["mean"], low, high


def wilson(part: int, total: int) -> tuple[float, float, float]:
    """part / total with its 95 % Wilson interval; NaN where total is 0."""
    from scipy.stats import binomtest

    if total == 0:
        return (float("nan"),) * 3
    interval = binomtest(part, total).proportion_ci(_LEVEL, method="wilson")
    return part / total, float(interval.low), float(interval.high)


def learning_table(
    runs: Results,
    profile: str,
    domain: str,
    *,
    paper_figures: Mapping[str, str],
    what: str,
    tests: bool = False,
) -> pd.DataFrame:
    """Scores at the first and the last step on what RL on a domain is measured on: mean over seeds
    with its 95 % t interval.

    One row for each benchmark and series: start, end, gain = end - start (paired by seed), the
    intervals of end and gain, and the paper's last plotted value, all as fractions; and how many
    responses of the last evaluations could not be judged (they count as wrong) or were truncated.

    Args:
        paper_figures: name of a benchmark -> the paper's figure.
        what: the heading of the column that names the series ("rule", "reward").
        tests: with the mean share of tests that the programs of the last evaluations pass.
    """
    import pandas as pd

    columns = ["benchmark", what, "seeds", "start", "end", "end_low", "end_high"]
    columns += ["end_tests_passed"] * tests + ["gain", "gain_low", "gain_high"]
    columns += ["paper_last", "not_judged", "truncated"]
    rows = []
    for name, title in curve_titles(profile, domain).items():
        for arm, mine in runs.each(runs.series()):
            wide = mine.score_curve(name).pivot(index="seed", columns="step", values="value")
            first, last = wide[wide.columns.min()], wide[wide.columns.max()]
            end, gain = seed_interval(last), seed_interval(last - first, lowest=-1.0)
            values = [title, series_style(arm).label, len(wide), first.mean(), *end]
            values += [mine.end_pass_rate(name)] * tests + [*gain]
            rows.append([*values, paper_last(paper_figures.get(name), arm), *mine.end_counts(name)])
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Row:
    """An arm in a table of the paper: its label and runs, the paper's cells as fractions by
    benchmark, as far as the paper has them, and its group and mark in the figure. first: the score
    is that of the runs' first evaluation."""

    label: str
    runs: Results
    paper: Mapping[str, float]
    group: str
    mark: str
    first: bool = False


def score_table(rows: Sequence[Row], benchmarks: Mapping[str, str], profile: str) -> pd.DataFrame:
    """One line for each benchmark and row: mean over seeds with its 95 % t interval, and the
    paper's cell, all as fractions; how many responses could not be judged (they count as wrong)
    and how many were truncated. The mean over the benchmarks comes last.

    benchmarks: name -> the paper's.
    """
    import pandas as pd

    columns = ["benchmark", "arm", "seeds", "score", "low", "high"]
    columns += ["paper_benchmark", "paper", "not_judged", "truncated"]
    called, lines, means = titles(profile), [], []
    for row in rows:
        if not row.runs:
            continue
        parts, printed, counts = [], [], []
        for name, paper_name in benchmarks.items():
            parts.append(row.runs.end_scores(name, first=row.first)["value"])
            printed.append(row.paper.get(paper_name, float("nan")))
            counts.append(row.runs.end_counts(name, first=row.first))
            line = [called[name], row.label, len(row.runs), *seed_interval(parts[-1])]
            lines.append([*line, paper_name, printed[-1], *counts[-1]])
        mean = [float(np.mean(printed)), *(sum(column) for column in zip(*counts, strict=True))]
        interval = seed_interval(sum(parts) / len(parts))
        means.append(["mean of both", row.label, len(row.runs), *interval, "mean of both", *mean])
    order = list(called.values())
    lines.sort(key=lambda line: order.index(line[0]))
    return pd.DataFrame([*lines, *means], columns=columns)


def score_bars(
    rows: Sequence[Row],
    benchmarks: Mapping[str, str],
    profile: str,
    *,
    responses: int,
    paper_responses: str = "",
    seeds: Sequence[int] = (),
) -> list[Panel]:
    """For each benchmark the paper's scores of `rows` and ours. benchmarks: as in `score_table`.
    responses: to each of our problems; paper_responses: what the paper's title says of them. seeds:
    drawn one after another, not row by row."""
    import pandas as pd

    columns, panels = ["series", "group", "value"], []
    places = {seed: place for place, seed in enumerate(seeds)}
    for name, printed in benchmarks.items():
        cells = [(r.mark, r.group, r.paper[printed]) for r in rows if printed in r.paper]
        ours = [
            row.runs.end_scores(name, first=row.first).assign(series=row.mark, group=row.group)
            for row in rows
            if row.runs
        ]
        title = score_title(profile, name, responses)
        theirs = pd.DataFrame(cells, columns=columns)
        scores = pd.concat(ours) if ours else pd.DataFrame(columns=[*columns, "seed"])
        if seeds:
            scores = scores.sort_values("seed", key=lambda s: s.map(places), kind="stable")
        panels.append(Panel(printed + paper_responses, title, theirs, scores))
    return panels


def score_title(profile: str, benchmark: str, responses: int) -> str:
    """The title of a panel with our scores, as "maths A, avg@4"."""
    return f"{titles(profile)[benchmark]}, avg@{responses}"


def paper_last(name: str | None, series: str) -> float:
    """The last value that the paper's figure `name` plots for `series`; NaN where there is none."""
    if name is None:
        return float("nan")
    printed = paper.figure(name)
    mine = printed[printed["series"].map(printed.attrs["keys"]) == series].sort_values("step")
    return float(mine["value"].iloc[-1]) if len(mine) else float("nan")


def score_panel(
    params, runs: Results, benchmark: str, paper_figure: str, *, less: str, also: str = ""
) -> Panel:
    """The paper's curves of scores, ours on `benchmark` below them, and ours minus those of the
    series `less`; `also` ends our title."""
    printed = paper.figure(paper_figure)
    title = score_title(params.profile, benchmark, params.eval_responses) + also
    scores = runs.score_curve(benchmark)
    how = {"y_label": "score", "is_rate": True, "less": less}
    return Panel(printed.attrs["metric"], title, printed, scores, **how)
