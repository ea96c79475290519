"""Notebook 09 on invented runs: its arms, the confound, both readings of "steadies"."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fake_runs import HOW, NUM_STEPS, again, finish, section, verdicts

from klearlib.errors import ParameterError
from klearlib.experiments.catalogue import check
from klearlib.experiments.nb09_zero_advantage import ZeroAdvantage, ZeroAdvantageParams

PARAMS = ZeroAdvantageParams(seeds=[0, 1, 2], **HOW)
SOFT = "soft code reward"
STARTS = ("start", "start_validation")
# Fixed numbers around 0, so that differences have a spread.
NOISE = np.random.default_rng(5).uniform(0.9, 1.1, size=(3, NUM_STEPS))
# Straight lines, so that they lie apart from one another and not off their own line.
LINES = np.stack([np.ones(NUM_STEPS), np.linspace(-1, 1, NUM_STEPS), np.linspace(1, -1, NUM_STEPS)])


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


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_both_arms_go_on_from_one_checkpoint_of_rl_with_the_filter(alpha):
    for steps in (7, 0):
        arms = ZeroAdvantage(dataclasses.replace(PARAMS, branch_steps=steps)).arms
        pair = [arms[f"alpha {alpha:g}: {arm}", 1] for arm in ("filter", "no_filter")]
        starts = [stage.inputs["sft"] for stage in pair]
        assert starts[0].key == starts[1].key and pair[0].key != pair[1].key
        measured = {pair[0].inputs[name].inputs["model"].key for name in STARTS}
        assert measured == {starts[0].key}, "a run starts with the scores of its own start"
        for stage in pair:
            settings = stage.params["settings"]
            assert (settings["num_steps"], settings["steps_before"]) == (NUM_STEPS, steps)
    assert starts[0].name == "sft"
    branch = ZeroAdvantage(dataclasses.replace(PARAMS, branch_steps=7)).arms
    first = branch[f"alpha {alpha:g}: no_filter", 1].inputs["sft"]
    settings = first.params["settings"]
    assert (first.name, first.params["seed"], settings["num_steps"]) == ("rl", 1, 7)
    assert (settings["alpha"], settings["steps_before"]) == (alpha, 0)
    assert settings["zero_advantage_filter"] == "advantage" and first.inputs["sft"].name == "sft"


def test_without_filters_of_the_soft_reward_07_is_not_asked_for():
    values = {"soft_filters": [], "alphas": [0.0]}
    e = ZeroAdvantage(dataclasses.replace(check(ZeroAdvantage.name, values), **HOW))
    assert [series for series, _ in e.arms] == ["alpha 0: filter", "alpha 0: no_filter"]
    assert e.reads() == {} and list(e.comparisons) == ["alpha 0"]


def test_steadiness_is_that_of_the_mean_of_both_benchmarks(project):
    e = ZeroAdvantage(PARAMS)
    ends = {"math_a": 1.0, "math_b": 0.25, "validation": 0.5}
    finish(e.arms["alpha 0: filter", 0], end=ends)
    runs = again(e).runs.under("alpha 0")
    means = np.array(
        [np.mean([runs.score_curve(name)["value"][i] for name in ("math_a", "math_b")])
         for i in range(3)]
    )  # fmt: skip
    bend = abs(means[0] - 2 * means[1] + means[2])  # of three points: a sixth, a third and a sixth
    found = runs.curve_distances("filter", [0], ["math_a", "math_b"])
    assert found == pytest.approx([bend * (1 / 6 + 1 / 3 + 1 / 6) / 3])


def test_a_profile_without_07_says_so(project):
    (project / "params" / "mini" / "07_soft_reward.yaml").unlink()
    with pytest.raises(ParameterError, match=r"profile 'mini' has no 07_soft_reward.yaml"):
        ZeroAdvantage(dataclasses.replace(PARAMS, profile="mini")).stages()


@pytest.mark.parametrize(
    ("ends", "word"),
    [(BETTER, "supported"), ({"filter": 0.25, "no_filter": 0.5}, "contradicted")],
)
def test_better_is_decided_on_scores_and_steadier_on_their_curve(project, ends, word):
    e = finished(("alpha 0", ends))
    found = verdicts(e)
    assert found["C12"]["verdict"] == word
    assert "which stands for AIME 2024, at alpha 0" in found["C12"]["reason"]
    (score,) = found["C12"]["comparisons"]
    assert score["difference"] == pytest.approx(ends["filter"] - ends["no_filter"], abs=0.02)
    assert score["num_replicates"] == 3

    def distance(end):  # of .25, .5, end from their line: a third of the bend, 4/3 on average
        return abs(end - 2 * 0.5 + 0.25) * 2 / 9

    (curve,) = found["C21"]["comparisons"]
    gap = distance(ends["no_filter"]) - distance(ends["filter"])
    assert curve["difference"] == pytest.approx(gap, abs=0.01) and curve["margin"] == 0.01


def test_without_constant_groups_nothing_is_tested(project):
    # Groups that are all wrong may differ in their tags: the filter leaves those in.
    wrong = {"rollout/groups_all_correct": 0.01, "rollout/groups_all_wrong": 0.9}
    e = ZeroAdvantage(PARAMS)
    for (series, seed), stage in e.arms.items():
        if series.startswith("alpha 0:"):
            share = 0.96 if series.endswith(": filter") else 0.5
            left = {"rollout/groups_trained": share * PARAMS.num_problems} | wrong
            finish(stage, end=0.5, turned=seed, metrics=lambda step, left=left: left)
    found = verdicts(e)
    assert {found[name]["verdict"] for name in ("C12", "C21")} == {"not tested"}
    assert "groups without advantage: 4 %, needs at least 5 %" in found["C12"]["reason"]


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


def test_the_claim_is_decided_at_alpha_0_alone(project):
    e = finished(("alpha 0.1", BETTER), how=STEADIER)
    assert verdicts(e)["C12"]["verdict"] == "not run"
    verdict = verdicts(ZeroAdvantage(dataclasses.replace(PARAMS, alphas=[0.1])))["C12"]
    assert verdict["verdict"] == "not run" and "alpha 0 was not asked for" in verdict["reason"]


def test_a_run_at_another_alpha_that_did_not_train_leaves_the_claims_alone(project):
    e = finished(("alpha 0", BETTER))
    idle = {"train/grad_norm": None, "train/num_updates": 0, "rollout/groups_all_wrong": 1}
    finish(e.arms["alpha 0.1: no_filter", 1], end=0.5, metrics=lambda step: idle)
    assert "alpha 0.1" in section(e)["notes"][-1] and verdicts(e)["C12"]["verdict"] == "supported"


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
