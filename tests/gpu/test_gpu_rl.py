"""The RL loop on CUDA: finite, on-policy at its first update, and it learns."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from klearlib.evaluate.record_files import load_record
from klearlib.experiments.rl_stages import RULE_OPTIONS
from klearlib.params import RLOptions
from klearlib.policy.compute import local_compute
from klearlib.rl.train import train_rl
from klearlib.run.folder import RunFolder

pytestmark = pytest.mark.gpu

GPPO = {"name": "gppo", "eps_low": 0.2, "eps_high": 0.28, "beta_low": 1.0, "beta_high": 1.0}
OPTIONS = {name: value for name, value in asdict(RLOptions()).items() if name not in RULE_OPTIONS}
SETTINGS = OPTIONS | {
    "num_steps": 2,
    "num_problems": 6,
    "group_size": 8,
    "mini_batch_problems": 2,
    "learning_rate": 2e-4,
    "alpha": 0.1,
    "max_new_tokens": 40,
    "eval_every": 100,
    "eval_responses": 1,
    "validation_responses": 2,
    "benchmarks": {},
    "deciding": {},
    "num_validation": 6,
    "code_reward": "soft",
    "steps_before": 0,
}


@pytest.fixture(scope="module")
def inputs(tiny_stages):
    """The upstream folders of an RL run."""
    return {"world": tiny_stages.world, "sft": tiny_stages.sft}


def run(path, inputs, *, compute, **changes):
    train_rl(
        RunFolder(path),
        inputs,
        seed=0,
        rule=GPPO,
        settings=SETTINGS | changes,
        compute=asdict(compute),
    )
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("compute", "mismatch"),
    [
        (local_compute(), 1e-4),
        (local_compute("bf16"), 0.05),
        (local_compute("bf16", gradient_checkpointing=True), 0.05),
        (local_compute("bf16", micro_batch_tokens=0), 0.05),
    ],
    ids=["fp32", "bf16", "bf16 checkpointing", "bf16 by memory"],
)
def test_two_steps_are_finite_and_their_first_update_is_on_policy(
    inputs, tmp_path, compute, mismatch
):
    found = run(tmp_path, inputs, compute=compute)
    for line in found:
        assert line["train/num_updates"] > 0 and line["train/skipped_updates"] == 0
        assert line["train/mismatch_mean"] < mismatch
        values = [value for value in line.values() if isinstance(value, float)]
        assert all(map(math.isfinite, values))


def test_the_trainers_log_probabilities_and_their_correction(inputs, tmp_path):
    compute = local_compute("bf16")
    found = run(tmp_path, inputs, compute=compute, logp_old="trainer", sampler_correction=2.0)
    for line in found:
        assert line["train/correction_mean"] == pytest.approx(1, abs=0.02)
        assert line["train/correction_capped_share"] < 0.01


def test_it_learns(inputs, tmp_path):
    """As on a CPU: twenty steps on one problem more than double its reward."""
    world = tmp_path / "world"
    world.mkdir()
    first = (inputs["world"] / "train.jsonl").read_text().splitlines(keepends=True)[0]
    for name in ("train", "validation"):
        (world / f"{name}.jsonl").write_text(first)
    run(
        tmp_path / "run",
        {"world": world, "sft": inputs["sft"]},
        compute=local_compute("bf16"),
        num_steps=20,
        num_problems=1,
        mini_batch_problems=1,
        group_size=64,
        learning_rate=1e-3,
        alpha=0.0,
        num_validation=1,
        validation_responses=200,
    )
    records = [load_record(p) for p in sorted((tmp_path / "run" / "evaluations").iterdir())]
    before, after = (float(np.mean(record.correct)) for record in records)
    assert after > before + 0.15
