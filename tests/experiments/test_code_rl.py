"""Notebooks 07 and 08 on invented runs: their arms, what tables and verdicts say."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from fake_runs import HOW, NUM_STEPS, again, finish_all, finish_same_rollouts, verdicts

from klearlib.curation.pass_rates import RATES, PassRate
from klearlib.data.lines import write_lines
from klearlib.experiments.nb07_soft_reward import SoftReward
from klearlib.experiments.nb08_test_filter import TestFilter
from klearlib.run.folder import RunFolder

SMALL = {"seeds": [0, 1, 2], "test_filter": {}} | HOW
NOISE = np.random.default_rng(0).normal(size=(6, NUM_STEPS))


def rewards(how: dict[str, tuple[float, float]]):
    """Metrics of runs by series: batch means that swing around a rising line, rewards that spread
    inside a batch; how: series -> (swing, spread)."""

    def metrics(series: str, seed: int, step: int) -> dict:
        (swing, spread), noise = how[series], NOISE[seed + 3 * list(how).index(series), step - 1]
        mean = 0.3 + 0.01 * step + swing * (-1) ** step * (1 + 0.2 * noise)
        found = {"rollout/reward_mean": mean, "rollout/correct_rate": mean}
        return found | {"rollout/reward_std": spread + 0.01 * noise}

    return metrics


@pytest.fixture
def soft(project) -> SoftReward:
    return SoftReward(SoftReward.Params(**SMALL))


@pytest.fixture
def filtered(project) -> TestFilter:
    return TestFilter(TestFilter.Params(**SMALL))


def test_only_the_filtered_arm_depends_on_the_filter(filtered):
    assert filtered.arms["filter", 0].params == filtered.arms["no_filter", 0].params
    assert "pool" in filtered.arms["filter", 0].inputs
    assert "pool" not in filtered.arms["no_filter", 0].inputs
    loose = TestFilter(dataclasses.replace(filtered.params, test_filter={"keep_equal": True}))
    assert loose.arms["filter", 0].key != filtered.arms["filter", 0].key
    assert loose.arms["no_filter", 0].key == filtered.arms["no_filter", 0].key
    assert loose.teacher.key == filtered.teacher.key


def test_the_teacher_is_judged_as_the_rollouts_are(filtered):
    tagless = TestFilter(dataclasses.replace(filtered.params, options={"think_tags": "optional"}))
    expected = filtered.teacher.params | {"think_tags": "optional"}
    assert tagless.teacher.params == expected != filtered.teacher.params
    assert tagless.arms["filter", 0].params["settings"]["think_tags"] == "optional"


def test_the_score_table_has_the_tests_that_are_passed(soft):
    finish_all(soft, {"soft": 0.75, "hard": 0.5})
    row = soft.table("scores").set_index(["benchmark", "reward"]).loc[("code A", "soft reward")]
    assert row["end_tests_passed"] == pytest.approx((1 + row["end"]) / 2)
    assert row["paper_last"] == pytest.approx(0.588)


def test_the_variance_is_read_on_the_scale_that_both_arms_share(soft):
    how = {"soft": (0.02, 0.3), "hard": (0.1, 0.48)}
    finish_all(soft, {"soft": 0.5, "hard": 0.5}, rewards(how))
    verdict = verdicts(soft)["C10"]
    assert verdict["verdict"] == "supported"
    # An alternating swing lies almost whole off the straight line; the rise of 0.01 a step on it.
    (found,) = verdict["comparisons"]
    assert found["difference"] == pytest.approx(0.08, abs=0.01) and found["margin"] == 0.01
    assert verdicts(soft)["C17"]["verdict"] == "no difference"  # the same rise in both


def test_the_variance_of_the_gradient_is_read_from_rollouts_that_both_rewards_score(soft):
    assert len({stage.key for stage in soft.same_rollouts.values()}) == 3  # one run for both
    finish_same_rollouts(soft, {seed: 0.4 + NOISE[seed, 0] / 100 for seed in range(3)})
    found = verdicts(soft)["C22"]
    assert found["verdict"] == "supported" and found["comparisons"][0]["margin"] == 0.02
    table = again(soft).table("replicates").set_index(["claim", "replicate"]).loc["C22"]
    assert table["a"].tolist() == pytest.approx(0.4 + NOISE[:3, 0] / 100)
    assert table["b"].tolist() == pytest.approx([0.3 + 0.05 / 3] * 3)  # batches 1, 2 and 4


def test_without_such_rollouts_nothing_is_said_of_the_gradient(soft):
    none = SoftReward(dataclasses.replace(soft.params, reward_batches=0))
    assert not none.same_rollouts
    found = verdicts(none)["C22"]
    assert found["verdict"] == "not run" and "reward_batches" in found["reason"]


def test_a_filter_that_removes_nothing_tests_nothing(judged, monkeypatch):
    finish_all(judged, {"filter": 0.75, "no_filter": 0.5})
    found = verdicts(judged)["C11"]
    assert found["verdict"] == "supported"
    monkeypatch.setattr("klearlib.experiments.nb08_test_filter._kept_at", lambda *_: [True])
    found = verdicts(judged)["C11"]
    assert found["verdict"] == "not tested" and "removed: 0 %" in found["reason"]


TRUTH = [
    # id, flaw, correct of the teacher's 16
    ("a", "", 16),
    ("b", "", 12),
    ("c", "", 8),
    ("d", "outputs", 0),
    ("e", "branch", 0),
    ("f", "solution", 10),
    ("g", "other", 8),
    ("h", "", 9),
]


@pytest.fixture
def judged(filtered) -> TestFilter:
    """With the teacher's pass rates and the planted truth, as the stages would leave them."""
    world = RunFolder(filtered.folder(filtered.teacher.inputs["problems"]))
    rows = [
        {"id": name, "is_flawed": bool(flaw), "flaw": flaw, "num_wrong_tests": 4 * bool(flaw)}
        for name, flaw, _ in TRUTH
    ]
    (world.path / "truth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    world.finish()
    rates = RunFolder(filtered.folder(filtered.teacher))
    rows = (dataclasses.asdict(PassRate(name, 16, n, 0)) for name, _, n in TRUTH)
    write_lines(rows, rates.path / RATES)
    rates.finish()
    return again(filtered)


def test_precision_and_recall_by_hand(judged):
    table = judged.table("filter").set_index("rule")
    used = table.loc["pass rate > 0.5 (used)"]
    # Dropped: c (sound), d, e, g (flawed). Kept with a flaw: f.
    counts = ["kept", "dropped", "flawed_dropped", "sound_dropped"]
    assert used[counts].tolist() == [4, 4, 3, 1]
    assert (used["precision"], used["recall"], used["flawed_share_kept"]) == (0.75, 0.75, 0.25)
    assert used["recall_low"] < 0.75 < used["recall_high"]
    caption = table.loc["pass rate >= 0.5"]
    assert (caption["precision"], caption["recall"]) == (1.0, 0.5)


def test_before_the_teacher_is_judged_the_tables_are_empty(filtered):
    assert filtered.table("filter").empty
