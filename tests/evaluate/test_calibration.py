"""How often verdicts are wrong where the truth is known, and that docs/statistics.md says so."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from klearlib.evaluate.statistics import compare, decide

ROOT = Path(__file__).resolve().parents[2]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")
    BENCH = runpy.run_path(str(ROOT / "benchmarks" / "verdict_calibration.py"))
DESIGNS, TRUTHS, WORDS = BENCH["DESIGNS"], BENCH["TRUTHS"], BENCH["WORDS"]
CELLS = [
    pytest.param(margin, family, replicates, anew, id=f"{family.name}-{replicates}")
    for _, margin, families, anew in DESIGNS
    for family, replicates in families
]


def documented():
    """(family, S, truth) -> word -> percent, as docs/statistics.md prints them."""
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    part = text.partition(BENCH["START"])[2].partition(BENCH["END"])[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
    return {
        (row[0], int(row[1]), row[2]): dict(zip(WORDS, map(float, row[3:]), strict=True))
        for row in rows
        if len(row) == 3 + len(WORDS) and row[1].isdigit()
    }


@pytest.mark.parametrize(("margin", "family", "replicates", "anew"), CELLS)
def test_false_verdicts_are_rare(margin, family, replicates, anew):
    trials, spread = 8_000, family.spread(other_problems=anew)
    limit = 0.025 + 4 * np.sqrt(0.025 * 0.975 / trials)  # 0.032: a rate of 0.04 fails
    printed = documented()
    for name, truth in TRUTHS.items():
        found = BENCH["rates"](truth, spread, replicates, trials, margin=margin)
        if min(truth) <= 0:
            assert found["supported"] < limit, name
        if min(truth) >= 0:
            assert found["contradicted"] < limit, name
        if max(map(abs, truth)) >= margin:  # beyond the margin: never "no difference" by chance
            assert found["no difference"] < 0.05 + 4 * np.sqrt(0.05 * 0.95 / trials), name
        for word, percent in printed[family.name, replicates, name].items():
            assert abs(100 * found[word] - percent) < 2.5, (name, word)


@pytest.mark.parametrize(("margin", "family", "replicates", "anew"), CELLS[::2])
def test_the_simulation_judges_as_decide_does(margin, family, replicates, anew):
    spread = family.spread(other_problems=anew)
    for truth in TRUTHS.values():
        drawn = BENCH["simulated"](truth, spread, replicates, 60, seed=1)
        for trial, word in zip(drawn, BENCH["verdicts"](drawn, margin=margin), strict=True):
            pairs = [compare(row, np.zeros(replicates), margin=margin) for row in trial]
            assert decide(pairs, margin=margin).verdict == word
