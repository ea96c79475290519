"""What a run of a seed draws, how it is judged, and when and on what it is measured, on any
engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.problems import read_problems
from klearlib.evaluate.harness import Measurement, evaluate_all
from klearlib.evaluate.record_files import save_record
from klearlib.policy.drawing import SamplingSettings
from klearlib.rl.settings import (
    EVALUATION_TEMPERATURE,
    EVALUATION_TOP_P,
    JUDGED_BY,
    RLSettings,
    is_second_half,
)
from klearlib.run.seeding import derive_seed
from klearlib.sft.batches import example_order

if TYPE_CHECKING:
    from klearlib.policy.engines import Engine
    from klearlib.records import EvalRecord, Problem, Response
    from klearlib.run.folder import RunFolder


def problem_order(
    num_problems: int, settings: RLSettings, *, seed: int, done: int = 0
) -> Iterator[int]:
    """The indices of the training problems in the order in which a run of this seed draws them
    after its step `done`, without an end.

    num_problems: of the whole training set. The run goes on where the one of the same seed that it
    starts from ended, after `settings.steps_before` steps.
    """
    order = example_order(num_problems, seed=derive_seed(seed, "problems"))
    return islice(order, (settings.steps_before + done) * settings.num_problems, None)


def rollout_sampling(settings: RLSettings, *, seed: int, step: int) -> SamplingSettings:
    """How the rollouts of a step are drawn."""
    own = derive_seed(seed, "rollout", step)
    return _sampling(settings, temperature=settings.temperature, top_p=1.0, seed=own)


def responses(
    engine: Engine, problems: Sequence[Problem], settings: RLSettings, *, seed: int, step: int
) -> list[list[Response]]:
    """The rollouts of a step: G responses to each problem, the engine awake for no longer."""
    sampling = rollout_sampling(settings, seed=seed, step=step)
    engine.wake()
    groups = engine.sample_groups(problems, group_size=settings.group_size, settings=sampling)
    engine.sleep()
    return groups


def _sampling(settings: RLSettings, **how) -> SamplingSettings:
    return SamplingSettings(top_k=0, max_tokens=settings.max_new_tokens, **how)


def learning_rate(settings: RLSettings, step: int, updates_done: int = 0) -> float:
    """Of an update on the rollouts of `step`, which counts from 1, after `updates_done` of the run:
    linear warm-up by steps and by updates, then constant."""
    by_step = min(1.0, step / (settings.warmup_steps + 1))
    return (
        settings.learning_rate
        * by_step
        * min(1.0, (updates_done + 1) / (settings.warmup_updates + 1))
    )


def judging(settings: RLSettings, *, seed: int) -> dict:
    """The keywords of `klearlib.verify.groups.judge_groups` for the rollouts of a run."""
    pay = ("format_scores", "format_penalty", "code_reward", "code_scores", "hard_failure")
    chosen = {name: getattr(settings, name) for name in (*JUDGED_BY, *pay, "max_tests")}
    return chosen | {"tests_seed": derive_seed(seed, "tests")}


def measured(settings: RLSettings, step: int) -> list[str]:
    """On what the policy is measured after this step, 0 for before the first: ``benchmarks`` and
    ``validation``."""
    ends, every = step in (0, settings.num_steps), settings.validation_every
    due = {
        "benchmarks": ends or step % settings.eval_every == 0,
        "validation": ends or (every and (step <= 2 or step % every == 0)),
    }
    return [name for name, is_due in due.items() if is_due]


def evaluations(
    engine: Engine, world: Path, settings: RLSettings, *, seed: int, step: int
) -> dict[str, EvalRecord]:
    """Measure the policy after a step on what `measured` says: each benchmark of `world`, in the
    second half those that decide too, and the validation set, all judged in one batch; see
    `train_rl`."""
    usual, due, asked = (EVALUATION_TEMPERATURE, EVALUATION_TOP_P), measured(settings, step), []
    if "benchmarks" in due:
        num_responses = settings.eval_responses
        asked += [(n, size, num_responses, *usual) for n, size in settings.benchmarks.items()]
        if is_second_half(step, settings.num_steps):
            asked += [(name, size, 1, *usual) for name, size in settings.deciding.items()]
    if "validation" in due:
        validation = settings.num_validation, settings.validation_responses
        asked.append(("validation", *validation, 1.0, 1.0))
    measurements = []
    for name, size, num_responses, temperature, top_p in asked:
        problems = read_problems(world / f"{name}.jsonl", expected_size=size)
        # A seed of its own, so that stage ``evaluate`` measures the same on any of them.
        own = derive_seed(seed, "evaluate", name, step)
        how = _sampling(settings, temperature=temperature, top_p=top_p, seed=own)
        measurements.append(Measurement(name, problems, num_responses, how))
    how = {name: getattr(settings, name) for name in JUDGED_BY}
    records = evaluate_all(engine, measurements, **how)
    return {record.benchmark: record for record in records}


def keep_evaluation(folder: RunFolder, name: str, record: EvalRecord, *, step: int) -> None:
    """Write one evaluation of a run where the experiments look for it."""
    save_record(record, folder.path / "evaluations" / f"{name}-{step:05d}.npz")
