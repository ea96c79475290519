"""The RL loop: sample groups, judge, take advantages, update in several mini-batches, evaluate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from klearlib.data.problems import read_problems
from klearlib.errors import Stopped
from klearlib.policy.compute import Compute
from klearlib.policy.engines import Engine, open_engine
from klearlib.policy.load import load_policy, save_policy
from klearlib.policy.passes import Passes, plan_passes
from klearlib.rl.coefficients import Rule, rule_from
from klearlib.rl.metrics import step_metrics, step_timings
from klearlib.rl.mismatch import require_finite
from klearlib.rl.rollouts import form_batch
from klearlib.rl.schedule import (
    evaluation_is_due,
    evaluations,
    judging,
    keep_evaluation,
    problem_order,
    rollout_sampling,
)
from klearlib.rl.settings import RLSettings, parts_count, require_counted_parts
from klearlib.rl.step import train_on
from klearlib.sft.packing import require_separate
from klearlib.verify.groups import judge_groups

if TYPE_CHECKING:
    from klearlib.records import Problem
    from klearlib.run.folder import RunFolder


def train_rl(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    rule: dict,
    settings: dict,
    compute: dict,
) -> None:
    """Stage ``rl``: trains ``inputs["sft"]/model`` on the problems of ``train.jsonl``, mathematics
    or code, in ``inputs["pool"]`` where it is given and in ``inputs["world"]`` otherwise.

    Writes ``model/``, metrics.jsonl (keys of `klearlib.rl.metrics.METRICS`), timings.jsonl and
    ``evaluations/<benchmark>-<step>.npz``: the benchmarks every `eval_every` steps at temperature
    0.6 and top_p 0.95, the validation set at temperature 1 before the first and after the last
    step; a program counts as correct there if it passes all tests of its problem.

    Every random draw is seeded by (seed, purpose, step), and a checkpoint holds weights, optimiser,
    step and the budget of a micro-batch, so a run that was killed anywhere and resumed equals the
    unbroken one bit for bit on a CPU; with code problems as long as no program's outcome depends on
    time or chance. Where the memory decided the budget, that holds from the next checkpoint on.

    Args:
        seed: of the order of problems and of all sampling; arms of one seed see the same problems.
        rule: see `klearlib.rl.coefficients.rule_from`.
        settings: the fields of `RLSettings`.
        compute: the fields of `klearlib.policy.compute.Compute`.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        ValueError: a setting out of range.
        KlearError: the memory does not hold a rollout, or the parts that the objective counts.
    """
    rule, settings, compute = rule_from(rule), RLSettings(**settings), Compute(**compute)
    require_counted_parts(settings, compute.micro_batch_tokens)
    path = inputs["sft"] / "model"
    model, tokenizer = load_policy(path, attention=compute.attention)
    problems = read_problems(inputs.get("pool", inputs["world"]) / "train.jsonl")
    passes = plan_passes(model, compute, parts_count=parts_count(settings))
    if compute.pack_tokens is not None:
        require_separate(model, precision=compute.precision)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        weight_decay=settings.weight_decay,
        fused=True,
    )
    done = 0
    if (saved := folder.load_checkpoint()) is not None:
        state, done = saved
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        passes.micro_batch_tokens = state["micro_batch_tokens"]
    with open_engine(path, compute=compute, model=model, tokenizer=tokenizer) as engine:
        if not done:
            _evaluate(folder, inputs["world"], engine, settings, seed=seed, step=0)
        order = itertools.islice(
            problem_order(len(problems), seed=seed), done * settings.num_problems, None
        )
        for step in range(done + 1, settings.num_steps + 1):
            folder.progress(step - 1, settings.num_steps)
            chosen = [problems[index] for index in itertools.islice(order, settings.num_problems)]
            _step(
                folder,
                inputs,
                engine,
                model,
                optimizer,
                chosen,
                rule=rule,
                settings=settings,
                passes=passes,
                seed=seed,
                step=step,
            )
            due = step % settings.checkpoint_every == 0 or folder.stop_requested
            if due and step < settings.num_steps:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "micro_batch_tokens": passes.micro_batch_tokens,
                }
                folder.save_checkpoint(state, step)
                if folder.stop_requested:
                    raise Stopped(
                        f"stopped after step {step} of {settings.num_steps}; run again to go on"
                    )
    folder.progress(settings.num_steps, settings.num_steps)
    save_policy(model, tokenizer, folder.path / "model")


def _step(
    folder: RunFolder,
    inputs: dict[str, Path],
    engine: Engine,
    model,
    optimizer: torch.optim.Optimizer,
    problems: Sequence[Problem],
    *,
    rule: Rule,
    settings: RLSettings,
    passes: Passes,
    seed: int,
    step: int,
) -> None:
    """Sample, judge, update, evaluate where that is due, and write the step's lines."""
    clock, restarts = _Clock(), engine.num_restarts
    engine.wake()
    responses = engine.sample_groups(
        problems,
        group_size=settings.group_size,
        settings=rollout_sampling(settings, seed=seed, step=step),
    )
    engine.sleep()
    require_finite(responses, engine=engine.setting["engine"])
    sampling = clock.lap()
    groups = judge_groups(problems, responses, **judging(settings, seed=seed))
    verifying = clock.lap()
    batch = form_batch(groups, settings)
    sums = train_on(
        batch,
        model,
        optimizer,
        rule=rule,
        settings=settings,
        passes=passes,
        pad_id=engine.tokenizer.pad_token_id,
        step=step,
    )
    training = clock.lap()
    if evaluation_is_due(settings, step):
        _evaluate(folder, inputs["world"], engine, settings, seed=seed, step=step)
    learning_rate = optimizer.param_groups[0]["lr"]
    folder.append_metrics(step_metrics(batch, sums, step=step, learning_rate=learning_rate))
    folder.append_timings(
        step_timings(
            step=step,
            sampling_s=sampling,
            verifying_s=verifying,
            training_s=training,
            evaluating_s=clock.lap(),
            num_sampled=sum(len(r.token_ids) for group in responses for r in group),
            num_trained=sums.num_tokens,
            engine_restarts=engine.num_restarts - restarts,
            memory_halvings=sums.memory_halvings,
        )
    )


def _evaluate(
    folder: RunFolder, world: Path, engine: Engine, settings: RLSettings, *, seed: int, step: int
) -> None:
    engine.wake()
    for name, record in evaluations(engine, world, settings, seed=seed, step=step):
        keep_evaluation(folder, name, record, step=step)
    engine.sleep()


class _Clock:
    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        return seconds
