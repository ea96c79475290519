"""Stage ``left_out``: what the corners of the clip range do to a policy, one left out at a time."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from klearlib.data.problems import read_problems
from klearlib.errors import KlearError
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import Compute
from klearlib.policy.engines import open_engine
from klearlib.policy.load import load_policy
from klearlib.rl import schedule
from klearlib.rl.coefficients import CORNERS, corner_masks
from klearlib.rl.logprobs import trainer_logprobs
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch, log_ratio
from klearlib.rl.rollouts import RolloutBatch, Row, form_batch, mini_batches
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.settings import RLSettings, parts_count, require_counted_parts
from klearlib.rl.train import adamw, train_on, update
from klearlib.verify.groups import judge_groups

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

PARTS: dict[str, dict[str, float | None]] = {
    "nothing": {},
    **{corner: {corner: 0.0} for corner in CORNERS},
    "floor": {"low_negative": None},
}
"""What is left out -> what F becomes: 0 in a corner, or, without the floor, the ratio below."""


def leave_corners_out(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    rule: dict,
    settings: dict,
    compute: dict,
    learning_rate: float,
    num_updates: int,
) -> None:
    """From ``inputs["rl"]/model``, where a run of RL with these settings and seed ended, some
    updates at `learning_rate` by the whole rule, and as many more, once for each of `PARTS`.

    A batch of rollouts is trained on as the run would, which fills AdamW's averages. A further one
    of twice as many problems has the mini-batches of all that follows: one for each of the first
    updates, and others, the same for all of `PARTS`, for those after them. Old log-probabilities
    are the trainer's.

    Writes one line of metrics.jsonl: ``score/before`` at those weights, and of each part, as in
    ``score/nothing``, ``score`` (the validation set at temperature 1), ``moved_negative``,
    ``moved_positive`` and ``moved_low`` (mean change of the log-probability by the latter updates,
    in nats a token of their mini-batches: of those with a negative and a positive advantage, and of
    those that stood in the low corner before it; None where there are none), ``entropy`` and
    ``grad_norm``, means over the updates.

    Args:
        rule: by corners, with constants. learning_rate: of AdamW. num_updates: either time; fewer
            where the batch has fewer mini-batches. The others are those of
            `klearlib.rl.train.train_rl`.

    Raises:
        KlearError: all responses to nearly all problems are right, or all are wrong.
    """
    rule, settings, compute = rule_from(rule), RLSettings(**settings), Compute(**compute)
    require_counted_parts(settings, compute.micro_batch_tokens)
    path = inputs["rl"] / "model"
    model, tokenizer = load_policy(path, attention=compute.attention)
    plan = plan_batches(model, compute, parts_count=parts_count(settings))
    problems = read_problems(inputs.get("pool", inputs["world"]) / "train.jsonl")
    optimizer = adamw(model, settings)
    done = settings.num_steps
    order = schedule.problem_order(len(problems), settings, seed=seed, done=done)
    how = {"settings": settings, "plan": plan}
    validation = replace(settings, benchmarks={}, deciding={})  # what is measured after a last step

    with open_engine(path, compute=compute, model=model, tokenizer=tokenizer) as engine:

        def rollouts(step: int, count: int) -> RolloutBatch:
            chosen = [problems[index] for index in itertools.islice(order, count)]
            responses = schedule.responses(engine, chosen, settings, seed=seed, step=step)
            groups = judge_groups(chosen, responses, **schedule.judging(settings, seed=seed))
            return form_batch(groups, settings)

        def score() -> float:
            engine.wake()
            records = schedule.evaluations(
                engine, inputs["world"], validation, seed=seed, step=settings.num_steps
            )
            engine.sleep()
            return float(records["validation"].correct.mean())

        def now(several: Sequence[Sequence[Row]]) -> list[Row]:
            """The rows of mini-batches with `logp_old` by the weights of now."""
            of = {"temperature": settings.temperature, "plan": plan}
            return [row for rows in several for row in trainer_logprobs(model, rows, **of)]

        # A fresh AdamW divides by averages of a single gradient: its first steps are too long.
        batch = rollouts(done + 1, settings.num_problems)
        train_on(batch, model, optimizer, rule=rule, step=done + 1, **how)
        sampled = mini_batches(rollouts(done + 2, 2 * settings.num_problems), settings)
        # Before the first update, so that its ratios are 1.
        renewed = [now([rows]) for rows in sampled[: 2 * num_updates]]
        if len(renewed) < 2:
            raise KlearError(
                "too few groups have both right and wrong responses: raise num_problems"
            )
        first, second = renewed[: len(renewed) // 2], renewed[len(renewed) // 2 :]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        for rows in first:
            sums = UpdateSums(Mismatch(settings.max_new_tokens))
            update(model, optimizer, rows, sums, rule=rule, count_mismatch=False, **how)
        weights, averages = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        before = now(second)
        old = [row for rows in second for row in rows]
        # Tokens [K] of all mini-batches that follow, in their order.
        low = torch.cat([_in_low_corner(*pair, rule) for pair in zip(before, old, strict=True)])
        line: dict[str, float | None] = {"step": 1, "score/before": score()}
        for number, (name, changes) in enumerate(PARTS.items()):
            folder.progress(number, len(PARTS), name)
            model.load_state_dict(weights)
            optimizer.load_state_dict(copy.deepcopy(averages))  # it takes over the tensors
            sums = UpdateSums(Mismatch(settings.max_new_tokens))
            own = replace(rule, **changes)
            for rows in second:
                update(model, optimizer, rows, sums, rule=own, count_mismatch=False, **how)
            after = now(second)
            sums.add_moved(after, before)
            moved = torch.cat([log_ratio(*pair) for pair in zip(after, before, strict=True)])  # [K]
            measured = {
                "score": score(),
                **{
                    f"moved_{sign}": sums.moved[sign] / count if count else None
                    for sign, count in sums.moved_tokens.items()
                },
                "moved_low": _mean(moved[low]),
                "entropy": sums.entropy / sums.num_tokens,
                "grad_norm": _mean(torch.tensor(sums.grad_norms)),
            }
            line |= {f"{metric}/{name}": value for metric, value in measured.items()}
    folder.append_metrics(line)
    folder.progress(len(PARTS), len(PARTS))


def _in_low_corner(now: Row, old: Row, rule) -> torch.Tensor:
    """bool [T]: the tokens of a response with r below the clip range and A < 0."""
    ratio, advantage = log_ratio(now, old).exp(), torch.tensor(old.advantage)
    return corner_masks(ratio, advantage, rule)["low_negative"]


def _mean(values: torch.Tensor) -> float | None:
    return float(values.mean()) if len(values) else None
