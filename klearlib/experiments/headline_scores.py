"""What notebook 10 measured: records by model and seed, their intervals, pairs of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from klearlib.evaluate import scores
from klearlib.evaluate.record_files import load_record
from klearlib.experiments import curves
from klearlib.experiments.benchmarks import Named, named
from klearlib.experiments.headline import DOMAINS, TRAINED, Pipeline
from klearlib.experiments.running import finished
from klearlib.params.notebooks import HeadlineParams
from klearlib.records import EvalRecord

Records = dict[tuple[str, int], dict[str, EvalRecord]]
_LEVEL = 0.95


@dataclass(frozen=True)
class Gathered:
    """A notebook's parameters, their stages, and what is measured so far: domain -> (series, seed)
    -> benchmark -> record. Read once for all tables and figures."""

    params: HeadlineParams
    made: Pipeline
    records: dict[str, Records]

    @property
    def named(self) -> dict[str, Named]:
        """The benchmarks of the profile, in the order of Table 1."""
        return named(self.params.profile)

    def benchmarks(self, domain: str) -> list[str]:
        """Those of a domain."""
        return [name for name, about in self.named.items() if about.domain == domain]

    def of_series(self, series: str, benchmark: str) -> dict[int, EvalRecord]:
        """Seed -> the record of one model on one benchmark."""
        found = self.records[self.named[benchmark].domain]
        return {seed: mine[benchmark] for (name, seed), mine in found.items() if name == series}

    def setting_text(self, series: str) -> str:
        """The token budget of a response and the factor of YaRN, in words."""
        setting = self.made.setting(series)
        words = f"{setting['max_new_tokens']} tokens"
        return f"{words}, YaRN {setting['yarn_factor']:g}" if "yarn_factor" in setting else words


def gathered(params: HeadlineParams) -> Gathered:
    """All that is measured with these parameters."""
    made = Pipeline(params)
    records = {
        domain: {
            arm: {
                name: load_record(curves.evaluations(folder, name)[0])
                for name in made.joint.benchmarks[domain]
            }
            for arm, folder in finished(made.measured(domain)).items()
        }
        for domain in DOMAINS
    }
    return Gathered(params, made, records)


def sampling_interval(corrects: Sequence[np.ndarray]) -> tuple[float, float]:
    """95 % interval of the mean of avg@n over seeds from sampling noise alone, problems and models
    fixed: `scores.sampling_interval` for several models.

    corrects: bool [P, n] for each seed.
    """
    from scipy.stats import norm

    corrects = list(corrects)
    mean = float(np.mean([scores.avg_at_n(correct) for correct in corrects]))
    error = np.sqrt(sum(scores.sampling_error(c) ** 2 for c in corrects)) / len(corrects)
    num_draws = sum(correct.size for correct in corrects)
    half = max(norm.isf((1 - _LEVEL) / 2) * error, scores.unseen_rate(num_draws, _LEVEL))
    return max(0.0, mean - half), min(1.0, mean + half)


def paired_scores(
    found: Records, names: Sequence[str], after: str, before: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Both as float [seeds, problems of all `names`]; None where either has no seed yet."""
    a, b = ({s: mine for (n, s), mine in found.items() if n == name} for name in (after, before))
    if not a or not b:
        return None
    shared = before not in TRAINED
    seeds = [seed for seed in a if shared or seed in b]
    if not seeds:
        return None
    one = next(iter(b))
    return (
        np.array([problem_means(a[seed], names) for seed in seeds]),
        np.array([problem_means(b[one if shared else seed], names) for seed in seeds]),
    )


def problem_means(mine: Mapping[str, EvalRecord], names: Sequence[str]) -> np.ndarray:
    """float [problems of all `names`]: the share of each problem's responses that is right."""
    return np.concatenate([mine[name].correct.mean(axis=1) for name in names])
