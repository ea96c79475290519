"""Weights of whole responses and mini-batches: the gradient is that of the printed objective."""

from dataclasses import replace

import pytest
import torch
from published_objectives import Batch, gspo, m2po, m2po_capped, objective
from torch.nn.utils.rnn import pad_sequence
from update_oracle import NUM_PROMPT, gradient, make_rows

from klearlib.rl.rule_specs import rule_from
from klearlib.rl.rule_table import PUBLISHED

WIDENED = {"widest_low": 0.7, "widest_high": 1.5}
HOW = {
    "gspo": {
        "rule": rule_from({"name": "gspo", "eps_low": 0.1, "eps_high": 0.12}),
        "normalizer": "sequence",
    },
    "m2po": {"rule": rule_from(PUBLISHED["m2po"].spec)},
    "m2po_capped": {"rule": rule_from(PUBLISHED["m2po_capped"].spec | WIDENED)},
}
FLOORS = {"floor_low": 0.3, "floor_high": 0.5}
PRINTED = {
    "gspo": objective(gspo, "sequence", lambda batch: batch.rewards, low=0.9, high=1.12),
    "m2po": objective(m2po, advantage=lambda batch: batch.rewards, budget=0.04),
    "m2po_capped": objective(
        m2po_capped, advantage=lambda batch: batch.rewards, budget=0.04, **FLOORS
    ),
}


def printed(policy, rows, kind) -> torch.Tensor:
    """Minus the gradient of the printed objective, whose `rewards` are the rows' advantages."""
    found = []
    for mine in rows:
        logp = torch.log_softmax(policy(input_ids=mine.ids[None]).logits[0, :-1], -1)
        found.append(logp.gather(1, mine.ids[1:, None])[NUM_PROMPT - 1 :, 0])
    logp, old, mask = (
        pad_sequence(list(values), batch_first=True)
        for values in (
            found,
            [mine.logp_old.double() for mine in rows],
            [torch.ones(len(mine.logp_old), dtype=torch.bool) for mine in rows],
        )
    )
    rewards = torch.tensor([[mine.advantage for mine in rows]], dtype=torch.float64)
    batch = Batch(logp, old, old, torch.zeros_like(old), mask, rewards, max_tokens=16)
    policy.zero_grad()
    (-PRINTED[kind](batch)).backward()
    return torch.cat([p.grad.flatten().double() for p in policy.parameters()])


@pytest.mark.parametrize("kind", HOW)
@pytest.mark.parametrize("micro_batch_tokens", [10_000, 24])
def test_gradient_is_that_of_the_printed_objective(new_policy, kind, micro_batch_tokens):
    policy = new_policy(3, dtype=torch.float64)
    rows = make_rows(policy)
    wanted = printed(policy, rows, kind)
    how = HOW[kind]
    found, _ = gradient(policy, rows, **how, micro_batch_tokens=micro_batch_tokens)
    plain, _ = gradient(policy, rows, **how | {"rule": replace(how["rule"], weights=None)})
    assert float((found - wanted).norm() / wanted.norm()) < 1e-5
    assert float((plain - wanted).norm() / wanted.norm()) > 1e-2


def masks(log_ratios: list[float], advantages: list[float]) -> list[list[int]]:
    given = [torch.tensor(each, dtype=torch.float64) for each in (log_ratios, advantages)]
    response = torch.zeros(len(log_ratios), dtype=torch.int64)
    masks = (HOW[name]["rule"].weights for name in ("m2po", "m2po_capped"))
    return [mask(*given, response).int().tolist() for mask in masks]


def test_the_two_m2pos_by_hand():
    tiny = 2.0**-30
    # A mean of 0.04 is within the budget, though one token is far beyond 1.5.
    assert masks([1.0, *[tiny] * 24], [1.0] * 25) == [[1] * 25] * 2
    # No t fits: its one token counts t^2. The widened range cuts beyond log 1.5 = 0.405 and
    # log 0.7 = -0.357, where dropping leaves no token that pushes outwards.
    assert masks([0.40], [1.0]) == [[0], [1]]
    assert masks([0.41], [1.0]) == [[0], [0]]
    assert masks([-0.35], [-1.0]) == [[0], [1]]
    assert masks([-0.36], [-1.0]) == [[0], [0]]
    # At t = 0.5 the capped sum is 4 x 0.25 = 0.04 x 25, which is not below it, so t is `tiny`.
    dropped, capped = masks([1.0, 0.5, 0.5, 0.5, *[tiny] * 21], [1.0] * 25)
    assert dropped[:4] == [0, 1, 1, 1] and capped[:4] == [0, 0, 0, 0]
    assert dropped[4:] == capped[4:] == [1] * 21
    # Of 40 tokens 1.6 is allowed: t = 0.5 leaves 5 x 0.25 + 0.2025, t = 0.6 would leave 1.6725.
    # That is wider than the widening, on both sides. The last two push inwards.
    given, pushes = [1.0, 0.5, 0.5, 0.5, -0.6, -0.45, 0.9, -0.9], [1.0] * 4 + [-1.0] * 3 + [1.0]
    capped = masks(given + [tiny] * 34, pushes + [1.0] * 34)[1]
    assert capped == [0, 1, 1, 1, 0, 1, 1, 1] + [1] * 34
    assert masks([], []) == [[], []]
    assert masks([0.3, -0.3], [-1.0, 1.0]) == [[1, 1]] * 2  # inwards
