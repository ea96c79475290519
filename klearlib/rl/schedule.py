"""What a run of a seed draws, how it is judged, and when and on what it is measured: the same
whoever samples and trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.data.problems import read_problems
from klearlib.evaluate.harness import evaluate
from klearlib.evaluate.record_files import save_record
from klearlib.policy.drawing import SamplingSettings
from klearlib.rl.settings import RLSettings
from klearlib.run.seeding import derive_seed
from klearlib.sft.batches import example_order

if TYPE_CHECKING:
    from klearlib.policy.engines import Engine
    from klearlib.records import EvalRecord
    from klearlib.run.folder import RunFolder

# The paper's evaluation (section 4): temperature 0.6, top_p 0.95.
EVALUATION_TEMPERATURE, EVALUATION_TOP_P = 0.6, 0.95


def problem_order(num_problems: int, *, seed: int) -> Iterator[int]:
    """The indices of the training problems in the order in which a run of this seed draws them,
    without an end."""
    return example_order(num_problems, seed=derive_seed(seed, "problems"))


def rollout_sampling(settings: RLSettings, *, seed: int, step: int) -> SamplingSettings:
    """How the rollouts of a step are drawn."""
    return SamplingSettings(
        temperature=settings.temperature,
        top_p=1.0,
        top_k=0,
        max_tokens=settings.max_new_tokens,
        seed=derive_seed(seed, "rollout", step),
    )


def judging(settings: RLSettings, *, seed: int) -> dict:
    """The keywords of `klearlib.verify.groups.judge_groups` for the rollouts of a run."""
    names = ("format_scores", "format_penalty", "code_reward", "code_scores")
    names += ("test_timeout_s", "test_memory_mb", "max_tests")
    chosen = {name: getattr(settings, name) for name in names}
    return chosen | {"tests_seed": derive_seed(seed, "tests")}


def evaluation_is_due(settings: RLSettings, step: int) -> bool:
    """Whether the policy is measured after this step, 0 for before the first."""
    return step % settings.eval_every == 0 or step == settings.num_steps


def evaluations(
    engine: Engine, world: Path, settings: RLSettings, *, seed: int, step: int
) -> Iterator[tuple[str, EvalRecord]]:
    """Measure the policy after a step on each benchmark of `world`, and on the validation set
    before the first and after the last; see `train_rl`."""
    plan = [
        (name, size, settings.eval_responses, EVALUATION_TEMPERATURE, EVALUATION_TOP_P)
        for name, size in settings.benchmarks.items()
    ]
    if step in (0, settings.num_steps):
        plan.append(
            ("validation", settings.num_validation, settings.validation_responses, 1.0, 1.0)
        )
    for name, size, num_responses, temperature, top_p in plan:
        record = evaluate(
            engine,
            read_problems(world / f"{name}.jsonl", expected_size=size),
            benchmark=name,
            num_responses=num_responses,
            test_timeout_s=settings.test_timeout_s,
            test_memory_mb=settings.test_memory_mb,
            settings=SamplingSettings(
                temperature=temperature,
                top_p=top_p,
                top_k=0,
                max_tokens=settings.max_new_tokens,
                seed=derive_seed(seed, "evaluate", name, step),
            ),
        )
        yield name, record


def keep_evaluation(folder: RunFolder, name: str, record: EvalRecord, *, step: int) -> None:
    """Write one evaluation of a run where the experiments look for it."""
    save_record(record, folder.path / "evaluations" / f"{name}-{step:05d}.npz")
