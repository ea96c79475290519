"""Notebook 06 on invented runs: its arms, Table 6, the optimum and the verdict."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from klearlib.experiments.publish import results_dir
from maths_rl_fakes import HOW, finish

from klearlib import params as parameters
from klearlib.errors import ParameterError
from klearlib.evaluate.bootstrap import best_shares
from klearlib.evaluate.scores import paired_difference
from klearlib.experiments import (
    alpha_sweep,
    alpha_sweep_section,
    clipping,
    curves,
)
from klearlib.experiments.demos import lm_loss as lm_loss_demos
from klearlib.experiments.nb06_alpha_sweep import AlphaSweepParams

REPOSITORY = Path(__file__).resolve().parents[2]
PARAMS = AlphaSweepParams(seeds=[0, 1, 2], **HOW)
ALPHAS = PARAMS.alphas


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def finish_all(ends: dict[float, float], metrics=None, params=PARAMS) -> None:
    for place, alpha in enumerate(params.alphas):
        for seed in params.seeds:
            stage = alpha_sweep.arms(params)[alpha_sweep.series_of(alpha), seed]
            finish(stage, end=ends[alpha], turned=seed + place, metrics=metrics)


FLAT = dict.fromkeys(ALPHAS, 0.5)


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_alpha_0_is_the_gppo_run_of_05(profile):
    """Both notebooks' files must agree, or 06 trains the arm again."""
    sweep, clip = (
        parameters.check(name, parameters.load_profile(profile, name))
        for name in (alpha_sweep.NOTEBOOK, clipping.NOTEBOOK)
    )
    mine, other = alpha_sweep.arms(sweep), clipping.arms(clip)
    assert set(sweep.seeds) <= set(clip.seeds)
    for seed in sweep.seeds:
        assert mine["alpha_0", seed].key == other["gppo", seed].key
        assert mine["alpha_0.1", seed].key != other["gppo", seed].key


def test_arms_are_round_robin_over_seeds_and_differ_in_alpha_alone(project):
    arms = alpha_sweep.arms(PARAMS)
    assert list(arms)[:5] == [*((f"alpha_{a}", 0) for a in ("0", "0.05", "0.1", "0.2")),
                              ("alpha_0", 1)]  # fmt: skip
    settings = [arms[alpha_sweep.series_of(alpha), 0].params for alpha in ALPHAS]
    assert [each["settings"].pop("alpha") for each in settings] == ALPHAS
    assert len({json.dumps(each, sort_keys=True) for each in settings}) == 1
    assert settings[0]["rule"]["name"] == "gppo"


def test_nothing_done_says_not_run_and_publishes(project):
    (verdict,) = alpha_sweep_section.verdicts(PARAMS)
    assert (verdict["claim"], verdict["verdict"]) == ("C8", "not run")
    section = json.loads(alpha_sweep_section.publish(PARAMS).read_text())
    assert section["status"] == "partial" and len(section["missing"]) == 12


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        (FLAT | {0.1: 0.75}, "direction"),
        (FLAT | {0.2: 0.75}, "opposite"),
        (FLAT, "inconclusive"),
        # Better than two of three is not best.
        (FLAT | {0.1: 0.75, 0.05: 0.75}, "inconclusive"),
    ],
)
def test_the_verdict_needs_0_1_above_every_other_alpha(project, ends, word):
    finish_all(ends)
    (verdict,) = alpha_sweep_section.verdicts(PARAMS)
    assert verdict["verdict"] == word
    assert "maths A for AIME 2024 and maths B for AIME 2025" in verdict["reason"]
    by_name = {c["name"]: c for c in verdict["comparisons"]}
    for other in ("0", "0.05", "0.2"):
        found = by_name[f"alpha 0.1 - alpha {other}"]
        assert found["difference"] == pytest.approx(ends[0.1] - ends[float(other)], abs=0.011)
        assert (found["num_seeds"], found["num_problems"]) == (3, 60)


def test_p_values_are_corrected_by_holm(project):
    """Smallest first: three times, twice, once, and never below one that was smaller."""
    finish_all({0.0: 0.5, 0.05: 0.625, 0.1: 0.625, 0.2: 0.75})
    (verdict,) = alpha_sweep_section.verdicts(PARAMS)
    runs, seeds = alpha_sweep.finished_runs(PARAMS), PARAMS.seeds
    names = ["math_a", "math_b"]
    arm = {a: curves.problem_scores(runs, f"alpha_{a:g}", seeds, names) for a in ALPHAS}
    plain = {
        f"alpha 0.1 - alpha {other:g}": paired_difference(arm[0.1], arm[other]).p_value
        for other in (0.0, 0.05, 0.2)
    }
    last, wanted = 0.0, {}
    for times, name in zip((3, 2, 1), sorted(plain, key=plain.get), strict=True):
        last = max(last, min(1.0, times * plain[name]))
        wanted[name] = last
    found = {each["name"]: each["p_holm"] for each in verdict["comparisons"]}
    assert found == pytest.approx(wanted) and found != pytest.approx(plain)


def test_the_miniature_is_never_paper_scale(project, monkeypatch):
    finish_all(FLAT | {0.1: 0.75})
    monkeypatch.setattr(alpha_sweep_section, "is_paper_scale", lambda profile: True)
    assert alpha_sweep_section.verdicts(PARAMS)[0]["verdict"] == "direction"
    monkeypatch.setattr(AlphaSweepParams, "worlds", ())
    assert alpha_sweep_section.verdicts(PARAMS)[0]["verdict"] == "reproduced"


def test_alphas_that_print_alike_are_refused():
    for notebook in ("06_alpha_sweep", "09_zero_advantage"):
        with pytest.raises(ParameterError, match="print alike"):
            parameters.check(notebook, {"alphas": [0.0, 0.1, 0.10000001]})


def test_one_seed_gives_no_shares_and_an_interval_over_problems(project):
    mine = dataclasses.replace(PARAMS, seeds=[0])
    finish_all(FLAT | {0.2: 0.75}, params=mine)
    table = alpha_sweep_section.optimum_table(mine).set_index("alpha")
    assert table["best_in_resamples"].isna().all()
    row = table.loc[0.2]
    assert row["interval_over"] == "problems" and row["low"] < row["minus_alpha_0"] < row["high"]


def test_equal_differences_have_no_interval(project):
    for alpha in ALPHAS:
        for seed in PARAMS.seeds:
            stage = alpha_sweep.arms(PARAMS)[alpha_sweep.series_of(alpha), seed]
            finish(stage, end=0.5 + alpha / 0.8, turned=seed)
    row = alpha_sweep_section.optimum_table(PARAMS).set_index("alpha").loc[0.2]
    assert row["minus_alpha_0"] == pytest.approx(0.25)
    assert row["interval_over"] == "none" and np.isnan(row["low"]) and np.isnan(row["high"])


def test_table_6_has_every_row_of_the_paper_beside_ours(project):
    finish_all(FLAT | {0.05: 0.375})
    table = alpha_sweep_section.score_table(PARAMS).set_index(["benchmark", "arm"])
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
    mine = dataclasses.replace(PARAMS, alphas=[0.0, 0.3], seeds=[0])
    finish_all({0.0: 0.5, 0.3: 0.75}, params=mine)
    table = alpha_sweep_section.score_table(mine).set_index(["benchmark", "arm"])
    assert np.isnan(table.loc[("maths A", "alpha = 0.3"), "paper"])
    (verdict,) = alpha_sweep_section.verdicts(mine)
    assert verdict["verdict"] == "not run" and "alpha_0.05" in verdict["reason"]


def test_the_optimum_beside_the_differences(project):
    finish_all(FLAT | {0.2: 0.75})
    table = alpha_sweep_section.optimum_table(PARAMS).set_index("alpha")
    assert table.loc[0.2, "best_in_resamples"] == 1.0
    assert table["best_in_resamples"].sum() == pytest.approx(1.0)
    assert np.isnan(table.loc[0.0, "minus_alpha_0"])
    row = table.loc[0.2]
    assert row["minus_alpha_0"] == pytest.approx(0.25, abs=0.011)
    assert row["low"] < row["minus_alpha_0"] < row["high"]
    assert row["paper_minus_alpha_0"] == pytest.approx((0.7844 + 0.6958 - 0.7813 - 0.6802) / 2)
    assert (row["seeds"], row["problems"]) == (3, 60)


def test_effects_are_those_of_the_last_fifth(project):
    def metrics(step: int) -> dict:
        late = step > 16
        return {
            "train/entropy": 0.3 if late else 2.0,
            "train/num_tokens": 200,
            "train/positive_tokens": 150 if late else 20,
        }

    finish_all(FLAT, metrics)
    table = alpha_sweep_section.effect_table(PARAMS).set_index("alpha")
    assert table["entropy"].tolist() == pytest.approx([0.3] * 4)
    assert table["positive_share"].tolist() == pytest.approx([0.75] * 4)


def test_publishing_the_same_results_again_changes_no_byte(project):
    finish_all(FLAT)
    alpha_sweep_section.publish(PARAMS)
    folder = results_dir(PARAMS.profile, alpha_sweep.NOTEBOOK)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    alpha_sweep_section.publish(PARAMS)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert {"table6.svg", "scores.csv", "learning.png"} <= set(first)


def test_best_shares_by_hand():
    """One seed, two problems: a wins unless problem 2 is drawn twice, 1 of 4 equally likely."""
    shares = best_shares(
        {"a": np.array([[1.0, 0.0]]), "b": np.array([[0.0, 0.4]])}, num_resamples=40_000
    )
    assert shares["a"] == pytest.approx(3 / 4, abs=0.01)
    # The same over seeds alone: two seeds, one problem.
    shares = best_shares(
        {"a": np.array([[1.0], [0.0]]), "b": np.array([[0.0], [0.4]])}, num_resamples=40_000
    )
    assert shares["a"] == pytest.approx(3 / 4, abs=0.01)
    # b is better in the one cell (seed 1, problem 1), by more than a is in the other three: a wins
    # unless the cell weighs over a third, w_seed * w_problem of {0, .5, 1}: 1, 1 or 1, .5 or .5, 1.
    a = np.array([[1.0, 1.0], [1.0, 0.0]])
    b = np.array([[0.0, 0.0], [0.0, 2.0]])
    shares = best_shares({"a": a, "b": b}, num_resamples=40_000)
    assert shares["b"] == pytest.approx(1 / 16 + 2 / 8, abs=0.01)


def test_ties_are_shared_and_arms_stay_paired():
    scores = np.array([[0.1, 0.9, 0.4], [0.3, 0.2, 0.8]])
    shares = best_shares({"a": scores, "b": scores, "c": scores - 1e-6})
    assert shares == {"a": 0.5, "b": 0.5, "c": 0.0}
    assert best_shares({"a": scores, "b": scores[::-1]}) == best_shares(
        {"a": scores, "b": scores[::-1]}
    )
    for wrong in ({}, {"a": scores, "b": scores[:1]}, {"a": scores[0]}):
        with pytest.raises(ValueError, match="expected one array"):
            best_shares(wrong)


def test_autograd_of_equation_14_is_its_closed_form():
    table = lm_loss_demos.alpha_gradients([0.0, 0.1], eps_low=0.2, eps_high=0.28)
    assert table[["autograd_error", "training_loop_error"]].to_numpy().max() < 1e-12
    assert table["tokens"].tolist() == [10, 10] and table["positive_tokens"].tolist() == [7, 7]
    # exp(0.05) inside the range, A = 1; ratio exp(0.6) is clipped to 1.28 only where A > 0.
    assert table.loc[0, "correct_token"] == pytest.approx(-np.exp(0.05) / 10)
    assert table.loc[1, "correct_token"] == pytest.approx(-np.exp(0.05) / 10 - 0.1 / 7)
    assert table["wrong_token"].tolist() == pytest.approx([np.exp(-0.1) / 10] * 2)
    # Micro-batches of (3 + 2) and (4 + 1) tokens hold 3 and 4 positive ones.
    assert table.loc[1, "LM_part_split_first"] == pytest.approx(-0.1 / 2 / 3)
    assert table.loc[1, "LM_part_split_third"] == pytest.approx(-0.1 / 2 / 4)


def test_positives_by_reward_lose_correct_responses():
    table = lm_loss_demos.positives()
    assert table["tokens"].tolist() == [1, 4, 2, 3]
    assert table["share_by_verdict"].tolist() == pytest.approx([1 / 7, 4 / 7, 2 / 7, 0])
    assert table["share_by_reward_is_1"].tolist() == [1.0, 0.0, 0.0, 0.0]
