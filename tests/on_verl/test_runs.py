"""verl's main_ppo loop end to end with our trainer, on this machine's cores."""

import json
import os
import signal
import time

import pytest
from cpu_settings import cpu_cluster
from metric_names import METRICS, TIMINGS
from verl_runs import NUM_PROBLEMS, Run, make_inputs

from klearlib.evaluate.record_files import load_record
from klearlib.policy.load import load_policy
from klearlib.run.entry import CHECKPOINT, read_metrics
from klearlib.run.worker import STOPPED

pytestmark = pytest.mark.timeout(900)  # ten steps of verl, on two cores or on fewer
SMALL = {"max_tokens_per_gpu": 2000, "prompt_tokens": 80}
SCHEDULE = {
    "num_steps": 10,
    "num_problems": NUM_PROBLEMS,
    "mini_batch_problems": 2,
    "group_size": 16,
    "learning_rate": 1e-3,
    "alpha": 0.1,
    "eval_every": 5,
    "num_validation": NUM_PROBLEMS,
    "validation_responses": 50,
    "checkpoint_every": 3,
    "format_penalty": 0.0,  # a wrong answer is a wrong answer, with its tags or without
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def inputs(runs, tiny_stages):
    return make_inputs(runs, tiny_stages)


@pytest.fixture(scope="module")
def whole(runs, inputs):
    """A run on two training processes that nothing disturbed."""
    run = Run(runs, "whole", inputs, cluster=cpu_cluster(2, **SMALL), **SCHEDULE)
    run.finish()
    return run


def test_a_run_leaves_what_the_local_stage_leaves(whole):
    assert [line["step"] for line in whole.metrics] == list(range(1, 11))
    for line in read_metrics(whole.path):
        assert line.keys() == {"step", *METRICS, *TIMINGS}
    assert sorted(path.name for path in whole.path.iterdir() if path.is_dir()) == [
        "evaluations",
        "model",
    ]
    names = sorted(path.name for path in (whole.path / "evaluations").iterdir())
    assert names == ["validation-00000.npz", "validation-00010.npz"]
    assert whole.gone(), "no process outlives a run"


def test_the_sampler_has_the_weights_of_the_trainer(whole):
    """Weights that were not handed over, or not in time, would be off policy."""
    for line in whole.metrics:
        assert line["train/mismatch_max"] < 1e-4
        assert line["rollout/judge_failures"] == 0


def test_groups_without_advantage_do_not_train(whole):
    for line in whole.metrics:
        mixed = round(line["rollout/groups_mixed"] * NUM_PROBLEMS)
        assert line["rollout/groups_trained"] == mixed < NUM_PROBLEMS
        assert line["train/num_updates"] == -(-mixed // SCHEDULE["mini_batch_problems"])
        assert line["train/positive_tokens"] < line["train/num_tokens"]


def test_training_makes_right_answers_likelier(whole):
    before, after = (
        load_record(whole.path / "evaluations" / f"validation-{step:05d}.npz").correct
        for step in (0, 10)
    )
    assert not after[-1].any(), "nobody gives the answer of the last problem"
    assert after[:-1].mean() > before[:-1].mean() + 0.15


def test_a_run_that_was_broken_goes_on_and_stops_when_asked(runs, inputs, whole):
    """Broken after step 4, when the training process is killed; gone on with from the checkpoint of
    step 3; with one training process where the other run has two."""
    run = Run(runs, "broken", inputs, cluster=cpu_cluster(1, **SMALL), **SCHEDULE)
    process = run.start()
    run.until_step(4, process)
    for number in run.processes("WorkerDict"):
        os.kill(number, signal.SIGKILL)
    assert process.wait(60) == 1, run.log[-5000:]
    assert run.gone()
    last = run.log.rstrip().splitlines()[-1]
    assert last.startswith("klear: a process of verl was lost") and "last checkpoint" in last

    process = run.start()
    time.sleep(5)  # until it has gone back to the checkpoint
    run.until_step(5, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == STOPPED, run.log[-5000:]
    assert run.gone()
    steps = [line["step"] for line in run.metrics]
    assert steps == list(range(1, len(steps) + 1)) and 5 <= len(steps) <= 7
    commit = json.loads((run.path / CHECKPOINT).read_text())
    assert commit["step"] == len(steps)
    saved = run.path / "verl" / "checkpoints" / f"global_step_{len(steps)}"
    assert [path.name for path in saved.parent.glob("global_step_*")] == [saved.name]
    for found, expected in zip(run.metrics[:2], whole.metrics[:2], strict=True):
        for name, value in expected.items():  # of the same draws
            close = value if value is None else pytest.approx(value, rel=1e-3, abs=1e-5)
            assert found[name] == close, name


def test_the_model_of_a_run_is_the_trained_one_as_it_came(runs, whole):
    start, end = (load_policy(place / "model")[0] for place in (runs / "sft" / "few", whole.path))
    moved = [not a.equal(b) for a, b in zip(start.parameters(), end.parameters(), strict=True)]
    assert all(moved)
    assert end.dtype == start.dtype
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        came, kept = (place / "model" / name for place in (runs / "sft" / "few", whole.path))
        assert kept.read_bytes() == came.read_bytes()
