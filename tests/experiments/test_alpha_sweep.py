"""Notebook 06 on invented runs: Table 6, Eq. 14 and the verdict."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from fake_runs import HOW, again, finish, verdicts

from klearlib.experiments.nb06_alpha_sweep import AlphaSweep, AlphaSweepParams
from klearlib.experiments.objectives import alpha_gradients

PARAMS = AlphaSweepParams(seeds=[0, 1, 2], **HOW)
ALPHAS = PARAMS.alphas
FLAT = dict.fromkeys(ALPHAS, 0.5)


def finished(ends: dict[float, float], metrics=None, **changes) -> AlphaSweep:
    """The sweep with all runs done; ends: alpha -> share right at the end."""
    e = AlphaSweep(dataclasses.replace(PARAMS, **changes))
    for (series, seed), stage in e.arms.items():
        alpha = float(series.removeprefix("alpha_"))
        turned = seed + e.params.alphas.index(alpha)
        finish(stage, end=ends[alpha], turned=turned, metrics=metrics)
    return again(e)


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        (FLAT | {0.1: 0.75}, "supported"),
        (FLAT | {0.2: 0.75}, "contradicted"),
        (FLAT, "no difference"),
        # As good as another one, on the plateau.
        (FLAT | {0.1: 0.75, 0.05: 0.75}, "supported"),
    ],
)
def test_the_verdict_needs_0_1_above_0_and_no_alpha_above_it(project, ends, word):
    verdict = verdicts(finished(ends))["C8"]
    assert verdict["verdict"] == word
    assert "math_decide, which stands for AIME 2024 and AIME 2025" in verdict["reason"]
    by_name = {c["name"]: c for c in verdict["comparisons"]}
    for other in ("0", "0.05", "0.2"):
        found = by_name[f"alpha 0.1 - alpha {other}"]
        assert found["difference"] == pytest.approx(ends[0.1] - ends[float(other)], abs=0.03)
        assert found["num_replicates"] == 3


def test_table_6_has_every_row_of_the_paper_beside_ours(project):
    table = finished(FLAT | {0.05: 0.375}).table("scores").set_index(["benchmark", "arm"])
    assert len(table) == 3 * 5
    turned = np.mean([len(range(seed, 30, 7)) / 240 for seed in (0, 1, 2)])
    start = table.loc[("maths A", "starting checkpoint")]
    assert start["score"] == pytest.approx(0.25 - turned)
    assert start["paper"] == pytest.approx(0.7351)
    turned = np.mean([len(range(seed + 1, 30, 7)) / 240 for seed in (0, 1, 2)])
    # The last step counts, not the best one (0.5 at step 10).
    low = table.loc[("maths B", "alpha = 0.05")]
    assert low["score"] == pytest.approx(0.375 - turned)
    assert (low["seeds"], low["paper_benchmark"]) == (3, "AIME 2025")
    assert low["paper"] == pytest.approx(0.6948)
    both = table.loc[("mean of both", "alpha = 0")]
    assert both["paper"] == pytest.approx((0.7813 + 0.6802) / 2)
    assert both["low"] < both["score"] < both["high"]


def test_an_alpha_that_the_paper_has_not_has_no_paper_score(project):
    e = finished({0.0: 0.5, 0.3: 0.75}, alphas=[0.0, 0.3], seeds=[0])
    table = e.table("scores").set_index(["benchmark", "arm"])
    assert np.isnan(table.loc[("maths A", "alpha = 0.3"), "paper"])
    verdict = verdicts(e)["C8"]
    assert verdict["verdict"] == "not run"
    assert verdict["reason"] == "alphas has no 0.05 and no 0.1 and no 0.2, which the claim compares"


def test_two_alphas_decide_c19_alone(project):
    found = verdicts(finished({0.0: 0.5, 0.1: 0.75}, alphas=[0.0, 0.1]))
    assert (found["C8"]["verdict"], found["C19"]["verdict"]) == ("not run", "supported")
    assert found["C8"]["reason"].startswith("alphas has no 0.05 and no 0.2")


def test_autograd_of_equation_14_is_its_closed_form():
    table = pd.DataFrame(alpha_gradients([0.0, 0.1], eps_low=0.2, eps_high=0.28))
    assert table[["autograd_error", "training_loop_error"]].to_numpy().max() < 1e-12
    assert table["tokens"].tolist() == [10, 10] and table["positive_tokens"].tolist() == [7, 7]
    # exp(0.05) inside the range, A = 1; ratio exp(0.6) is clipped to 1.28 only where A > 0.
    assert table.loc[0, "correct_token"] == pytest.approx(-np.exp(0.05) / 10)
    assert table.loc[1, "correct_token"] == pytest.approx(-np.exp(0.05) / 10 - 0.1 / 7)
    assert table["wrong_token"].tolist() == pytest.approx([np.exp(-0.1) / 10] * 2)
    # Micro-batches of (3 + 2) and (4 + 1) tokens hold 3 and 4 positive ones.
    assert table.loc[1, "LM_part_split_first"] == pytest.approx(-0.1 / 2 / 3)
    assert table.loc[1, "LM_part_split_third"] == pytest.approx(-0.1 / 2 / 4)
