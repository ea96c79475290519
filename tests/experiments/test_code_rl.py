"""Notebooks 07 and 08 on invented runs: which arms there are, what tables and verdicts say."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from klearlib.experiments.publish import departures, results_dir, runs_dir

from klearlib import params as parameters
from klearlib.curation.pass_rates import RATES, PassRate, write_pass_rates
from klearlib.evaluate.record_files import save_record
from klearlib.experiments import (
    filtering,
    filtering_section,
    soft_reward,
    soft_reward_section,
)
from klearlib.experiments.demos import judging as judging_demo
from klearlib.experiments.nb07_soft_reward import SoftRewardParams
from klearlib.experiments.nb08_test_filter import TestFilterParams
from klearlib.params import RLOptions
from klearlib.records import EvalRecord
from klearlib.rl.metrics import METRICS
from klearlib.run.folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[2]
HOW = {"seeds": [0, 1, 2], "num_steps": 20, "eval_every": 10, "eval_responses": 8}
HOW |= {"test_filter": {}}
SOFT, FILTER = SoftRewardParams(**HOW), TestFilterParams(**HOW)


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def finish(stage, *, end: float, swing: float = 0.0, std: float = 0.3, offset: int = 0) -> None:
    """A finished run that ends with a share `end` of right programs; its batch means swing around a
    rising line by `swing`, its rewards spread by `std` inside a batch."""
    folder = RunFolder(stage.folder(runs_dir()))
    folder.load_checkpoint()
    noise = np.random.default_rng(offset).normal(size=HOW["num_steps"])
    for step in range(1, HOW["num_steps"] + 1):
        line = dict.fromkeys(METRICS, 0.5) | {"step": step, "rollout/judge_failures": 0}
        mean = 0.3 + 0.01 * step + swing * (-1) ** step * (1 + 0.2 * noise[step - 1])
        line |= {"rollout/reward_mean": mean, "rollout/reward_std": std + 0.01 * noise[step - 1]}
        folder.append_metrics(line)
    for step, rate in {0: 0.25, 10: 0.5, HOW["num_steps"]: end}.items():
        for name in ("code_a", "code_b", "validation"):
            correct = np.zeros((30, 8), dtype=bool)
            correct[:, : round(rate * 8)] = True
            correct[offset::7, :1] ^= True  # intervals are neither empty nor zero
            record = EvalRecord(
                name,
                tuple(f"{name}-{i}" for i in range(30)),
                correct,
                np.zeros_like(correct),
                np.ones((30, 8), dtype=int),
                np.where(correct, "correct", "wrong"),
                np.where(correct, 1.0, 0.5),
            )
            save_record(record, folder.path / "evaluations" / f"{name}-{step:05d}.npz")
    folder.finish()


def finish_all(arms, how: dict[str, dict]) -> None:
    for (series, seed), stage in arms.items():
        finish(stage, offset=seed + 3 * list(how).index(series), **how[series])


def verdict_of(section, params, claim: str) -> dict:
    return next(v for v in section.verdicts(params) if v["claim"] == claim)


@pytest.mark.parametrize("profile", ["smoke", "mini"])
def test_the_filtered_soft_arm_is_one_run_for_both_notebooks(profile):
    """Both notebooks' parameters must agree, or 08 trains three runs more."""
    both = [
        parameters.check(name, parameters.load_profile(profile, name))
        for name in (soft_reward.NOTEBOOK, filtering.NOTEBOOK)
    ]
    soft, filtered = soft_reward.arms(both[0]), filtering.arms(both[1])
    for seed in both[0].seeds:
        assert soft["soft", seed].key == filtered["filter", seed].key
        assert len({soft["soft", seed].key, soft["hard", seed].key}) == 2
        assert filtered["no_filter", seed].key != filtered["filter", seed].key


def test_arms_differ_in_one_value(project):
    arms = soft_reward.arms(SOFT)
    assert list(arms)[:3] == [("soft", 0), ("hard", 0), ("soft", 1)]
    soft, hard = arms["soft", 1].params["settings"], arms["hard", 1].params["settings"]
    assert {name for name in soft if soft[name] != hard[name]} == {"code_reward"}
    arms = filtering.arms(FILTER)
    assert arms["filter", 0].params == arms["no_filter", 0].params
    assert "pool" in arms["filter", 0].inputs and "pool" not in arms["no_filter", 0].inputs
    loose = dataclasses.replace(FILTER, test_filter={"keep_equal": True})
    assert filtering.arms(loose)["filter", 0].key != arms["filter", 0].key
    assert filtering.arms(loose)["no_filter", 0].key == arms["no_filter", 0].key
    assert filtering.rates_stage(loose).key == filtering.rates_stage(FILTER).key


def test_nothing_done_says_not_run_and_publishes(project):
    words = {v["claim"]: v["verdict"] for v in soft_reward_section.verdicts(SOFT)}
    assert words == {"C9": "not run", "C10": "not run"}
    assert json.loads(soft_reward_section.publish(SOFT).read_text())["status"] == "partial"
    assert verdict_of(filtering_section, FILTER, "C11")["verdict"] == "not run"
    section = json.loads(filtering_section.publish(FILTER).read_text())
    assert section["status"] == "partial" and len(section["missing"]) == 6


@pytest.mark.parametrize(("soft", "word"), [(0.75, "direction"), (0.25, "opposite")])
def test_the_score_verdict_follows_the_sign(project, soft, word):
    finish_all(soft_reward.arms(SOFT), {"soft": {"end": soft}, "hard": {"end": 0.5}})
    verdict = verdict_of(soft_reward_section, SOFT, "C9")
    assert verdict["verdict"] == word
    row = soft_reward_section.score_table(SOFT).set_index(["benchmark", "reward"])
    row = row.loc[("code A", "soft reward")]
    # A wrong program of `finish` passes half of its tests.
    assert row["end_tests_passed"] == pytest.approx((1 + row["end"]) / 2)
    assert row["paper_last"] == pytest.approx(0.588)
    assert verdict["comparisons"][0]["difference"] == pytest.approx(soft - 0.5, abs=0.01)
    assert (verdict["comparisons"][0]["num_seeds"], verdict["comparisons"][0]["num_problems"]) == (
        3,
        30,
    )


def test_both_readings_of_the_variance_are_measured_on_their_own(project):
    arms = soft_reward.arms(SOFT)
    hard = {"end": 0.5, "swing": 0.1, "std": 0.48}
    finish_all(arms, {"soft": {"end": 0.5, "swing": 0.02, "std": 0.3}, "hard": hard})
    verdict = verdict_of(soft_reward_section, SOFT, "C10")
    assert verdict["verdict"] == "direction"
    batch_means, inside = verdict["comparisons"]
    # An alternating swing lies almost whole off the straight line; the rise of 0.01 a step on it.
    assert batch_means["difference"] == pytest.approx(0.08, abs=0.01)
    assert inside["difference"] == pytest.approx(0.18, abs=0.01)
    assert batch_means["num_problems"] == 20 and "3 seeds x 20 steps" in verdict["measured"]
    table = soft_reward_section.reward_table(SOFT).set_index("reward")
    assert table.loc["soft reward", "batch_means_distance"] == pytest.approx(0.02, abs=0.004)
    assert table.loc["soft reward", "last_fifth"] == pytest.approx(0.485, abs=0.02)
    assert table.loc["paper: soft reward", "batch_means_std"] == pytest.approx(0.063, abs=5e-4)


def test_a_smaller_spread_inside_a_batch_alone_is_no_direction(project):
    """What the paper plots counts against the claim: the verdict must not hide that."""
    finish_all(
        soft_reward.arms(SOFT),
        {
            "soft": {"end": 0.5, "swing": 0.1, "std": 0.3},
            "hard": {"end": 0.5, "swing": 0.02, "std": 0.48},
        },
    )
    verdict = verdict_of(soft_reward_section, SOFT, "C10")
    assert verdict["verdict"] == "opposite" and "batch means" in verdict["reason"]


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
def judged(project):
    """The teacher's pass rates and the planted truth, as the stages would leave them."""
    stage = filtering.rates_stage(FILTER)
    world = RunFolder(stage.inputs["problems"].folder(runs_dir()))
    rows = [
        {"id": name, "is_flawed": bool(flaw), "flaw": flaw, "num_wrong_tests": 4 * bool(flaw)}
        for name, flaw, _ in TRUTH
    ]
    (world.path / "truth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    world.finish()
    rates = RunFolder(stage.folder(runs_dir()))
    write_pass_rates([PassRate(name, 16, n, 0, 0.9) for name, _, n in TRUTH], rates.path / RATES)
    rates.finish()


@pytest.mark.usefixtures("judged")
def test_precision_and_recall_by_hand():
    table = filtering_section.filter_table(FILTER).set_index("rule")
    used = table.loc["pass rate > 0.5 (used)"]
    # Dropped: c (sound), d, e, g (flawed). Kept with a flaw: f.
    assert (used["kept"], used["dropped"], used["flawed_dropped"], used["sound_dropped"]) == (
        4,
        4,
        3,
        1,
    )
    assert (used["precision"], used["recall"], used["flawed_share_kept"]) == (0.75, 0.75, 0.25)
    assert used["recall_low"] < 0.75 < used["recall_high"]
    caption = table.loc["pass rate >= 0.5"]
    assert (caption["precision"], caption["recall"]) == (1.0, 0.5)
    flaws = filtering_section.flaw_table(FILTER).set_index("tests")
    assert flaws.loc["solution", "share"] == 0 and flaws.loc["outputs", "share"] == 1
    assert (flaws.loc["sound", "problems"], flaws.loc["sound", "dropped"]) == (4, 1)
    assert flaws.loc["sound", "mean_pass_rate"] == pytest.approx(45 / 64)
    assert flaws.loc["sound", "mean_tests_passed"] == pytest.approx(0.9)


@pytest.mark.usefixtures("judged")
def test_the_filter_verdict_and_its_section():
    finish_all(filtering.arms(FILTER), {"filter": {"end": 0.75}, "no_filter": {"end": 0.5}})
    verdict = verdict_of(filtering_section, FILTER, "C11")
    assert verdict["verdict"] == "direction"
    path = filtering_section.publish(FILTER)
    assert json.loads(path.read_text())["status"] == "complete"
    folder = results_dir(FILTER.profile, filtering.NOTEBOOK)
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    filtering_section.publish(FILTER)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == first


def test_options_that_are_written_out_with_their_default_are_no_departure():
    assert departures({"max_tests": None, "code_scores": "pass_rate"}, RLOptions) == []
    (note,) = departures({"max_tests": 8, "code_scores": "pass_rate"}, RLOptions)
    assert note == "Options that depart from the paper: max_tests: 8."


def test_the_demonstrations_are_really_judged():
    table = judging_demo.judged_programs(timeout_s=2.0, memory_mb=256).set_index("program")
    assert table["soft"].to_dict() == {
        "right": 1.0,
        "one branch wrong": 5 / 16,
        "condition never true": 11 / 16,
        "no Python": 0.0,
        "fails on odd numbers": 0.5,
        "one branch never ends": 11 / 16,
        "exits early, claims success": 0.0,
        "looks for the expected output": 0.0,
    }
    assert table["hard"].sum() == 1.0
    endless = table.loc["one branch never ends", "outcomes of 16 tests"]
    assert endless == "11 passed, 5 time_limit"
    assert table.loc["no Python", "outcomes of 16 tests"] == "16 compile_error"
    signal = judging_demo.group_signal()
    assert (signal["hard advantage"] == 0).all() and signal[
        "soft advantage"
    ].is_monotonic_increasing
    flawed = judging_demo.flawed_tests().set_index("program")
    assert flawed.loc["right"].tolist() == [1.0, 1.0, 0.75, 0.0]
    assert (flawed["hard, 4 wrong tests"] == 0).all()
