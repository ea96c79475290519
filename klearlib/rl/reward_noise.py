"""Stage ``reward_noise``: how noisy the policy gradient is under several rewards of the very same
rollouts, at weights that stay."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import TYPE_CHECKING

from klearlib.data.problems import read_problems
from klearlib.errors import Stopped
from klearlib.policy.batch_plan import plan_batches
from klearlib.policy.compute import Compute
from klearlib.policy.engines import open_engine
from klearlib.policy.load import load_policy
from klearlib.rl import schedule
from klearlib.rl.gradient_measures import half_cosine
from klearlib.rl.rollouts import form_batch, mini_batches
from klearlib.rl.settings import RLSettings
from klearlib.verify.groups import judge_groups

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


def compare_rewards(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    seed: int,
    rewards: list[str],
    settings: dict,
    compute: dict,
) -> None:
    """Sample ``num_steps`` rollout batches of ``inputs["sft"]/model``, as the run of RL with these
    settings and seed would if it never learnt, and score each by all `rewards`.

    Writes a line of metrics.jsonl for each batch: step, and for each reward, as in
    ``half_cosine/soft``, ``half_cosine`` (`klearlib.rl.gradient_measures.half_cosine`, None where a
    half has no gradient), ``groups_trained`` and ``reward_std``. A run that was stopped goes on
    with the next batch.

    Args:
        rewards: words of `code_reward`. The others are those of `klearlib.rl.train.train_rl`.

    Raises:
        Stopped: a stop was asked for.
    """
    settings, compute = RLSettings(**settings), Compute(**compute)
    path = inputs["sft"] / "model"
    model, tokenizer = load_policy(path, attention=compute.attention)
    plan = plan_batches(model, compute, parts_count=False)
    problems = read_problems(inputs.get("pool", inputs["world"]) / "train.jsonl")
    saved = folder.load_checkpoint()
    done = 0 if saved is None else saved[1]
    order = schedule.problem_order(len(problems), settings, seed=seed, done=done)
    with open_engine(path, compute=compute, model=model, tokenizer=tokenizer) as engine:
        for step in range(done + 1, settings.num_steps + 1):
            folder.progress(step - 1, settings.num_steps)
            chosen = [problems[index] for index in itertools.islice(order, settings.num_problems)]
            responses = schedule.responses(engine, chosen, settings, seed=seed, step=step)
            line: dict[str, float | None] = {"step": step}
            for reward in rewards:
                own = replace(settings, code_reward=reward)
                groups = judge_groups(chosen, responses, **schedule.judging(own, seed=seed))
                batch = form_batch(groups, own)
                rows = [row for part in mini_batches(batch, own) for row in part]
                measured = {
                    "half_cosine": half_cosine(model, rows, settings=own, plan=plan),
                    "groups_trained": int(batch.kept_groups.sum()),
                    "reward_std": pstdev(r for group in groups for r in group.rewards),
                }
                line |= {f"{name}/{reward}": value for name, value in measured.items()}
            folder.append_metrics(line)
            if folder.stop_requested and step < settings.num_steps:
                folder.save_checkpoint({}, step)
                raise Stopped(f"stopped after batch {step} of {settings.num_steps}: run it again")
    folder.progress(settings.num_steps, settings.num_steps)
