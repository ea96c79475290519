"""What finished runs measured: metrics and scores by step, scores problem by problem."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from klearlib.errors import ParameterError, did_you_mean
from klearlib.evaluate.counts import Evaluation, looked_at, scored
from klearlib.evaluate.scores import pass_at_k
from klearlib.experiments.tidy import Arm, Run
from klearlib.report.section import SampleItem
from klearlib.rl.alarms import truncation_rose, untrained
from klearlib.rl.samples import shortened
from klearlib.rl.settings import is_second_half

if TYPE_CHECKING:
    import pandas as pd

NO_STEP = "No step trained"
"""The beginning of the notes that say in which arms."""
_PUSHED_DOWN = "train/pushed_down_share"
_NUMBER = re.compile(r"(?<![\d.])-?\d+(?:,\d{3})*(?:\.\d+)?")
_SAMPLES, _SAMPLE_CHARS = 3, 1200
KINDS = ("right", "wrong", "restated", "truncated", "nonsense")
"""Of responses. restated: the last number is wrong and one of the problem's own, which in the
miniature, whose numbers are digits, means nothing. nonsense: there is no answer that can be
judged."""
_NO_ANSWER = ("bad_format", "no_answer", "judge_error", "timeout")


class Results:
    """The finished runs of some arms: (series, seed) -> run.

    Frames are long: columns series, seed, step, value. Scores are fractions.
    """

    def __init__(self, runs: Mapping[Arm, Run]):
        self.runs = dict(runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def of(self, *series: str) -> Results:
        return Results({arm: run for arm, run in self.runs.items() if arm[0] in series})

    def each(self, series: Iterable[str]) -> Iterator[tuple[str, Results]]:
        """The runs of each of `series` that has one."""
        return ((name, mine) for name in series if (mine := self.of(name)))

    def with_seeds(self, seeds: Iterable[int]) -> Results:
        wanted = set(seeds)
        return Results({arm: run for arm, run in self.runs.items() if arm[1] in wanted})

    def renamed(self, names: Mapping[str, str]) -> Results:
        """The same runs, with the series in `names` under the name given there."""
        return Results({(names.get(s, s), seed): run for (s, seed), run in self.runs.items()})

    def under(self, head: str) -> Results:
        """The runs of all series "head: name", by name."""
        mine = [each for each in self.series() if each.startswith(f"{head}: ")]
        return self.of(*mine).renamed({each: each.removeprefix(f"{head}: ") for each in mine})

    def series(self) -> list[str]:
        return list(dict.fromkeys(series for series, _ in self.runs))

    def common_seeds(self, series: Iterable[str]) -> list[int]:
        """The seeds that all of `series` have finished: only these can be paired."""
        finished = [{seed for name, seed in self.runs if name == one} for one in series]
        return sorted(set.intersection(*finished)) if finished else []

    # to explore

    def frame(self, *names: str) -> pd.DataFrame:
        """Wide: a row for each run and step, a column for each metric. names: of metrics, in full
        or by their last part, as ``entropy`` for ``train/entropy``; all of them by default.

        Raises ParameterError for a metric that no run has logged.
        """
        import pandas as pd

        rows = [
            {"series": series, "seed": seed, **line}
            for (series, seed), run in self.runs.items()
            for line in run.metrics
        ]
        every = pd.DataFrame(rows)
        columns = {}
        for name in names:
            there = [each for each in every if name in (each, each.rpartition("/")[2])]
            if len(there) != 1:
                known = there or [each for each in every if each not in ("series", "seed", "step")]
                raise ParameterError(f"no metric {name!r}; {did_you_mean(name, known)}")
            columns[there[0]] = name
        kept = every[["series", "seed", "step", *columns]] if names else every
        return kept.rename(columns=columns)

    def scores(self, benchmark: str) -> pd.DataFrame:
        """A row for each run, step and problem of a benchmark: score, the share of its responses
        that are right, and those that were truncated.

        Raises ParameterError for a benchmark that no run was scored on.
        """
        import pandas as pd

        known = dict.fromkeys(name for run in self.runs.values() for name in run.evaluations)
        if benchmark not in known:
            raise ParameterError(f"no benchmark {benchmark!r}; {did_you_mean(benchmark, known)}")
        parts = [
            pd.DataFrame({"problem": each.problems, "score": each.shares, "n": each.n}).assign(
                series=series, seed=seed, step=step, truncated=each.counts["truncated"]
            )
            for (series, seed), run in self.runs.items()
            for step, each in run.evaluations.get(benchmark, {}).items()
        ]
        columns = ["series", "seed", "step", "problem", "score", "n", "truncated"]
        return pd.concat(parts, ignore_index=True)[columns]

    def _repr_html_(self) -> str:
        import pandas as pd

        rows = [
            {
                "series": series,
                "seed": seed,
                "run": run.key,
                "steps": run.metrics[-1]["step"] if run.metrics else None,
                "scored on": ", ".join(run.evaluations),
            }
            for (series, seed), run in self.runs.items()
        ]
        return pd.DataFrame(rows).to_html(index=False)

    # metrics of each step

    def curve(self, metric: str) -> pd.DataFrame:
        """One metric of metrics.jsonl; steps without it are left out."""
        rows = (
            (*arm, line["step"], line[metric])
            for arm, run in self.runs.items()
            for line in run.metrics
            if line[metric] is not None
        )
        return _frame(rows, "step")

    def mean(self, metric: str) -> float:
        return float(self.curve(metric)["value"].mean())

    def total(self, metric: str) -> int:
        return int(self.curve(metric)["value"].sum())

    def steps(self, series: str, seeds: Sequence[int], metric: str) -> np.ndarray:
        """float [seeds, steps]: one metric of one series at every step."""
        wide = self.of(series).curve(metric).pivot(index="seed", columns="step", values="value")
        return wide.loc[list(seeds)].to_numpy(dtype=float)

    def gradient_norms(self) -> dict[str, list[list[float]]]:
        """Series -> for each seed the gradient norm of every step that had an update.

        A step that skipped an update because its gradient was not finite is infinite here; a run
        without any update is a single 0. No seed is left out.
        """
        norms: dict[str, list[list[float]]] = {}
        for (series, _), run in self.runs.items():
            mine = [
                float("inf") if line["train/skipped_updates"] else line["train/grad_norm"]
                for line in run.metrics
            ]
            kept = [norm for norm in mine if norm is not None]
            norms.setdefault(series, []).append(kept or [0.0])
        return norms

    def untrained(self) -> dict[Arm, str]:
        """The runs in which no step had a gradient, each with a sentence on the likely reason."""
        return {
            arm: f"{NO_STEP} in {run.about['title']}: {why}"
            for arm, run in self.runs.items()
            if (why := untrained(run.metrics))
        }

    def truncation_rose(self) -> dict[Arm, str]:
        """The runs in which truncation rose with the score, each with a sentence that says so."""
        return {
            arm: f"In {run.about['title']} {words}"
            for arm, run in self.runs.items()
            if (words := truncation_rose(run.metrics))
        }

    def drawn_samples(self) -> list[SampleItem]:
        """What the policies wrote at their first and last step, as `klearlib.rl.samples` keeps it:
        of each series' first seed one right response, if any, and others up to three."""
        shown = []
        for _, mine in self.each(self.series()):
            run = next(iter(mine.runs.values()))
            for step in run.sampled_steps:
                lines = [line for line in run.samples if line["step"] == step]
                right = [line for line in lines if line["reason"] == "correct"]
                other = [line for line in lines if line["reason"] != "correct"]
                for line in [*right[:1], *other, *right[1:]][:_SAMPLES]:
                    item = {each.name: line.get(each.name) for each in fields(SampleItem)}
                    for name in ("prompt", "text"):
                        item[name] = shortened(line[name], max_chars=_SAMPLE_CHARS)
                    shown.append(SampleItem(**item | {"arm": run.about["title"]}))
        return shown

    def sample_kinds(self, end: int) -> Counter[str]:
        """How many of the responses kept from the last step (`end` -1) or the first (0) are of each
        of `KINDS`."""
        return Counter(
            _kind(line)
            for run in self.runs.values()
            for line in run.samples
            if line["step"] == run.sampled_steps[end]
        )

    # evaluations

    def score_curve(self, benchmark: str) -> pd.DataFrame:
        """avg@n of every evaluation on `benchmark`."""
        rows = (
            (*arm, step, each.score)
            for arm, run in self.runs.items()
            for step, each in run.evaluations.get(benchmark, {}).items()
        )
        return _frame(rows, "step")

    def end_scores(self, benchmark: str, *, first: bool = False) -> pd.DataFrame:
        """Columns series, seed, value: avg@n of each run's last evaluation, with `first` its first;
        never the best."""
        ends = (
            (*arm, self.end(arm, benchmark, first=first).score)
            for arm, run in self.runs.items()
            if benchmark in run.evaluations
        )
        return _frame(ends)

    def score_changes(self) -> dict[str, list[float]]:
        """Series -> for each seed how much its score on the validation set changed."""
        ends, starts = (self.end_scores("validation", first=first) for first in (False, True))
        both = ends.merge(starts, on=["series", "seed"], suffixes=("", "_start"))
        return (both["value"] - both["value_start"]).groupby(both["series"]).apply(list).to_dict()

    def end(self, arm: Arm, benchmark: str, *, first: bool = False) -> Evaluation:
        """The last evaluation of a run on `benchmark`, with `first` its first."""
        found = self.runs[arm].evaluations[benchmark]
        return found[(min if first else max)(found)]

    def ends(self, series: str, benchmark: str) -> dict[int, Evaluation]:
        """Seed -> the last evaluation of each run of a series on `benchmark`."""
        return {s: self.end((n, s), benchmark) for n, s in self.runs if n == series}

    def end_counts(self, benchmark: str, *, first: bool = False) -> tuple[int, int]:
        """Over the last evaluations of all runs: how many responses could not be judged, and how
        many were truncated."""
        ends = [self.end(arm, benchmark, first=first) for arm in self.runs]
        not_judged = sum(each.total("not_judged") for each in ends)
        return not_judged, sum(each.total("truncated") for each in ends)

    def looked_at(self, *, first: bool = False) -> dict[str, float]:
        """`counts.looked_at` of all responses of the runs' last evaluations, with `first` of their
        first ones."""
        curves = [scored(run.evaluations) for run in self.runs.values()]
        ends = (by_step[(min if first else max)(by_step)] for by_step in curves)
        return looked_at([each for end in ends for each in end])

    def not_judged(self, benchmarks: Iterable[str], *, statistic: str) -> int:
        """How many responses behind `replicate_scores` of all runs could not be judged."""
        return sum(
            each.total("not_judged")
            for arm in self.runs
            for name in benchmarks
            for each in self._counted(arm, name, statistic)
        )

    def end_pass_rate(self, benchmark: str) -> float:
        """Mean share of tests passed over all responses of the last evaluations of all runs."""
        return float(np.mean([self.end(arm, benchmark).pass_rate.mean() for arm in self.runs]))

    def problem_scores(
        self, series: str, seeds: Sequence[int], benchmarks: Iterable[str]
    ) -> np.ndarray:
        """float [seeds, problems of all benchmarks]: each problem's mean over its responses at the
        last step."""
        parts = [
            np.array([self.end((series, seed), name).shares for seed in seeds])
            for name in benchmarks
        ]
        return np.concatenate(parts, axis=1)

    def pushed_down(self) -> dict[Arm, float]:
        """The share of tokens with A < 0 whose log-probability falls in a step, mean over the
        measured steps of a run's first half; a run without such a step is left out."""
        found = {}
        for arm, run in self.runs.items():
            first_half = run.metrics[: max(1, len(run.metrics) // 2)]
            if shares := [v for each in first_half if (v := each.get(_PUSHED_DOWN)) is not None]:
                found[arm] = float(np.mean(shares))
        return found

    def pass_at_half(self, series: str, seeds: Sequence[int]) -> np.ndarray:
        """float [seeds]: pass@k of the last evaluation on the validation problems, k half of the
        responses to each."""
        ends = self.ends(series, "validation")
        return np.array([pass_at_k(ends[s].correct, ends[s].n // 2) for s in seeds])

    def replicate_scores(
        self, series: str, seeds: Sequence[int], benchmarks: Iterable[str], *, statistic: str
    ) -> np.ndarray:
        """float [seeds]: the score of each run, mean over `benchmarks`.

        statistic: "last" for the last evaluation, "second_half" for the mean over the evaluations
        of the second half; never the best one.
        """

        def mean(seed: int, name: str) -> float:
            counted = self._counted((series, seed), name, statistic)
            return float(np.mean([each.score for each in counted]))

        return np.mean([[mean(seed, name) for seed in seeds] for name in benchmarks], axis=0)

    def _counted(self, arm: Arm, benchmark: str, statistic: str) -> list[Evaluation]:
        """The evaluations of a run that a statistic of scores uses."""
        assert statistic in ("last", "second_half"), statistic
        found = self.runs[arm].evaluations[benchmark]
        last = max(found)
        late = (s for s in found if s == last or (statistic != "last" and is_second_half(s, last)))
        return [found[step] for step in late]

    def curve_distances(
        self, series: str, seeds: Sequence[int], benchmarks: Iterable[str]
    ) -> np.ndarray:
        """float [seeds]: how far the curve of the mean score over `benchmarks` lies from a straight
        line through it, mean absolute distance over all evaluations."""
        mine = self.of(series)
        curves = [
            mine.score_curve(name).pivot(index="seed", columns="step", values="value")
            for name in benchmarks
        ]
        means = sum(curves) / len(curves)
        values = means.loc[list(seeds)].to_numpy(dtype=float)
        return np.abs(off_the_line(values, means.columns)).mean(axis=1)


def not_judged_text(count: int, what: str = "responses") -> str:
    """What a verdict says of `count` that could not be judged; "" for none."""
    return f"{count} {what} could not be judged" if count else ""


def last_fifth(frame: pd.DataFrame) -> float:
    """Mean over the seeds of the mean over the last fifth of the steps of one series' curve; NaN
    without any."""
    late = frame[frame["step"] > 0.8 * frame["step"].max()]
    return float(late.groupby("seed")["value"].mean().mean())


def off_the_line(values: np.ndarray, steps: Sequence[int] | None = None) -> np.ndarray:
    """[seeds, steps]: each run's values minus the straight line through them (least squares); steps
    are one apart by default. Only sums, so that the last digit does not depend on LAPACK."""
    steps = np.arange(values.shape[1]) if steps is None else np.asarray(steps, dtype=float)
    x, centred = steps - steps.mean(), values - values.mean(axis=1, keepdims=True)
    square = (x * x).sum()
    slope = (centred * x).sum(axis=1, keepdims=True) / square if square else 0.0
    return centred - slope * x


def _kind(line: Mapping) -> str:
    """Which of `KINDS` a response is."""
    reason, numbers = line["reason"], _NUMBER.findall(line["text"])
    if reason in ("correct", "truncated"):
        return "right" if reason == "correct" else reason
    if reason in _NO_ANSWER or not numbers:
        return "nonsense"
    asked = line["prompt"].replace(",", "")
    return "restated" if numbers[-1].replace(",", "") in _NUMBER.findall(asked) else "wrong"


def _frame(rows: Iterable[tuple], *columns: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows), columns=["series", "seed", *columns, "value"])
