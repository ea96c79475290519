"""The whole RL loop on a tiny world: what it writes, and that it learns."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from metric_names import METRICS, TIMINGS
from rollout_fakes import SETTINGS
from tiny_runs import ONE_PROBLEM, PLAIN, gain, lines, run, weights, with_one_problem

from klearlib.data.problems import read_problems
from klearlib.evaluate.harness import evaluate_benchmarks
from klearlib.evaluate.record_files import load_record
from klearlib.policy import engines
from klearlib.policy.compute import local_compute
from klearlib.run.folder import RunFolder

OF_EVALUATION = ("max_new_tokens", "test_timeout_s", "test_memory_mb")


def test_keys_are_those_that_are_declared(plain):
    metrics, timings = lines(plain), lines(plain, "timings.jsonl")
    assert [line["step"] for line in metrics] == [line["step"] for line in timings] == [1, 2, 3]
    assert all(set(line) == {"step", *METRICS} for line in metrics)
    assert all(set(line) == {"step", *TIMINGS} for line in timings)
    assert all(line[f"seconds/{what}"] > 0 for line in timings for what in ("sampling", "training"))


def test_first_update_is_on_policy(plain):
    for line in lines(plain):
        assert 0 < line["train/mismatch_mean"] <= line["train/mismatch_max"] < 1e-4
    (line,) = [line for line in lines(plain) if line["step"] == 1]
    assert line["train/num_updates"] > 1, "the test needs off-policy updates"
    assert line["train/ratio_min"] < 0.99 and line["train/ratio_max"] > 1.01


def test_metrics_agree_with_one_another(plain):
    for line in lines(plain):
        shares = [line[f"rollout/groups_{kind}"] for kind in ("all_correct", "all_wrong", "mixed")]
        assert sum(shares) == pytest.approx(1)
        wrong, mixed, trained = 6 * shares[1], 6 * shares[2], line["rollout/groups_trained"]
        # A missing think tag makes rewards differ in a group of wrong responses.
        assert (
            mixed - 1e-9 <= trained <= mixed + wrong * (line["rollout/bad_format_rate"] > 0) + 1e-9
        )
        assert line["train/num_updates"] == -(-line["rollout/groups_trained"] // 2)
        # Rewards of +1 and -1, and half a point less without both think tags.
        rewards = 2 * line["rollout/correct_rate"] - 1 - 0.5 * line["rollout/bad_format_rate"]
        assert line["rollout/reward_mean"] == pytest.approx(rewards)
        assert line["train/positive_tokens"] <= line["train/num_tokens"]
        assert line["train/skipped_updates"] == 0


def test_evaluations_at_their_steps_with_their_sampling(plain):
    names = sorted(path.name for path in (plain / "evaluations").iterdir())
    assert names == [
        *(f"math_a-0000{step}.npz" for step in (0, 2, 3)),
        *(f"math_b-0000{step}.npz" for step in (0, 2, 3)),
        *(f"math_decide-0000{step}.npz" for step in (2, 3)),  # of three steps, the second half
        *(f"validation-0000{step}.npz" for step in (0, 3)),
    ]
    records = {name: load_record(plain / "evaluations" / name) for name in names}
    for name, record in records.items():
        benchmark = name.partition("-")[0]
        assert record.benchmark == benchmark
        expected = {"validation": (6, 2), "math_decide": (6, 1)}.get(benchmark, (30, 1))
        assert record.correct.shape == expected
        temperature, top_p = (1.0, 1.0) if benchmark == "validation" else (0.6, 0.95)
        assert (record.sampling["temperature"], record.sampling["top_p"]) == (temperature, top_p)
        assert record.sampling["max_tokens"] == 40
    assert len({record.sampling["seed"] for record in records.values()}) == len(records)


def measure(path, inputs, model, benchmarks, responses, temperature, top_p, **how):
    """The folder of a stage ``evaluate`` of `model`."""
    evaluate_benchmarks(
        RunFolder(path),
        {"world": inputs["world"], "model": model},
        seed=0,
        benchmarks=benchmarks,
        num_responses=SETTINGS[responses],
        temperature=temperature,
        top_p=top_p,
        compute=asdict(local_compute(micro_batch_tokens=400)),
        **how,
        **{name: SETTINGS[name] for name in OF_EVALUATION},
    )
    return path


def same_evaluations(found, expected) -> set[str]:
    """The names of those in `found`, which `expected` has too; YaRN's factor is named by the stage
    alone."""
    names = {path.name for path in (found / "evaluations").iterdir()}
    for name in names:
        ours, theirs = (load_record(folder / "evaluations" / name) for folder in (found, expected))
        for field in ("correct", "truncated", "num_tokens", "reason", "pass_rate", "found"):
            assert np.array_equal(getattr(ours, field), getattr(theirs, field)), (name, field)
        assert ours.problem_ids == theirs.problem_ids
        stretched = {"yarn_factor": None, "yarn_original": None}
        assert stretched | theirs.sampling == stretched | ours.sampling
    return names


def test_a_start_that_a_stage_of_its_own_measured_is_the_same(plain, inputs, tmp_path):
    drawn = {
        "start": (PLAIN["benchmarks"], "eval_responses", 0.6, 0.95),
        "start_validation": ({"validation": 6}, "validation_responses", 1.0, 1.0),
    }
    measured = {
        name: measure(tmp_path / name, inputs, inputs["sft"], *how) for name, how in drawn.items()
    }
    run(tmp_path / "run", inputs | measured, **PLAIN)
    assert torch.equal(weights(tmp_path / "run"), weights(plain))
    names = {path.name for path in (plain / "evaluations").iterdir()}
    assert same_evaluations(tmp_path / "run", plain) == names


def test_seeds_and_steps_draw_different_rollouts_of_the_problems_in_order(
    inputs, tmp_path, monkeypatch
):
    calls = []

    def recorded(model, tokenizer, problems, *, group_size, settings, **how):
        if problems[0].id.startswith("train"):
            calls.append(([problem.id for problem in problems], group_size, settings))
        return original(model, tokenizer, problems, group_size=group_size, settings=settings, **how)

    original = engines.sample_groups
    monkeypatch.setattr(engines, "sample_groups", recorded)
    run(tmp_path / "a", inputs, num_steps=11, max_new_tokens=2)
    run(tmp_path / "b", inputs, num_steps=1, max_new_tokens=2, seed=1)
    ids = [problem.id for problem in read_problems(inputs["world"] / "train.jsonl")]
    drawn = [name for chosen, _, _ in calls[:10] for name in chosen]
    assert sorted(drawn) == sorted(ids), "sixty problems in ten steps of six are one epoch"
    # Another epoch has another order, and so has another seed.
    assert calls[10][0] != calls[0][0] != calls[11][0]
    assert {group_size for _, group_size, _ in calls} == {8}
    assert len({settings.seed for _, _, settings in calls}) == 12
    for _, _, settings in calls:
        assert (settings.temperature, settings.top_p, settings.top_k) == (1.0, 1.0, 0)


def test_wake_and_sleep_take_turns_around_all_sampling(inputs, tmp_path, monkeypatch):
    """Awake to sample, asleep to train: between the two no weight moves."""
    calls = []

    def recorded(name):
        real = getattr(engines.TransformersEngine, name)

        def call(self, *args, **how):
            calls.append((name, sum(p.detach().sum().item() for p in self._model.parameters())))
            return real(self, *args, **how)

        return call

    for name in ("wake", "sample_groups", "sleep"):
        monkeypatch.setattr(engines.TransformersEngine, name, recorded(name))
    run(tmp_path, inputs, num_steps=2)
    names, sums = zip(*calls, strict=True)
    # Validation before the first step and after the last, rollouts of two steps between.
    assert names == ("wake", "sample_groups", "sleep") * 4
    assert sums[::3] == sums[1::3] == sums[2::3] and sums[0] == sums[3] != sums[6] != sums[9]


def test_training_makes_right_answers_likelier(inputs, tmp_path):
    """The sign of everything at once: steps on one problem more than double its reward."""
    one = with_one_problem(inputs, tmp_path / "world")
    how = {"num_steps": 15, "eval_every": 15, "compute": {"micro_batch_tokens": 8000}}
    run(tmp_path / "run", one, **how, **ONE_PROBLEM)
    assert gain(tmp_path / "run") > 0.15
