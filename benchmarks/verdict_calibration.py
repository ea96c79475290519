"""How often each verdict comes out where the truth is known: the tables of docs/statistics.md.

    python benchmarks/verdict_calibration.py                      # prints them
    python benchmarks/verdict_calibration.py --write docs/statistics.md

Paired differences of arms are simulated with the spread that `results/` show, in points, and judged
by the rules of `klearlib.evaluate.statistics.decide`, worked out here on whole arrays with
`scipy.stats`; tests/evaluate/test_calibration.py compares both word by word.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from common import arguments_of
from scipy.stats import t, ttest_1samp

RESULTS = Path(__file__).resolve().parents[1] / "results"
NUM_TRIALS = 100_000
START, END = "<!-- verdict rates -->", "<!-- end of verdict rates -->"
WORDS = ("supported", "contradicted", "no difference", "mixed", "undecided")
SIGN = 0.025
DESIGNS = (
    ("mini", 5.0, {"maths RL": "C1 C19", "code RL": "C9 C11", "students": "C5 C6 C7 C15"}),
    (
        "full",
        2.0,
        {
            "maths RL": "C1 C8 C12",
            "code RL": "C9 C11",
            "rules in code RL": "C2",
            "students": "C4 C5 C6 C7",
        },
    ),
    ("full", 5.0, {"correct-only and mixed students": "C15"}),
)
"""Profile, margin in points, and the claims whose differences give the spread of a kind of run."""
TRUTHS = {
    "null": (0.0,),
    "null, two comparisons": (0.0, 0.0),
    "inside: +1": (1.0,),
    "+2": (2.0,),
    "+5": (5.0,),
    "+5 and +5": (5.0, 5.0),
    "mixed: +8 and 0": (8.0, 0.0),
    "-5": (-5.0,),
}
"""True differences of a claim's comparisons, positive where the claim is right."""


def spread_of(profile: str, claims: str) -> tuple[float, int]:
    """Standard deviation of a replicate's difference, in points, pooled over the comparisons of
    these claims, and the number of replicates."""
    paths = sorted((RESULTS / profile).glob("*/replicates.csv"))
    rows = pd.concat([pd.read_csv(path) for path in paths])
    rows = rows[rows["claim"].isin(claims.split())]
    differences = (100 * (rows["a"] - rows["b"])).groupby([rows["claim"], rows["comparison"]])
    freedom = differences.count() - 1
    pooled = (freedom * differences.var()).sum() / freedom.sum()
    return float(np.sqrt(pooled)), int(differences.count().max())


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
    for profile, margin, families in DESIGNS:
        lines = [f"| {profile}, margin {margin:g} | S | sd | truth | {' | '.join(WORDS)} |"]
        lines.append("| :--- | ---: | ---: | :--- |" + " ---: |" * len(WORDS))
        for family, claims in families.items():
            spread, replicates = spread_of(profile, claims)
            for name, truth in TRUTHS.items():
                found = rates(truth, spread, replicates, trials, margin=margin)
                cells = " | ".join(f"{100 * found[word]:.1f}" for word in WORDS)
                kind = f"{family} ({claims.replace(' ', ', ')})"
                lines.append(f"| {kind} | {replicates} | {spread:.2f} | {name} | {cells} |")
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
