"""Rollouts and settings on which verl's training worker and the local trainer must agree."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from printed_equations import SPECS
from rollout_fakes import SETTINGS

from klearlib.policy.batch_plan import BatchPlan
from klearlib.records import Group, Problem, Response, Verdict
from klearlib.rl.rollouts import Row
from klearlib.rl.settings import RLSettings
from klearlib.rl.train import trainer_logprobs

GROUP_SIZE, MAX_NEW_TOKENS = 4, 24
SKIPPED = "skipped update"
# Groups of a step: how many of their four rollouts are correct. Three of eight have no advantage.
_NUM_CORRECT = ((1, 4, 2, 0, 3, 1, 2, 0), (2, 0, 1, 3, 4, 2))


@dataclass(frozen=True)
class Case:
    """One run of a step or two. tokens_per_pass: of verl's micro-batches; num_steps: at most 2.
    broken: a log-probability is no number, so that the first mini-batch has no gradient."""

    spec: dict
    changes: dict = field(default_factory=dict)
    tokens_per_pass: int = 160
    num_steps: int = 1
    broken: bool = False

    def groups(self, steps: Sequence[Sequence[Group]]) -> list[list[Group]]:
        """Those of each step, of `groups_of_steps`."""
        chosen = [list(groups) for groups in steps[: self.num_steps]]
        if self.broken:
            first = chosen[0][0]
            wrong = replace(first.responses[0], logp=(math.nan,) * len(first.responses[0].logp))
            chosen[0][0] = replace(first, responses=(wrong, *first.responses[1:]))
        return chosen

    @property
    def settings(self) -> RLSettings:
        fixed = {
            "num_problems": 8,
            "group_size": GROUP_SIZE,
            "mini_batch_problems": 2,
            "max_new_tokens": MAX_NEW_TOKENS,
            "learning_rate": 1e-3,
        }
        return RLSettings(**SETTINGS | fixed | self.changes)


_WAYS = ((0.1, "token"), (0.0, "sequence"), (0.0, "token"), (0.1, "sequence"))
# Every rule in two ways, one of them in all.
CASES = {
    f"{name} alpha {alpha} {normalizer}": Case(spec, {"alpha": alpha, "normalizer": normalizer})
    for name, spec in SPECS.items()
    for alpha, normalizer in _WAYS[: 4 if name == "gppo_general" else 2]
}
_GPPO = SPECS["gppo_general"]
_CORRECTED = {"logp_old": "trainer", "sampler_correction": 1.5}
CASES |= {
    name: Case(_GPPO, {"alpha": 0.1} | changes, **how)
    for name, changes, how in (
        ("no filter", {"zero_advantage_filter": "off", "mini_batch_problems": 3}, {}),
        # Of the mini-batches one has no positive and no advantage: its gradient is 0.
        ("one group each", {"zero_advantage_filter": "off", "mini_batch_problems": 1}, {}),
        ("accuracy filter", {"zero_advantage_filter": "accuracy"}, {}),
        ("one pass", {"zero_advantage_filter": "off"}, {"tokens_per_pass": 10_000}),
        ("without truncated", {"drop_truncated": True}, {}),
        ("clamped", {"log_ratio_clamp": 0.5}, {}),
        ("temperature", {"temperature": 0.7, "normalizer": "sequence"}, {}),
        ("old by trainer", {"logp_old": "trainer"}, {}),
        ("corrected", _CORRECTED, {}),
        ("corrected sequence", _CORRECTED | {"normalizer": "sequence"}, {}),
        ("AdamW", {"weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.95}, {}),
        ("clipped gradient", {"max_grad_norm": 0.05}, {}),
        ("two steps", {"warmup_steps": 2}, {"num_steps": 2}),
        (SKIPPED, {}, {"broken": True}),
    )
}


def groups_of_steps(model) -> list[list[Group]]:
    """The judged groups of two steps: random tokens, and log-probabilities around the model's own,
    so that the ratios reach all corners and what lies beyond a dual clip of 10."""
    chance = random.Random(0)
    plan = BatchPlan(micro_batch_tokens=None, precision="fp32")
    steps = []
    for numbers in _NUM_CORRECT:
        drawn = [
            [_response(chance, index) for _ in range(GROUP_SIZE)] for index in range(len(numbers))
        ]
        flat = [response for group in drawn for response in group]
        rows = [
            Row(
                torch.tensor(r.prompt_ids + r.token_ids),
                len(r.prompt_ids),
                torch.zeros(len(r.token_ids)),
                0.0,
                False,
            )
            for r in flat
        ]
        found = trainer_logprobs(model, rows, temperature=1.0, plan=plan)
        sampled = iter(
            replace(response, logp=tuple(value + _noise(chance) for value in row.logp_old.tolist()))
            for response, row in zip(flat, found, strict=True)
        )
        steps.append(
            [
                _judged(index, [next(sampled) for _ in range(GROUP_SIZE)], num_correct)
                for index, num_correct in enumerate(numbers)
            ]
        )
    return steps


def _response(chance: random.Random, index: int) -> Response:
    def tokens(least: int, most: int) -> tuple[int, ...]:
        return tuple(chance.randrange(270) for _ in range(chance.randint(least, most)))

    # One prompt a group; the lengths of the responses vary most.
    prompt = tuple(random.Random(index).randrange(270) for _ in range(3 + index))
    found = tokens(1, MAX_NEW_TOKENS)
    return Response(f"p{index}", "?", prompt, found, (), "", len(found) % 5 == 0)


def _noise(chance: random.Random) -> float:
    return chance.uniform(-3.5, 3.5) if chance.random() < 0.1 else chance.uniform(-0.6, 0.6)


def _judged(index: int, responses: list[Response], num_correct: int) -> Group:
    right = [place < num_correct for place in range(GROUP_SIZE)]
    verdicts = tuple(Verdict(each, "correct" if each else "wrong") for each in right)
    rewards = tuple(1.0 if each else -1.0 for each in right)
    return Group(Problem(f"p{index}", "?", "1"), tuple(responses), verdicts, rewards)


def start_rank(rank: int, num_ranks: int, work: Path) -> None:
    """`worker_ranks.run_rank` on all cases; verl is imported where this is called."""
    from worker_ranks import run_rank

    run_rank(rank, num_ranks, work, list(CASES))
