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
TRUTHS, WORDS = BENCH["TRUTHS"], BENCH["WORDS"]


def documented():
    """Each kind of run in docs/statistics.md: its profile, name, margin, S and sd, and
    truth -> word -> percent."""
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    part = text.partition(BENCH["START"])[2].partition(BENCH["END"])[0]
    kinds = {}
    for line in filter(None, part.splitlines()):
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "S":
            profile, _, margin = first.partition(", margin ")
        elif cells[0].isdigit():
            kind = profile, first, float(margin), int(cells[0]), float(cells[1])
            percents = dict(zip(WORDS, map(float, cells[3:]), strict=True))
            kinds.setdefault(kind, {})[cells[2]] = percents
    return kinds


KINDS = [pytest.param(*kind, rows, id="-".join(kind[:2])) for kind, rows in documented().items()]


def test_the_page_shows_every_kind_with_the_spread_of_results():
    expected = {
        (profile, f"{family} ({claims.replace(' ', ', ')})", margin)
        for profile, margin, families in BENCH["DESIGNS"]
        for family, claims in families.items()
    }
    assert {kind[:3] for kind in documented()} == expected
    for profile, name, _, replicates, spread in documented():
        if profile == "full":  # a visitor's `make reproduce` writes results/mini anew
            claims = name.partition("(")[2].rstrip(")").replace(",", "")
            assert BENCH["spread_of"](profile, claims) == (
                pytest.approx(spread, abs=0.006),
                replicates,
            )


@pytest.mark.parametrize(("profile", "name", "margin", "replicates", "spread", "printed"), KINDS)
def test_false_verdicts_are_rare(profile, name, margin, replicates, spread, printed):
    trials = 8_000
    limit = 0.025 + 4 * np.sqrt(0.025 * 0.975 / trials)  # 0.032: a rate of 0.04 fails
    assert set(printed) == set(TRUTHS)
    for truth_name, truth in TRUTHS.items():
        found = BENCH["rates"](truth, spread, replicates, trials, margin=margin)
        if min(truth) <= 0:
            assert found["supported"] < limit, truth_name
        if min(truth) >= 0:
            assert found["contradicted"] < limit, truth_name
        if max(map(abs, truth)) >= margin:  # beyond the margin: never "no difference" by chance
            assert found["no difference"] < 0.05 + 4 * np.sqrt(0.05 * 0.95 / trials), truth_name
        for word, percent in printed[truth_name].items():
            assert abs(100 * found[word] - percent) < 2.5, (truth_name, word)


@pytest.mark.parametrize(
    ("profile", "name", "margin", "replicates", "spread", "printed"), KINDS[::2]
)
def test_the_simulation_judges_as_decide_does(profile, name, margin, replicates, spread, printed):
    for truth in TRUTHS.values():
        drawn = BENCH["simulated"](truth, spread, replicates, 60, seed=1)
        for trial, word in zip(drawn, BENCH["verdicts"](drawn, margin=margin), strict=True):
            pairs = [compare(row, np.zeros(replicates), margin=margin) for row in trial]
            assert decide(pairs, margin=margin).verdict == word
