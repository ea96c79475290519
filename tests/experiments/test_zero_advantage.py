"""Notebook 09 on invented runs: its arms, the confound, both readings of "steadies"."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from fake_runs import HOW, NUM_STEPS, again, by_holm, finish, section, verdicts

from klearlib.errors import ParameterError
from klearlib.experiments.catalogue import check
from klearlib.experiments.demos import lm_loss as lm_loss_demos
from klearlib.experiments.nb09_zero_advantage import ZeroAdvantage, ZeroAdvantageParams
from klearlib.experiments.results import off_the_line, off_the_seeds
from klearlib.report.style import series_style

PARAMS = ZeroAdvantageParams(seeds=[0, 1, 2], **HOW)
SOFT = "soft code reward"
# Fixed numbers around 0, so that differences have a spread.
NOISE = np.random.default_rng(5).uniform(0.9, 1.1, size=(3, NUM_STEPS))
# Straight lines, so that they lie apart from one another and not off their own line.
LINES = np.stack([np.ones(NUM_STEPS), np.linspace(-1, 1, NUM_STEPS), np.linspace(1, -1, NUM_STEPS)])

# Mean distance from the mean of the three, which each of them pulls to itself by a third.
APART = np.abs(LINES - LINES.mean(axis=0)).mean() * (3 / 2) ** 0.5


def rates(seed: int, *, swing: float = 0.05, apart: float = 0.05, trained=None):
    """The metrics of a run whose rate correct is a straight line, `apart` times `LINES` away from
    that of all seeds, around which it swings by `swing`."""

    def metrics(step: int) -> dict:
        swung = swing * (-1) ** step * NOISE[seed, step - 1]
        rate = 0.3 + 0.01 * step + swung + apart * LINES[seed, step - 1]
        line = {"rollout/correct_rate": rate, "rollout/reward_mean": 2 * rate - 1}
        return line | {"rollout/reward_mean_trained": trained if step > 1 else None}

    return metrics


def finished(*comparisons: tuple[str, dict[str, float]], how=None, **changes) -> ZeroAdvantage:
    """The experiment with the runs of some comparisons done.

    comparisons: (name, arm -> share right at the end). how: arm -> arguments of `rates`.
    """
    e = ZeroAdvantage(dataclasses.replace(PARAMS, **changes))
    for place, (comparison, ends) in enumerate(comparisons):
        for arm, end in ends.items():
            for seed in e.params.seeds:
                metrics = rates(seed, **(how or {}).get(arm, {}))
                turned = seed + 2 * (arm in ("filter", "accuracy")) + place
                finish(
                    e.arms[f"{comparison}: {arm}", seed], end=end, turned=turned, metrics=metrics
                )
    return again(e)


STEADIER = {"no_filter": {"swing": 0.1, "apart": 0.15}}
BETTER = {"filter": 0.75, "no_filter": 0.5}


def test_the_filter_is_no_option_here():
    with pytest.raises(ParameterError, match="is what this notebook compares: leave it out"):
        check(ZeroAdvantage.name, {"options": {"zero_advantage_filter": "accuracy"}})


def test_a_profile_without_07_says_so(project):
    (project / "params" / "mini" / "07_soft_reward.yaml").unlink()
    with pytest.raises(ParameterError, match=r"profile 'mini' has no 07_soft_reward.yaml"):
        ZeroAdvantage(dataclasses.replace(PARAMS, profile="mini")).stages()


@pytest.mark.parametrize(
    ("ends", "how", "word"),
    [
        (BETTER, STEADIER, "direction"),
        ({"filter": 0.25, "no_filter": 0.5}, STEADIER, "opposite"),
        # Better and less steady, by either reading, is against the claim.
        (BETTER, {"filter": {"swing": 0.1}, "no_filter": {"apart": 0.15}}, "opposite"),
        (BETTER, {"filter": {"apart": 0.15}, "no_filter": {"swing": 0.1}}, "opposite"),
        (BETTER, {}, "inconclusive"),
    ],
)
def test_the_verdict_needs_better_and_steadier(project, ends, how, word):
    verdict = verdicts(finished(("alpha 0", ends), how=how))["C12"]
    assert verdict["verdict"] == word
    assert "Decided at alpha 0 on maths A, which stands for AIME 2024" in verdict["reason"]
    score, over_steps, over_seeds = verdict["comparisons"]
    assert score["difference"] == pytest.approx(ends["filter"] - ends["no_filter"], abs=0.02)
    assert (score["num_seeds"], score["num_problems"]) == (3, 30)
    spread = {arm: {"swing": 0.05, "apart": 0.05} | how.get(arm, {}) for arm in ends}
    swings = [spread[arm]["swing"] for arm in ("no_filter", "filter")]
    # An alternating swing lies almost whole off the straight line, the rise of 0.01 a step on it.
    assert over_steps["difference"] == pytest.approx(swings[0] - swings[1], abs=0.01)
    assert (over_steps["num_seeds"], over_steps["num_problems"]) == (3, 20)
    gap = APART * (spread["no_filter"]["apart"] - spread["filter"]["apart"])
    assert over_seeds["difference"] == pytest.approx(gap, abs=0.015)


def test_p_values_are_corrected_by_holm_over_the_three(project):
    e = finished(("alpha 0", BETTER), how={"no_filter": {"swing": 0.051, "apart": 0.06}})
    runs, seeds = e.of("alpha 0"), [0, 1, 2]
    score = [runs.problem_scores(arm, seeds, ["math_a"]) for arm in BETTER]
    rate = [runs.steps(arm, seeds, "rollout/correct_rate") for arm in reversed(BETTER)]
    pairs = {
        "filter - no filter": score,
        "over steps: no filter - filter": [np.abs(off_the_line(r)) for r in rate],
        "over seeds: no filter - filter": [np.abs(off_the_seeds(r)) for r in rate],
    }
    found = {each["name"]: each["p_holm"] for each in verdicts(e)["C12"]["comparisons"]}
    assert found == pytest.approx(by_holm(pairs))


def test_no_number_of_seeds_is_worked_out_for_a_distance_from_their_mean(project):
    steps = verdicts(finished(("alpha 0", BETTER)))["C12"]["settle"].split("; ")
    assert "over seeds: no filter - filter: at least 8 seeds" in steps and len(steps) >= 2


def test_distances_from_the_seeds_mean_are_unbiased():
    """Their mean square over independent runs is the runs' variance, 1, whatever the number."""
    draws = np.random.default_rng(0)
    for seeds in (2, 3, 8):
        off = off_the_seeds(draws.normal(size=(seeds, 200_000 // seeds)))
        assert (off**2).mean() == pytest.approx(1, abs=0.02)
    assert not off_the_seeds(np.ones((1, 4))).any()


def test_a_third_arm_without_any_filter(project):
    ends = {"off": 0.5, "advantage": 0.75, "accuracy": 0.5}
    e = finished((SOFT, ends), soft_filters=list(ends))
    for arm in ends:
        stage = e.arms[f"{SOFT}: {arm}", 0]
        assert stage.params["settings"]["zero_advantage_filter"] == arm
    table = e.table("effects").set_index(["difference", "benchmark"])
    found = table.loc[("advantage - no filter, soft code reward", "both")]
    assert found["value"] == pytest.approx(0.25, abs=0.02) and found["seeds"] == 3
    assert ("advantage - accuracy, soft code reward", "both") in table.index
    assert set(e.table("training")["arm"]) == {series_style(arm).label for arm in ends}


def test_equal_differences_have_no_interval(project):
    e = ZeroAdvantage(PARAMS)
    for arm, end in BETTER.items():
        for seed in PARAMS.seeds:
            finish(e.arms[f"alpha 0: {arm}", seed], end=end, turned=seed, metrics=rates(seed))
    row = e.table("effects").set_index("benchmark").loc["both"]
    assert row["value"] == pytest.approx(0.25)
    assert row["interval_over"] == "none" and np.isnan(row["low"])


def test_the_training_table_has_each_metric_in_its_column(project):
    counts = {
        "train/num_tokens": 200,
        "train/num_updates": 7,
        "rollout/groups_trained": 5,
        "rollout/groups_all_correct": 2,
        "rollout/groups_all_wrong": 1,
        "train/grad_norm": 0.25,
        "train/positive_tokens": 50,
    }
    e = ZeroAdvantage(PARAMS)
    finish(e.arms["alpha 0: filter", 0], end=0.5, metrics=lambda step: counts)
    row = e.table("training").iloc[0]
    names = ["tokens", "updates", "groups_trained", "all_correct", "all_wrong", "grad_norm"]
    assert row[names].tolist() == pytest.approx([200, 7, 5, 2, 1, 0.25])
    assert row["positive_share"] == pytest.approx(0.25)


def test_the_claim_is_decided_at_alpha_0_alone(project):
    e = finished(("alpha 0.1", BETTER), how=STEADIER)
    assert verdicts(e)["C12"]["verdict"] == "not run"
    verdict = verdicts(ZeroAdvantage(dataclasses.replace(PARAMS, alphas=[0.1])))["C12"]
    assert verdict["verdict"] == "not run" and "alpha 0 was asked for" in verdict["reason"]


def test_effects_and_the_difference_of_the_differences(project):
    e = finished(
        ("alpha 0", {"filter": 0.5, "no_filter": 0.5}),
        ("alpha 0.1", {"filter": 0.25, "no_filter": 0.75}),
        (SOFT, {"advantage": 0.75, "accuracy": 0.5}),
    )
    table = e.table("effects").set_index(["difference", "benchmark"])
    value = table["value"]
    assert value["filter - no filter, alpha 0", "maths A"] == pytest.approx(0, abs=0.02)
    assert value["filter - no filter, alpha 0.1", "both"] == pytest.approx(-0.5, abs=0.02)
    both = table.loc[("the same, alpha 0.1 less alpha 0", "both")]
    assert both["value"] == pytest.approx(
        value["filter - no filter, alpha 0.1", "both"]
        - value["filter - no filter, alpha 0", "both"]
    )
    assert both["low"] < both["value"] < both["high"] and both["problems"] == 60
    soft = "advantage - accuracy, soft code reward"
    assert value[soft, "code A"] == pytest.approx(0.25, abs=0.02)
    paper = table["paper"].dropna()
    assert paper.tolist() == pytest.approx([0.007, 0.007])
    assert {benchmark for _, benchmark in paper.index} == {"maths A"}
    scores = e.table("scores")["comparison"].value_counts().to_dict()
    assert scores == {"alpha 0": 6, "alpha 0.1": 6, SOFT: 6}
    assert section(e)["status"] == "complete"


def test_the_reward_table_keeps_both_means_apart(project):
    how = {"filter": {"trained": -0.1}, "no_filter": {"trained": 0.2}}
    table = finished(("alpha 0", BETTER), how=how).table("rewards")
    table = table.set_index(["comparison", "arm"])
    row = table.loc[("alpha 0", "with filter")]
    # Step 1 had no group left: it is no zero.
    assert row["trained_first_fifth"] == pytest.approx(-0.1)
    assert row["all_last_fifth"] == pytest.approx(2 * (0.3 + 0.01 * 18.5 + 0.05 / 3) - 1, abs=0.03)
    assert row["correct_off_line"] == pytest.approx(0.05, abs=0.006)
    assert row["correct_off_seeds"] == pytest.approx(0.05 * APART, abs=0.01)
    paper = table.loc[("paper, Fig. 5b", "with filter")]
    assert paper["trained_off_line"] == pytest.approx(0.0442, abs=5e-4)
    assert np.isnan(paper["correct_off_seeds"])


def test_a_group_without_advantage_only_dilutes_until_alpha_lets_it_teach():
    table = pd.DataFrame(lm_loss_demos.zero_advantage_gradients([0.0, 0.1])).set_index(
        ["alpha", "arm"]
    )
    assert table["largest_error"].max() < 1e-12
    off, on = table.loc[(0.0, "no filter")], table.loc[(0.0, "filter")]
    assert off["solved"] == off["failed"] == 0
    # Rewards 1, -1, -1: mean -1/3, deviation sqrt(8)/3, so A = sqrt(2) and -1 / sqrt(2).
    assert on["mixed_correct"] == pytest.approx(-np.sqrt(2) / 9)
    assert off["mixed_correct"] / on["mixed_correct"] == pytest.approx(9 / 27)
    confounded = table.loc[(0.1, "no filter")]
    assert confounded["solved"] == pytest.approx(-0.1 / 10) and confounded["failed"] == 0
    assert table.loc[(0.1, "filter"), "solved"] == 0
