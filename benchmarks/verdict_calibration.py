"""How often each verdict comes out where the truth is known: the tables of docs/statistics.md.

    python benchmarks/verdict_calibration.py                      # prints them
    python benchmarks/verdict_calibration.py --write docs/statistics.md

Differences of arms are simulated from the measured variance components, in points, and judged by
the rules of `klearlib.evaluate.statistics.decide`, worked out here on whole arrays with
`scipy.stats`; tests/evaluate/test_calibration.py compares both word by word.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from common import arguments_of
from scipy.stats import t, ttest_1samp

NUM_TRIALS = 100_000
START, END = "<!-- verdict rates -->", "<!-- end of verdict rates -->"
WORDS = ("supported", "contradicted", "no difference", "mixed", "undecided")
SIGN = 0.025


@dataclass(frozen=True)
class Family:
    """Standard deviations of a paired difference in points: between seeds, between problems, and of
    a cell (seed x problem, one response each); P problems."""

    name: str
    seed: float
    problem: float
    cell: float
    problems: int

    def spread(self, *, other_problems: bool) -> float:
        """Of one replicate's difference; other_problems: a replicate has problems of its own."""
        drawn_anew = self.problem**2 if other_problems else 0.0
        return float(np.sqrt(self.seed**2 + (self.cell**2 + drawn_anew) / self.problems))


MATHS = Family("maths RL", 1.6, 0.0, 34.0, 480)
CODE = Family("code RL", 1.9, 4.0, 36.0, 240)
FULL_CODE = replace(CODE, problems=960)
STUDENTS = Family("maths students", 3.0, 21.0, 51.0, 480)
DESIGNS = (
    ("mini: one world, margin 5", 5.0, ((MATHS, 4), (CODE, 3), (STUDENTS, 3)), False),
    ("full: a world each, margin 2", 2.0, ((MATHS, 16), (FULL_CODE, 12)), True),
    ("full: students, margin 5", 5.0, ((STUDENTS, 16),), True),
)
TRUTHS = {
    "null": (0.0,),
    "null, two comparisons": (0.0, 0.0),
    "null beside +20": (0.0, 20.0),
    "inside: +1": (1.0,),
    "+2": (2.0,),
    "+5": (5.0,),
    "+5 and +5": (5.0, 5.0),
    "mixed: +8 and 0": (8.0, 0.0),
    "-5": (-5.0,),
}
"""True differences of a claim's comparisons, positive where the claim is right."""


def simulated(
    truth: tuple[float, ...], spread: float, replicates: int, trials: int, *, seed: int
) -> np.ndarray:
    """Differences [trials, comparisons, replicates]. Two comparisons of a claim share an arm, so
    they correlate by a half."""
    draws = np.random.default_rng(seed).normal(size=(2, trials, len(truth), replicates))
    shared = draws[0][:, :1] if len(truth) > 1 else draws[0]
    noise = np.sqrt(0.5) * shared + np.sqrt(0.5) * draws[1]
    return np.asarray(truth)[:, None] + spread * noise


def verdicts(differences: np.ndarray, *, margin: float) -> np.ndarray:
    """The word of each trial; differences: [trials, comparisons, replicates]."""
    num, replicates = differences.shape[1:]
    greater = ttest_1samp(differences, 0, axis=2, alternative="greater").pvalue
    less = ttest_1samp(differences, 0, axis=2, alternative="less").pvalue
    error = differences.std(axis=2, ddof=1) / np.sqrt(replicates)
    reach = np.abs(differences.mean(axis=2)) + t.ppf(0.95, replicates - 1) * error
    equal = reach < margin
    cases = [
        num * less.min(axis=1) <= SIGN,
        (greater <= SIGN).all(axis=1),
        equal.all(axis=1),
        (equal | (_holm(greater) <= SIGN)).all(axis=1),
    ]
    return np.select(cases, ["contradicted", "supported", "no difference", "mixed"], "undecided")


def _holm(p_values: np.ndarray) -> np.ndarray:
    order = p_values.argsort(axis=1)
    stepped = np.take_along_axis(p_values, order, axis=1) * np.arange(p_values.shape[1], 0, -1)
    adjusted = np.empty_like(p_values)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(stepped, axis=1), axis=1)
    return adjusted


def rates(
    truth: tuple[float, ...], spread: float, replicates: int, trials: int, *, margin: float
) -> dict[str, float]:
    """Word -> the share of trials that get it."""
    found = verdicts(simulated(truth, spread, replicates, trials, seed=0), margin=margin)
    return {word: float((found == word).mean()) for word in WORDS}


def tables(trials: int) -> str:
    """The markdown of docs/statistics.md."""
    parts = []
    for title, margin, families, anew in DESIGNS:
        lines = [f"| {title} | S | truth | {' | '.join(WORDS)} |"]
        lines.append("| :--- | ---: | :--- |" + " ---: |" * len(WORDS))
        for family, replicates in families:
            spread = family.spread(other_problems=anew)
            for name, truth in TRUTHS.items():
                found = rates(truth, spread, replicates, trials, margin=margin)
                cells = " | ".join(f"{100 * found[word]:.1f}" for word in WORDS)
                lines.append(f"| {family.name} | {replicates} | {name} | {cells} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=NUM_TRIALS)
    parser.add_argument("--write", type=Path, help="file whose marked part is replaced")
    asked = arguments_of(parser, trials=200)
    made = tables(asked.trials)
    if asked.write is None:
        print(made)
        return
    before, _, rest = asked.write.read_text(encoding="utf-8").partition(START)
    _, found, after = rest.partition(END)
    if not found:
        parser.error(f"{asked.write} has no lines {START} and {END}")
    asked.write.write_text(f"{before}{START}\n{made}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
