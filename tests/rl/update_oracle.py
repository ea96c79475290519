"""Rows for one optimiser update, its gradient, and the gradient of the printed objective."""

from dataclasses import fields

import torch
from printed_equations import SPECS, printed_objective
from rollout_fakes import row, settings

from klearlib.policy.batch_plan import BatchPlan
from klearlib.rl.logprobs import trainer_logprobs
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch, weighted
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.train import update

NUM_PROMPT = 3


def make_rows(policy, *, seed: int = 0, lengths=(9, 4, 12, 6, 5, 10, 7, 4)):
    """Rows whose old log-probabilities put tokens inside the clip range and into all corners."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for index, length in enumerate(lengths):
        ids = torch.randint(0, policy.config.vocab_size, (length,), generator=generator)
        shift = torch.randn(length - NUM_PROMPT, generator=generator) * 0.4
        logp_old = exact_logprobs(policy, ids)[NUM_PROMPT - 1 :] + shift
        rows.append(
            row(
                ids,
                NUM_PROMPT,
                logp_old=logp_old,
                advantage=(-1.0) ** (index // 2) * (0.5 + index / 4),
                is_correct=index % 3 == 0,
                place=(index // 3, index % 3),
            )
        )
    return rows


@torch.no_grad()
def exact_logprobs(policy, ids: torch.Tensor) -> torch.Tensor:
    logits = policy(input_ids=ids[None]).logits[0, :-1].double()
    return torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]


PASSES = {"micro_batch_tokens": 10_000, "precision": "fp32"}
RULE = rule_from(SPECS["gppo"])
SETTINGS = {"max_new_tokens": 16, "max_grad_norm": 1e9}


def gradient(policy, rows, **changes) -> tuple[torch.Tensor, UpdateSums]:
    """The gradient of one update that moves nothing, as one vector.

    changes: `rule`, `count_mismatch` and `plan` of `update`, fields of `BatchPlan`, and settings.
    """
    rule, count_mismatch = changes.pop("rule", RULE), changes.pop("count_mismatch", True)
    names = [field.name for field in fields(BatchPlan)]
    layout = PASSES | {name: changes.pop(name) for name in names if name in changes}
    plan = changes.pop("plan", None) or BatchPlan(**layout)
    how = {"rule": rule, "plan": plan, "settings": settings(**SETTINGS | changes)}
    sums = UpdateSums(Mismatch(max_tokens=16))
    if rule.weights is not None:
        now = trainer_logprobs(policy, rows, temperature=1.0, plan=plan)
        rows = weighted(rows, now, rule=rule, counts=sums.mismatch)
    still = torch.optim.SGD(policy.parameters(), lr=0.0)
    update(policy, still, rows, sums, count_mismatch=count_mismatch, **how)
    return torch.cat([p.grad.flatten().double() for p in policy.parameters()]), sums


def oracle(policy, rows, rule, *, alpha, normalizer, groups=None, temperature=1.0):
    """Autograd of the printed objective, one row at a time; `groups` are averaged as equals, for
    ``prompt`` those of the rows of one prompt (Eq. 7)."""
    groups = [rows] if groups is None else groups
    if normalizer == "prompt":
        prompts = dict.fromkeys(each.place[0] for each in rows)
        groups = [[each for each in rows if each.place[0] == prompt] for prompt in prompts]
    loss = 0.0
    for part in groups:
        objective, num_tokens, lm, num_positive = 0.0, 0, 0.0, 0
        for mine in part:
            ids = mine.ids
            logits = policy(input_ids=ids[None]).logits[0, :-1] / temperature
            logp = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[NUM_PROMPT - 1 :, 0]
            old = mine.logp_old.to(logp.dtype)
            terms = sum(
                printed_objective(rule, new, before, mine.advantage)
                for new, before in zip(logp, old, strict=True)
            )
            objective = objective + (terms / len(logp) if normalizer == "sequence" else terms)
            num_tokens += len(logp)
            if mine.is_correct:
                lm, num_positive = lm + logp.sum(), num_positive + len(logp)
        count = len(part) if normalizer == "sequence" else num_tokens
        loss = loss - objective / count / len(groups)
        loss = loss - alpha * lm / max(num_positive, 1) / len(groups)
    policy.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten().double() for p in policy.parameters()])
