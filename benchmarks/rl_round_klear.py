"""klear's side of benchmarks/rl_round.py: rounds as `klearlib.rl.train` runs them, without
verification; and a recorded round of TRL computed again. Seconds are those of the process."""

from __future__ import annotations

import copy
import time

import torch
from common import clipping_run
from peers import answer, next_task

from klearlib.params import SMOKE
from klearlib.policy.batch_plan import BatchPlan, plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import TransformersEngine
from klearlib.policy.load import load_policy
from klearlib.records import Group, Problem, Verdict
from klearlib.rl.coefficients import ppo_clip
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.rollouts import Row, form_batch
from klearlib.rl.settings import RLSettings
from klearlib.rl.train import adamw, train_on, trainer_logprobs, update

RULE = ppo_clip(eps_low=0.2, eps_high=0.2)
VERDICT = Verdict(correct=False, reason="wrong")
# BatchPlan of 32 rollouts of 88 tokens: larger ones leave the cache of a core.
COMPUTE = {"micro_batch_tokens": 2816}


def serve(folder: str, precision: str) -> None:
    torch.set_num_threads(1)
    shape, compute = next_task(), local_compute(precision, **COMPUTE)
    settings = rl_settings(shape)
    model, tokenizer = load_policy(folder)
    problems = [Problem(id=str(i), prompt=x, answer="") for i, x in enumerate(shape["prompts"])]
    optimizer = adamw(model, settings)
    engine = TransformersEngine(model, tokenizer, compute)
    plan = plan_batches(model, compute)
    step = 0
    while (task := next_task()) is not None:
        if "record" in task:
            record = torch.load(task["record"])
            answer(**differences(copy.deepcopy(model), record, settings, plan))
            continue
        step += 1
        began = time.process_time()
        responses = engine.sample_groups(
            problems,
            group_size=settings.group_size,
            settings=SamplingSettings(
                temperature=1.0, top_p=1.0, top_k=0, max_tokens=settings.max_new_tokens, seed=step
            ),
        )
        sampled = time.process_time()
        groups = [
            Group(
                problem,
                tuple(group),
                (VERDICT,) * len(group),
                tuple(float(sum(response.token_ids) % 7) for response in group),
            )
            for problem, group in zip(problems, responses, strict=True)
        ]
        train_on(
            form_batch(groups, settings),
            model,
            optimizer,
            rule=RULE,
            settings=settings,
            plan=plan,
            step=step,
        )
        ended = time.process_time()
        answer(
            sampling=sampled - began,
            old_logp=0.0,
            training=ended - sampled,
            round=ended - began,
            tokens=sum(len(response.token_ids) for group in responses for response in group),
        )


def rl_settings(shape: dict) -> RLSettings:
    """The defaults, and where they differ what TRL's compute."""
    changes = {
        "num_problems": shape["problems"],
        "group_size": shape["group_size"],
        "mini_batch_problems": shape["problems"] // shape["updates"],
        "learning_rate": shape["learning_rate"],
        "max_new_tokens": shape["max_tokens"],
        "max_grad_norm": shape["max_grad_norm"],
        "alpha": 0.0,
        "normalizer": "token",
        "group_std": "unbiased",
        "group_epsilon": 1e-4,
        "zero_advantage_filter": "off",
    }
    return RLSettings(**clipping_run(SMOKE).params["settings"] | changes)


def differences(model, record: dict, settings: RLSettings, plan: BatchPlan) -> dict[str, float]:
    """How far klear's updates on TRL's recorded round are from TRL's, see benchmarks/rl_round.py.

    RuntimeError if a token left the clip range: there klear's surrogate has another value.
    """
    before, after = record["weights"]
    model.load_state_dict(before)
    optimizer = adamw(model, settings)
    parts = [peer_rows(batch) for batch in record["batches"]]
    logp = [
        float((renewed.logp_old - row.logp_old).abs().max())
        for rows in parts
        for row, renewed in zip(
            rows, trainer_logprobs(model, rows, temperature=1.0, plan=plan), strict=True
        )
    ]
    losses, norms = [], []
    for rows, loss, norm in zip(parts, record["losses"], record["grad_norms"], strict=True):
        sums = UpdateSums(Mismatch(max_tokens=settings.max_new_tokens))
        update(
            model,
            optimizer,
            rows,
            sums,
            rule=RULE,
            settings=settings,
            plan=plan,
            count_mismatch=False,
        )
        if sum(sums.corner_tokens.values()):
            raise RuntimeError(f"tokens left the clip range: {sums.corner_tokens}")
        losses.append(abs(sums.policy_loss - loss))
        norms.append(abs(sums.grad_norms[0] / norm - 1))
    found, expected = (
        torch.cat([(state[name] - before[name]).flatten() for name in sorted(before)])
        for state in (model.state_dict(), after)
    )
    return {
        "loss": max(losses),
        "norm": max(norms),
        "step": float((found - expected).norm() / expected.norm()),
        "logp": max(logp),
    }


def peer_rows(batch: dict) -> list[Row]:
    """The rollouts of one of TRL's mini-batches."""
    rows = []
    for index, advantage in enumerate(batch["advantages"].tolist()):
        prompt, response = (
            batch[f"{part}_ids"][index][batch[f"{part}_mask"][index].bool()]
            for part in ("prompt", "completion")
        )
        old = batch["old_per_token_logps"][index][batch["completion_mask"][index].bool()]
        rows.append(Row(torch.cat([prompt, response]), len(prompt), old.float(), advantage, False))
    return rows
