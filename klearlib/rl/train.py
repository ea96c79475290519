"""The RL loop: sample groups, judge, take advantages, update in several mini-batches, evaluate."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from klearlib.data.problems import read_problems
from klearlib.policy.batch_plan import BatchPlan, plan_batches
from klearlib.policy.compute import Compute
from klearlib.policy.engines import Engine, open_engine
from klearlib.policy.load import load_policy, save_policy
from klearlib.rl import schedule
from klearlib.rl.alarms import Alarms
from klearlib.rl.coefficients import Rule
from klearlib.rl.gradient_measures import corner_gradients
from klearlib.rl.logprobs import read_tokens, trainer_logprobs
from klearlib.rl.metrics import MicroBatchStats, UpdateSums, learnt, step_metrics, step_timings
from klearlib.rl.mismatch import Mismatch, corrected, observe, weighted
from klearlib.rl.objective import rl_loss
from klearlib.rl.policy_lag import PastWeights
from klearlib.rl.rollouts import (
    RolloutBatch,
    Row,
    form_batch,
    mini_batches,
    num_positive_tokens,
)
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.samples import draw_samples
from klearlib.rl.settings import RLSettings, parts_count, require_counted_parts
from klearlib.rl.token_record import TOKENS, save_tokens
from klearlib.run.entry import read_metrics
from klearlib.sft.checkpoints import load_state, save_if_due
from klearlib.verify.groups import judge_groups

if TYPE_CHECKING:
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
    or code, in ``inputs["pool"]`` if it is given and in ``inputs["world"]`` otherwise.

    Writes ``model/``, metrics.jsonl and timings.jsonl (docs/metrics.md), samples.jsonl and
    ``tokens/<step>.npz`` (of the first step and of those that are evaluated), and
    ``evaluations/<benchmark>-<step>.npz``: the benchmarks every `eval_every` steps at temperature
    0.6 and top_p 0.95, those that decide in the second half alone, the validation set at
    temperature 1 before the first and after the last step; a program counts as correct there if it
    passes all tests of its problem. The evaluations before the first step are equal for all runs of
    a seed that start from one model: they are copied from ``inputs["start_validation"]`` and
    ``inputs["start"]`` (benchmarks), stages of
    `klearlib.evaluate.harness.evaluate_benchmarks`, if these are given.

    Every random draw is seeded by (seed, purpose, step), and a checkpoint holds weights, optimiser,
    step and the budget of a micro-batch, so a run that was killed anywhere and resumed equals the
    unbroken one bit for bit on a CPU; with code problems as long as no program's outcome depends on
    time or chance. If the memory decided the budget, that holds from the next checkpoint on.

    Args:
        seed: of the order of problems and of all sampling; arms of one seed see the same problems.
        rule: see `klearlib.rl.rule_specs.rule_from`.
        settings: the fields of `RLSettings`.
        compute: the fields of `klearlib.policy.compute.Compute`.

    Raises:
        Stopped: a stop was asked for; the state is saved.
        KlearError: the memory does not hold a rollout, or the parts that the objective counts.
    """
    rule, settings, compute = rule_from(rule), RLSettings(**settings), Compute(**compute)
    require_counted_parts(settings, compute.micro_batch_tokens)
    path = inputs["sft"] / "model"
    model, tokenizer = load_policy(path, attention=compute.attention)
    problems = read_problems(inputs.get("pool", inputs["world"]) / "train.jsonl")
    plan = plan_batches(model, compute, parts_count=parts_count(settings))
    optimizer = adamw(model, settings)
    past = PastWeights(model, settings.policy_lag)
    done = load_state(folder, model, optimizer, plan, past)
    if not done:
        past.keep()
    steps = {"num_steps": settings.num_steps, "has_range": rule.has_range}
    alarms = Alarms(read_metrics(folder.path), **steps)
    note = score = ""

    def sampled(done: int, total: int) -> None:
        folder.doing(f"sampled {done} of {total}")

    how = {"compute": compute, "model": model, "tokenizer": tokenizer}
    with open_engine(path, on_sampled=sampled, **how) as engine:
        if not done and "start_validation" in inputs:
            for name in {"start", "start_validation"} & inputs.keys():
                start = inputs[name] / "evaluations"
                shutil.copytree(start, folder.path / "evaluations", dirs_exist_ok=True)
        elif not done:
            score = _evaluate(folder, inputs["world"], engine, settings, seed=seed, step=0)
        order = schedule.problem_order(len(problems), settings, seed=seed, done=done)
        for step in range(done + 1, settings.num_steps + 1):
            folder.progress(step - 1, settings.num_steps, note)
            chosen = [problems[index] for index in itertools.islice(order, settings.num_problems)]
            times, num_halvings = [time.perf_counter()], plan.num_halvings

            # G responses to each problem, with the log-probability of every token.
            with past.in_use():
                responses = schedule.responses(engine, chosen, settings, seed=seed, step=step)
            times.append(time.perf_counter())

            # Verdicts and rewards [P, G].
            folder.doing("judging")
            groups = judge_groups(chosen, responses, **schedule.judging(settings, seed=seed))
            times.append(time.perf_counter())

            # Advantages (Eq. 4), the groups that teach anything (5.2.5), some optimiser updates.
            folder.doing("training")
            batch = form_batch(groups, settings)
            measures = bool(schedule.measured(settings, step))
            shown = measures or step == 1
            how = {"rule": rule, "settings": settings, "plan": plan, "measures": shown}
            sums = train_on(batch, model, optimizer, step=step, **how)
            past.keep()
            times.append(time.perf_counter())

            if shown:
                folder.append_samples(draw_samples(batch, seed=seed, step=step))
                if sums.last is not None:
                    rows, stats = sums.last
                    file = folder.path / TOKENS / f"{step:05d}.npz"
                    read = [*itertools.chain(*plan.cut(rows))]  # in the order of `stats`
                    save_tokens(file, read, stats, batch.groups)
            if measures:
                score = _evaluate(folder, inputs["world"], engine, settings, seed=seed, step=step)
            rate = optimizer.param_groups[0]["lr"]
            line = step_metrics(batch, sums, step=step, learning_rate=rate)
            folder.append_metrics(line)
            for warning in alarms.see(line):
                folder.warn(warning)
            note = ", ".join(filter(None, [learnt(line), score]))
            times.append(time.perf_counter())
            folder.append_timings(
                step_timings(
                    step,
                    [end - start for start, end in itertools.pairwise(times)],
                    num_sampled=sum(len(r.token_ids) for group in responses for r in group),
                    num_trained=sums.num_tokens,
                    memory_halvings=plan.num_halvings - num_halvings,
                )
            )
            due = {"num_steps": settings.num_steps, "every": settings.checkpoint_every}
            save_if_due(folder, model, optimizer, plan, past, step=step, **due)
    folder.progress(settings.num_steps, settings.num_steps, note)
    save_policy(model, tokenizer, folder.path / "model")


def adamw(model, settings: RLSettings) -> torch.optim.AdamW:
    """The optimiser of a run with these settings."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        weight_decay=settings.weight_decay,
        fused=True,
    )


def train_on(
    batch: RolloutBatch,
    model,
    optimizer: torch.optim.Optimizer,
    *,
    rule: Rule,
    settings: RLSettings,
    plan: BatchPlan,
    step: int,
    measures: bool = False,
) -> UpdateSums:
    """All optimiser updates on the rollouts of `step`, which counts from 1, and what they saw.

    With ``logp_old`` trainer the old log-probabilities of the whole batch are computed before the
    first update, while the weights are those that sampled. measures: look at the log-probabilities
    again after the last update, and at the gradients that `corner_gradients` asks for before it.
    """
    sums = UpdateSums(Mismatch(settings.max_new_tokens))
    sampled = parts = mini_batches(batch, settings)
    if settings.logp_old == "trainer":
        how = {"temperature": settings.temperature, "plan": plan}
        parts = [trainer_logprobs(model, rows, **how) for rows in sampled]
        pairs = list(zip(parts, sampled, strict=True))
        for rows, before in pairs:
            observe(sums.mismatch, rows, before)
        if (cap := settings.sampler_correction) is not None:
            parts = [
                corrected(rows, before, cap=cap, mismatch=sums.mismatch) for rows, before in pairs
            ]
    _set_rate(optimizer, settings, step)
    how = {"rule": rule, "settings": settings, "plan": plan}
    on_policy = settings.logp_old == "sampler" and not settings.policy_lag
    for index, rows in enumerate(parts):
        _set_rate(optimizer, settings, step)
        if rule.weights is not None:
            now = trainer_logprobs(model, rows, temperature=settings.temperature, plan=plan)
            rows = weighted(rows, now, rule=rule, counts=sums.mismatch)
        if measures and settings.corner_gradients and index == len(parts) - 1:
            sums.corner_gradients = corner_gradients(model, rows, **how)
        # After the first update the weights are no longer those that sampled.
        update(model, optimizer, rows, sums, count_mismatch=on_policy and index == 0, **how)
    if measures and not settings.policy_lag:  # else `logp_old` is not of the weights before
        how = {"temperature": settings.temperature, "plan": plan}
        for rows in parts:
            sums.add_moved(trainer_logprobs(model, rows, **how), rows)
    return sums


def _set_rate(optimizer: torch.optim.Optimizer, settings: RLSettings, step: int) -> None:
    """The learning rate of the next update, which follows those that AdamW has counted."""
    state = next(iter(optimizer.state.values()), {})
    done = int(state.get("step", 0))
    for group in optimizer.param_groups:
        group["lr"] = schedule.learning_rate(settings, step, done)


def update(
    model,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Row],
    sums: UpdateSums,
    *,
    rule: Rule,
    settings: RLSettings,
    plan: BatchPlan,
    count_mismatch: bool,
) -> None:
    """Minimise policy loss + alpha x LM loss (Eq. 14) by one step; adds to `sums`.

    A gradient that is not finite skips the step, and the skip is counted. If the memory runs out,
    the gradient so far is thrown away and made again in smaller parts; KlearError if a single row
    is too much, or the parts may not become smaller.

    rows: a mini-batch, with the weights of the rule, if it has any, as corrections. plan: how it is
    cut and computed. count_mismatch: see `UpdateSums.add`.
    """
    how = {"rule": rule, "log_ratio_clamp": settings.log_ratio_clamp}

    def add_gradients() -> list[MicroBatchStats]:
        optimizer.zero_grad(set_to_none=True)
        stats = []
        for tokens, logp, entropy in read_tokens(model, rows, settings, plan):
            loss, policy, lm = rl_loss(logp, tokens, alpha=settings.alpha, entropy=entropy, **how)
            loss.backward()
            stats.append(MicroBatchStats(tokens, policy, lm, logp.detach(), entropy))
        return stats

    stats = plan.fitting(add_gradients, sequences=rows)
    for each in stats:
        sums.add(each, count_mismatch=count_mismatch, **how)
    sums.last = rows, stats
    sums.num_positive_tokens += num_positive_tokens(rows)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    if torch.isfinite(norm):
        sums.grad_norms.append(norm.item())
        optimizer.step()
    else:
        sums.skipped_updates += 1


def _evaluate(
    folder: RunFolder, world: Path, engine: Engine, settings: RLSettings, *, seed: int, step: int
) -> str:
    """Measure and keep; the scores for people, of the first benchmarks."""
    engine.wake()
    records = schedule.evaluations(engine, world, settings, seed=seed, step=step)
    for name, record in records.items():
        schedule.keep_evaluation(folder, name, record, step=step)
    engine.sleep()
    return ", ".join(f"{name} {record.correct.mean():.2f}" for name, record in records.items())
