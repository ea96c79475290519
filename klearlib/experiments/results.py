"""What finished runs measured: metrics and scores by step, scores problem by problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from klearlib.report.section import SampleItem
from klearlib.rl.alarms import truncation_rose, untrained
from klearlib.rl.samples import shortened
from klearlib.rl.settings import is_second_half

if TYPE_CHECKING:
    import pandas as pd

    from klearlib.records import EvalRecord

Arm = tuple[str, int]
"""Series and seed of a run."""
_SAMPLE_CHARS = 1200


class Results:
    """The finished runs of some arms: (series, seed) -> folder. Each file is read once.

    Frames are long: columns series, seed, step, value. Scores are fractions.
    """

    def __init__(self, folders: Mapping[Arm, Path], read: dict | None = None):
        self.folders = dict(folders)
        self._read: dict = {} if read is None else read  # shared with all parts of it

    def __bool__(self) -> bool:
        return bool(self.folders)

    def __len__(self) -> int:
        return len(self.folders)

    def of(self, *series: str) -> Results:
        mine = {arm: folder for arm, folder in self.folders.items() if arm[0] in series}
        return Results(mine, self._read)

    def each(self, series: Iterable[str]) -> Iterator[tuple[str, Results]]:
        """The runs of each of `series` that has one."""
        return ((name, mine) for name in series if (mine := self.of(name)))

    def with_seeds(self, seeds: Iterable[int]) -> Results:
        wanted = set(seeds)
        mine = {arm: folder for arm, folder in self.folders.items() if arm[1] in wanted}
        return Results(mine, self._read)

    def renamed(self, names: Mapping[str, str]) -> Results:
        """The same runs, those of series out of `names` under the name there."""
        mine = {(names.get(s, s), seed): folder for (s, seed), folder in self.folders.items()}
        return Results(mine, self._read)

    def series(self) -> list[str]:
        return list(dict.fromkeys(series for series, _ in self.folders))

    def common_seeds(self, series: Iterable[str]) -> list[int]:
        """The seeds that every one of `series` has finished: only these can be paired."""
        finished = [{seed for name, seed in self.folders if name == one} for one in series]
        return sorted(set.intersection(*finished)) if finished else []

    # metrics of each step

    def curve(self, metric: str) -> pd.DataFrame:
        """One metric of metrics.jsonl; steps without it are left out."""
        return _long(
            (*arm, line["step"], line[metric])
            for arm, folder in self.folders.items()
            for line in self._metrics(folder)
            if line[metric] is not None
        )

    def positive_share(self) -> pd.DataFrame:
        """The share of trained tokens from positives; steps that trained on none are left out."""
        both = self.curve("train/positive_tokens").merge(
            self.curve("train/num_tokens"), on=["series", "seed", "step"], suffixes=("", "_total")
        )
        both = both[both["value_total"] > 0]
        return both.assign(value=both["value"] / both["value_total"]).drop(columns="value_total")

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

        A step in which an update was skipped, because its gradient was not finite, is infinite
        here; a run without any update is a single 0. No seed is left out.
        """
        norms: dict[str, list[list[float]]] = {}
        for (series, _), folder in self.folders.items():
            mine = [
                float("inf") if line["train/skipped_updates"] else line["train/grad_norm"]
                for line in self._metrics(folder)
            ]
            kept = [norm for norm in mine if norm is not None]
            norms.setdefault(series, []).append(kept or [0.0])
        return norms

    def untrained(self) -> dict[Arm, str]:
        """The runs in which no step had a gradient, with the likely reason."""
        found = {arm: untrained(self._metrics(folder)) for arm, folder in self.folders.items()}
        return {arm: why for arm, why in found.items() if why}

    def truncation_rose(self) -> dict[Arm, str]:
        """The runs in which truncation rose with the score, with the words that say so."""
        found = {arm: truncation_rose(self._metrics(path)) for arm, path in self.folders.items()}
        return {arm: words for arm, words in found.items() if words}

    def drawn_samples(self, titles: Mapping[Arm, str]) -> list[SampleItem]:
        """What the policies wrote at their last step, as `klearlib.rl.samples.draw_samples` keeps
        it: of each series' first seed a right response and another one, as far as drawn."""
        from klearlib.run.entry import read_samples

        shown = []
        for series in self.series():
            arm = next(arm for arm in self.folders if arm[0] == series)
            lines = read_samples(self.folders[arm])
            last = [line for line in lines if line["step"] == lines[-1]["step"]]
            by_kind = {line["reason"] == "correct": line for line in reversed(last)}
            for _, line in sorted(by_kind.items(), reverse=True):
                item = {each.name: line.get(each.name) for each in fields(SampleItem)}
                for name in ("prompt", "text"):
                    item[name] = shortened(line[name], max_chars=_SAMPLE_CHARS)
                shown.append(SampleItem(**item | {"arm": titles[arm]}))
        return shown

    # evaluations

    def score_curve(self, benchmark: str) -> pd.DataFrame:
        """avg@n of every evaluation on `benchmark`."""
        from klearlib.evaluate.scores import avg_at_n

        return _long(
            (*arm, step, avg_at_n(self._record(path).correct))
            for arm, folder in self.folders.items()
            for step, path in evaluations(folder, benchmark).items()
        )

    def end_scores(self, benchmark: str, *, first: bool = False) -> pd.DataFrame:
        """Columns series, seed, value: avg@n of each run's last evaluation, with `first` its
        first; never of its best."""
        scores = self.score_curve(benchmark)
        wanted = scores.groupby(["series", "seed"])["step"].transform("min" if first else "max")
        return scores[scores["step"] == wanted].drop(columns="step").reset_index(drop=True)

    def end_record(self, arm: Arm, benchmark: str, *, first: bool = False) -> EvalRecord:
        """The last evaluation of a run on `benchmark`, with `first` its first."""
        found = evaluations(self.folders[arm], benchmark)
        return self._record(found[(min if first else max)(found)])

    def end_records(self, series: str, benchmark: str) -> dict[int, EvalRecord]:
        """Seed -> the last evaluation of each run of a series on `benchmark`."""
        return {s: self.end_record((n, s), benchmark) for n, s in self.folders if n == series}

    def end_counts(self, benchmark: str, *, first: bool = False) -> tuple[int, int]:
        """Over the last evaluations of all runs: responses that could not be judged, and
        truncated."""
        from klearlib.records import NOT_JUDGED

        records = [self.end_record(arm, benchmark, first=first) for arm in self.folders]
        failures = sum(int(np.isin(record.reason, NOT_JUDGED).sum()) for record in records)
        return failures, sum(int(record.truncated.sum()) for record in records)

    def looked_at(self, *, first: bool = False) -> dict[str, float]:
        """`record_files.looked_at` of all responses of the runs' last evaluations, with `first` of
        their first ones."""
        from klearlib.evaluate.record_files import looked_at, scored_files

        files = [scored_files(folder) for folder in self.folders.values()]
        ends = (by_step[(min if first else max)(by_step)] for by_step in files)
        return looked_at([self._record(path) for end in ends for path in end])

    def not_judged(self, benchmarks: Iterable[str], *, statistic: str) -> int:
        """Responses behind `replicate_scores` of all runs that could not be judged."""
        from klearlib.records import NOT_JUDGED

        found = (self._counted(arm, name, statistic) for arm in self.folders for name in benchmarks)
        return sum(int(np.isin(each.reason, NOT_JUDGED).sum()) for part in found for each in part)

    def end_pass_rate(self, benchmark: str) -> float:
        """Mean share of tests passed over all responses of the last evaluations of all runs."""
        records = [self.end_record(arm, benchmark) for arm in self.folders]
        return float(np.mean([record.pass_rate.mean() for record in records]))

    def problem_scores(
        self, series: str, seeds: Sequence[int], benchmarks: Iterable[str]
    ) -> np.ndarray:
        """float [seeds, problems of all benchmarks]: each problem's mean over its responses at the
        last step."""
        parts = [
            np.array([self.end_record((series, s), name).correct.mean(axis=1) for s in seeds])
            for name in benchmarks
        ]
        return np.concatenate(parts, axis=1)

    def replicate_scores(
        self, series: str, seeds: Sequence[int], benchmarks: Iterable[str], *, statistic: str
    ) -> np.ndarray:
        """float [seeds]: the score of each run, mean over `benchmarks`.

        statistic: "last" for the last evaluation, "second_half" for the mean over the evaluations
        of the second half; never the best one.
        """
        from klearlib.evaluate.scores import avg_at_n

        def mean(seed: int, name: str) -> float:
            counted = self._counted((series, seed), name, statistic)
            return float(np.mean([avg_at_n(record.correct) for record in counted]))

        return np.mean([[mean(seed, name) for seed in seeds] for name in benchmarks], axis=0)

    def _counted(self, arm: Arm, benchmark: str, statistic: str) -> list[EvalRecord]:
        """The evaluations of a run that a statistic of scores takes."""
        assert statistic in ("last", "second_half"), statistic
        found = evaluations(self.folders[arm], benchmark)
        last = max(found)
        late = (s for s in found if s == last or (statistic != "last" and is_second_half(s, last)))
        return [self._record(found[step]) for step in late]

    def curve_distances(
        self, series: str, seeds: Sequence[int], benchmarks: Iterable[str]
    ) -> np.ndarray:
        """float [seeds]: how far the curve of the mean score over `benchmarks` lies from a straight
        line through it, mean absolute distance over all evaluations."""
        curves = [
            mine.score_curve(name).pivot(index="seed", columns="step", values="value")
            for mine in [self.of(series)]
            for name in benchmarks
        ]
        means = sum(curves) / len(curves)
        values = means.loc[list(seeds)].to_numpy(dtype=float)
        return np.abs(off_the_line(values, means.columns)).mean(axis=1)

    def _metrics(self, folder: Path) -> list[dict]:
        from klearlib.run.entry import read_metrics

        if folder not in self._read:
            self._read[folder] = read_metrics(folder)
        return self._read[folder]

    def _record(self, path: Path) -> EvalRecord:
        from klearlib.evaluate.record_files import load_record

        if path not in self._read:
            self._read[path] = load_record(path)
        return self._read[path]


def evaluations(folder: Path, benchmark: str) -> dict[int, Path]:
    """The evaluations of one run on `benchmark`, by step, in order."""
    found = sorted((folder / "evaluations").glob(f"{benchmark}-[0-9]*.npz"))
    steps = ((path.stem.rpartition("-")[2], path) for path in found)
    return {int(step): path for step, path in steps if step.isdecimal()}  # no copies of files


def not_judged_text(count: int, what: str = "responses") -> str:
    """What a verdict says of `count` that could not be judged; "" for none."""
    return f"{count} {what} could not be judged" if count else ""


def last_fifth(frame: pd.DataFrame) -> float:
    """Mean over the seeds of the mean over the last fifth of the steps of one series' curve; NaN
    without any."""
    late = frame[frame["step"] > 0.8 * frame["step"].max()]
    return float(late.groupby("seed")["value"].mean().mean())


def off_the_line(values: np.ndarray, steps: Sequence[int] | None = None) -> np.ndarray:
    """[seeds, steps]: each run's values less the straight line through them (least squares); steps
    are one apart by default."""
    steps = np.arange(values.shape[1]) if steps is None else np.asarray(steps, dtype=float)
    line = np.polynomial.polynomial.polyfit(steps, values.T, min(1, values.shape[1] - 1))
    return values - np.polynomial.polynomial.polyval(steps, line)


def _long(rows: Iterable[tuple]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows), columns=["series", "seed", "step", "value"])
