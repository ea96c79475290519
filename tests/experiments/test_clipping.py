"""Notebook 05 on invented runs: which arms there are, what tables and verdicts say of them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from klearlib.experiments.arms import rule_spec
from klearlib.experiments.publish import results_dir, runs_dir

from klearlib.evaluate.record_files import save_record
from klearlib.experiments import clipping, clipping_section
from klearlib.experiments.demos import clipping as mechanism
from klearlib.experiments.nb05_clipping import ClippingParams
from klearlib.params import RLOptions
from klearlib.records import EvalRecord
from klearlib.rl.metrics import METRICS
from klearlib.run.folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[2]
PARAMS = ClippingParams(seeds=[0, 1, 2], num_steps=20, eval_every=10, eval_responses=8)


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "params", tmp_path / "params")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    return tmp_path


def finish(stage, *, rates: dict[int, float], corner_share: float, **changed) -> None:
    """A finished run whose every problem is right at the given rate of its 8 responses, by step;
    `changed` replaces metrics of the last ten steps."""
    folder = RunFolder(stage.folder(runs_dir()))
    folder.load_checkpoint()
    for step in range(1, PARAMS.num_steps + 1):
        line = dict.fromkeys(METRICS, 0.5) | {"step": step, "train/skipped_updates": 0}
        line |= {"rollout/judge_failures": 0}
        line |= {name: corner_share for name in METRICS if "token_share" in name}
        line |= changed.get("metrics", {}) if step > 10 else {}
        folder.append_metrics(line)
    offset = stage.params["seed"] + 2 * PARAMS.rules.index(stage.params["rule"]["name"])
    for step, rate in rates.items():
        for name in ("math_a", "math_b", "validation"):
            correct = np.zeros((30, 8), dtype=bool)
            correct[:, : round(rate * 8)] = True
            # One response of some problems is turned: intervals are neither empty nor zero.
            correct[offset::7, :1] ^= True
            record = EvalRecord(
                name,
                tuple(f"{name}-{i}" for i in range(30)),
                correct,
                np.zeros_like(correct),
                np.ones((30, 8), dtype=int),
                np.where(correct, "correct", "wrong"),
                correct.astype(float),
            )
            save_record(record, folder.path / "evaluations" / f"{name}-{step:05d}.npz")
    folder.finish()


def finish_all(ends: dict[str, float], corner_share: float = 0.01, **how) -> None:
    for (rule, _), stage in clipping.arms(PARAMS).items():
        rates = {0: 0.25, 10: 0.5, PARAMS.num_steps: ends[rule]}
        finish(stage, rates=rates, corner_share=corner_share, **how)


def verdict_of(claim: str) -> dict:
    return next(v for v in clipping_section.verdicts(PARAMS) if v["claim"] == claim)


def test_arms_are_round_robin_over_seeds_and_differ_in_one_value(project):
    arms = clipping.arms(PARAMS)
    assert list(arms)[:4] == [("clip_higher", 0), ("gppo", 0), ("cispo", 0), ("clip_higher", 1)]
    assert len({stage.key for stage in arms.values()}) == 9
    first = [arms[rule, 0].params for rule in PARAMS.rules]
    assert len({json.dumps(p["settings"], sort_keys=True) for p in first}) == 1
    assert {p["seed"] for p in first} == {0}


def test_arms_are_shared_whatever_the_notebook_calls_itself(project):
    """Worker counts and the set of other arms are no part of a run's key; options of one rule are
    no part of another's."""
    keys = {arm: stage.key for arm, stage in clipping.arms(PARAMS).items()}
    fewer = dataclasses.replace(PARAMS, rules=["gppo", "cispo"], seeds=[2], workers=7)
    assert {a: s.key for a, s in clipping.arms(fewer).items()}.items() <= keys.items()
    other = clipping.arms(dataclasses.replace(PARAMS, options={"beta_low": 0.5}))
    changed = {rule for (rule, seed), stage in other.items() if stage.key != keys[rule, seed]}
    assert changed == {"gppo"}


def test_a_run_of_a_grid_is_the_run_at_its_rate_alone(project):
    wide = dataclasses.replace(PARAMS, learning_rates=[1e-4, 3e-4, 1e-3])
    cells = clipping.grid(wide)
    assert len(cells) == 27 and [seed for _, _, seed in cells] == [0] * 9 + [1] * 9 + [2] * 9
    assert len({stage.title for stage in cells.values()}) == 27
    for rate in wide.learning_rates:
        alone = clipping.arms(dataclasses.replace(PARAMS, learning_rates=[rate]))
        assert {arm: stage.key for arm, stage in alone.items()} == {
            (rule, seed): stage.key for (rule, mine, seed), stage in cells.items() if mine == rate
        }


def test_rule_spec_gives_each_rule_its_own_arguments():
    options = RLOptions(dual_clip=10.0, beta_high=2.0)
    specs = {
        name: rule_spec(name, eps_low=0.2, eps_high=0.28, options=options)
        for name in ("clip_higher", "gppo", "cispo")
    }
    assert specs["clip_higher"].keys() == {"name", "eps_low", "eps_high", "dual_clip"}
    assert specs["gppo"]["beta_high"] == 2.0 and specs["gppo"]["dual_clip"] == 10.0
    assert specs["cispo"].keys() == {"name", "eps_low", "eps_high"}


def test_nothing_done_says_not_run_and_decides_the_mechanism(project):
    words = {v["claim"]: v["verdict"] for v in clipping_section.verdicts(PARAMS)}
    assert words == {"C14": "reproduced", "C1": "not run", "C2": "not run", "C3": "not run"}
    section = json.loads(clipping_section.publish(PARAMS).read_text())
    assert section["status"] == "partial" and len(section["missing"]) == 9


def test_scores_are_those_of_the_last_step_not_the_best(project):
    finish_all({"clip_higher": 0.5, "gppo": 0.375, "cispo": 0.5})
    table = clipping_section.score_table(PARAMS).set_index(["benchmark", "rule"])
    flipped = np.mean([len(range(seed + 2, 30, 7)) / 240 for seed in (0, 1, 2)])
    row = table.loc[("maths A", "GPPO")]
    assert row["seeds"] == 3
    assert row["start"] == pytest.approx(0.25 - flipped)
    assert row["end"] == pytest.approx(0.375 - flipped)
    assert row["gain"] == pytest.approx(0.125)
    assert row["paper_last"] == pytest.approx(0.811)


@pytest.mark.parametrize(("gppo", "word"), [(0.75, "direction"), (0.25, "opposite")])
def test_verdict_follows_the_sign(project, gppo, word):
    finish_all({"clip_higher": 0.5, "gppo": gppo, "cispo": 0.5})
    verdict = verdict_of("C1")
    assert verdict["verdict"] == word
    assert [c["name"] for c in verdict["comparisons"]] == ["GPPO - Clip-Higher", "GPPO - CISPO"]
    for comparison in verdict["comparisons"]:
        assert comparison["difference"] == pytest.approx(gppo - 0.5, abs=0.01)
        assert (comparison["num_seeds"], comparison["num_problems"]) == (3, 30)


def test_equal_arms_are_inconclusive_and_few_clipped_tokens_are_no_power(project):
    finish_all({"clip_higher": 0.5, "gppo": 0.5, "cispo": 0.5}, corner_share=0.0001)
    assert verdict_of("C1")["verdict"] == "no power"


def test_half_a_run_is_paired_by_the_seeds_that_all_rules_have(project):
    arms = clipping.arms(PARAMS)
    for arm in [("clip_higher", 0), ("gppo", 0), ("cispo", 0), ("gppo", 1)]:
        finish(arms[arm], rates={0: 0.25, 20: 0.5}, corner_share=0.01)
    assert all(c["num_seeds"] == 1 for c in verdict_of("C1")["comparisons"])
    section = json.loads(clipping_section.publish(PARAMS).read_text())
    assert section["missing"] == [
        "Clip-Higher, seed 1", "CISPO, seed 1", "Clip-Higher, seed 2", "GPPO, seed 2",
        "CISPO, seed 2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "metrics",
    [
        {"train/grad_norm": 5.0},
        # All updates skipped, and one of several: a gradient that is not finite is never a gap.
        {"train/grad_norm": None, "train/skipped_updates": 8},
        {"train/grad_norm": 0.5, "train/skipped_updates": 1},
    ],
)
def test_a_diverging_run_is_not_stable(project, metrics):
    finish_all({"clip_higher": 0.5, "gppo": 0.5, "cispo": 0.5}, metrics=metrics)
    assert verdict_of("C3")["verdict"] == "opposite"


def test_steps_without_an_update_are_no_instability(project):
    finish_all({"clip_higher": 0.5, "gppo": 0.5, "cispo": 0.5}, metrics={"train/grad_norm": None})
    assert verdict_of("C3")["verdict"] == "inconclusive"  # 10 steps are too few to tell


def test_runs_that_never_trained_have_no_power_and_publish(project):
    nothing = {name: None for name in METRICS if "share" in name}
    for (_, _), stage in clipping.arms(PARAMS).items():
        finish(stage, rates={0: 0.25, 20: 0.25}, corner_share=None, metrics=nothing)
    assert verdict_of("C1")["verdict"] == "no power"
    clipping_section.publish(PARAMS)


def test_a_changed_rule_is_not_the_papers(project):
    finish_all({"clip_higher": 0.5, "gppo": 0.75, "cispo": 0.5})
    changed = dataclasses.replace(PARAMS, options={"dual_clip": 10.0})
    words = {v["claim"]: v for v in clipping_section.verdicts(changed)}
    assert words["C1"]["verdict"] == "not run" and "dual_clip" in words["C1"]["reason"]
    section = json.loads(clipping_section.publish(changed).read_text())
    assert "dual_clip: 10.0" in section["notes"][0]


def test_publishing_the_same_results_again_changes_no_byte(project):
    finish_all({"clip_higher": 0.5, "gppo": 0.5, "cispo": 0.5})
    clipping_section.publish(PARAMS)
    folder = results_dir(PARAMS.profile, clipping.NOTEBOOK)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    clipping_section.publish(PARAMS)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert json.loads(first["section.json"])["status"] == "complete"


def test_autograd_of_the_printed_objectives_is_f_times_a():
    check = mechanism.gradient_check(eps_low=0.2, eps_high=0.28)
    assert check["error"].max() < 1e-9
    assert len(check) == 6 * 80 * 4


def test_corner_table_is_the_papers_and_shows_what_the_dual_clip_breaks():
    check = mechanism.gradient_check(eps_low=0.2, eps_high=0.28)
    table = mechanism.corner_table(check, eps_low=0.2, eps_high=0.28).set_index("rule")
    expected = {
        "clip_higher": ("0", "0", "no"),
        "gppo": ("0.8", "1.28", "yes"),
        "gppo_general": ("0.4", "2.56", "yes"),
        "cispo": ("0.8", "1.28", "yes"),
        "gppo_released": ("0.8", "1.28", "no"),
    }
    for rule, values in expected.items():
        row = table.loc[rule]
        assert (row["r low, A < 0"], row["r high, A > 0"], row["never_zero"]) == values
    assert table.loc["cispo", "r high, A < 0"] == "1.28"
    assert table.loc["gppo_released", "r high, A < 0"].startswith("0 to")


def test_a_rule_that_drops_gradients_would_fail_the_mechanism(project, monkeypatch):
    """The released code's dual clip, taken for the paper's GPPO, is "not reproduced"."""
    honest = mechanism.gradient_check(eps_low=0.2, eps_high=0.28)
    swapped = honest[honest["rule"] == "gppo_released"].assign(rule="gppo")
    monkeypatch.setattr(clipping_section, "gradient_check", lambda **_: swapped)
    assert verdict_of("C14")["verdict"] == "not reproduced"
