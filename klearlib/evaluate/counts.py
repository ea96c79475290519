"""Evaluations as counts, problem by problem: what tables, figures and verdicts are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from klearlib.evaluate.record_files import VALIDATION, load_record
from klearlib.records import FOUND, NOT_JUDGED, EvalRecord

COUNTS = ("right", "truncated", "not_judged", "not_worked_out", *(f"right_{f}" for f in FOUND))
"""Columns of evaluations.parquet that count responses; `FOUND` says where a right answer stood."""
LOOKS = ("score", "truncated", "tokens", "not_worked_out", *(f"right_{f}" for f in FOUND))


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a run: P problems, n responses each.

    counts: column of `COUNTS` -> int [P]. tokens, pass_rate: float [P], means over the responses;
    pass_rate is the share of its tests that a program passed, of an answer 1 or 0.
    """

    problems: tuple[str, ...]
    n: int
    counts: Mapping[str, np.ndarray]
    tokens: np.ndarray
    pass_rate: np.ndarray
    sampling: dict

    @classmethod
    def of_record(cls, record: EvalRecord) -> Evaluation:
        right, found = record.correct, record.found
        each = {
            "right": right,
            "truncated": record.truncated,
            "not_judged": np.isin(record.reason, NOT_JUDGED),
            "not_worked_out": record.reason == "not_worked_out",
            **{f"right_{place}": right & (found == place) for place in FOUND},
        }
        counts = {name: each[name].sum(axis=1) for name in COUNTS}
        means = record.num_tokens.mean(axis=1), record.pass_rate.mean(axis=1)
        return cls(record.problem_ids, right.shape[1], counts, *means, record.sampling)

    def total(self, name: str) -> int:
        return int(self.counts[name].sum())

    def columns(self, **where) -> dict[str, list]:
        """Its rows of evaluations.parquet. where: run, step and benchmark."""
        alike = where | {"n": self.n, "sampling": json.dumps(self.sampling, sort_keys=True)}
        return {
            **{name: [value] * len(self.problems) for name, value in alike.items()},
            "problem": list(self.problems),
            **{name: self.counts[name].tolist() for name in COUNTS},
            **{"tokens": self.tokens.tolist(), "pass_rate": self.pass_rate.tolist()},
        }

    @property
    def size(self) -> int:
        """All its responses."""
        return len(self.problems) * self.n

    @property
    def score(self) -> float:
        """avg@n; n is the same for all problems."""
        return self.total("right") / self.size

    @property
    def shares(self) -> np.ndarray:
        """float [P]: of each problem the share of its responses that is right."""
        return self.counts["right"] / self.n

    @property
    def correct(self) -> np.ndarray:
        """bool [P, n] with as many right responses to each problem, the right ones first: what
        `klearlib.evaluate.scores` computes does not depend on their order."""
        return np.arange(self.n) < self.counts["right"][:, None]


def read_evaluations(folder: Path) -> dict[str, dict[int, Evaluation]]:
    """Benchmark -> step -> evaluation, in order, of a stage that may still run."""
    found: dict[str, dict[int, Evaluation]] = {}
    for path in sorted((folder / "evaluations").glob("*.npz")):
        name, _, step = path.stem.rpartition("-")
        if step.isdecimal():  # else a user's copy
            found.setdefault(name, {})[int(step)] = Evaluation.of_record(load_record(path))
    return {name: dict(sorted(steps.items())) for name, steps in found.items()}


def scored(evaluations: Mapping[str, Mapping[int, Evaluation]]) -> dict[int, list[Evaluation]]:
    """By step the evaluations that make the curve of a run's score: on the benchmarks that the
    first step has, since what decides claims is measured in the second half alone; on the
    validation set if it is alone."""
    named = {name: steps for name, steps in evaluations.items() if name != VALIDATION}
    named = named or evaluations
    first = min((min(steps) for steps in named.values()), default=0)
    kept = [steps for steps in named.values() if first in steps]
    steps = sorted({step for each in kept for step in each})
    return {step: [each[step] for each in kept if step in each] for step in steps}


def looked_at(found: Sequence[Evaluation]) -> dict[str, float]:
    """`LOOKS` over all responses of some evaluations together.

    ``score``, ``truncated`` and ``not_worked_out`` are shares of the responses, ``tokens`` is their
    mean length. ``right_boxed``, ``right_marked`` and ``right_last`` say where the answers of the
    right ones stood, and sum to 1; NaN where none is right, and for programs.
    """
    num_responses = sum(each.size for each in found)
    sums = {name: sum(each.total(name) for each in found) for name in COUNTS}
    tokens = sum(float(each.tokens.sum()) * each.n for each in found)
    known = sum(sums[place] for place in LOOKS[4:])
    return {
        "score": sums["right"] / num_responses,
        "truncated": sums["truncated"] / num_responses,
        "tokens": tokens / num_responses,
        "not_worked_out": sums["not_worked_out"] / num_responses,
        **{place: sums[place] / known if known else float("nan") for place in LOOKS[4:]},
    }
