"""Weights of whole responses and mini-batches: the gradient is that of the printed objective."""

import math
import random
from dataclasses import replace

import pytest
import torch
from update_oracle import NUM_PROMPT, gradient, make_rows

from klearlib.rl.rule_specs import rule_from
from klearlib.rl.rule_table import PUBLISHED

CLIP = {"eps_low": 0.1, "eps_high": 0.12}
WIDENED = {"widest_low": 0.7, "widest_high": 1.5}
HOW = {
    "gspo": {"rule": rule_from({"name": "gspo", **CLIP}), "normalizer": "sequence"},
    "m2po": {"rule": rule_from(PUBLISHED["m2po"].spec)},
    "m2po_capped": {"rule": rule_from(PUBLISHED["m2po_capped"].spec | WIDENED)},
}


def released_range(log_ratios: list[float], advantages: list[float]) -> tuple[float, float]:
    """M2PO's clip range as its released code is described: T, the cap t, the widening."""
    pushed = [
        d
        for d, a in zip(log_ratios, advantages, strict=True)
        if (a > 0 and math.exp(d) > 1) or (a < 0 and math.exp(d) < 1)
    ]
    if sum(d**2 for d in pushed) <= 0.04 * len(pushed):
        return 0.0, math.inf
    t = 0.0
    for d in map(abs, pushed):
        if sum(min(other**2, d**2) for other in pushed) < 0.04 * len(pushed):
            t = max(t, d)
    return min(math.exp(-t), 0.7), max(math.exp(t), 1.5)


def dropped_until_it_fits(log_ratio, advantage):
    """M of M2PO as its paper is quoted: the largest outward tokens are dropped until the mean of
    the squares of the others is at most the budget."""
    outward = log_ratio * advantage > 0
    kept = torch.ones_like(log_ratio)
    while (left := outward & (kept > 0)).any() and log_ratio[left].square().mean() > 0.04:
        kept[int((log_ratio.square() * left).argmax())] = 0.0
    return kept


def printed(policy, rows, kind):
    found, olds, spread = [], [], []
    for mine in rows:
        ids = mine.ids
        logits = policy(input_ids=ids[None]).logits[0, :-1]
        logp = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[NUM_PROMPT - 1 :, 0]
        found.append(logp)
        olds.append(mine.logp_old.to(logp.dtype))
        spread.append(torch.full_like(logp, mine.advantage))
    if kind == "gspo":
        s = torch.stack([(new - old).mean().exp() for new, old in zip(found, olds, strict=True)])
        a = torch.tensor([mine.advantage for mine in rows], dtype=s.dtype)
        cut = s.clamp(1 - CLIP["eps_low"], 1 + CLIP["eps_high"])
        assert 1 <= int((cut != s).sum()) < len(rows)
        loss = -torch.minimum(s * a, cut * a).mean()
    elif kind == "m2po_capped":
        new, old, a = map(torch.cat, (found, olds, spread))
        r = (new - old).exp()
        low, high = released_range((new - old).tolist(), a.tolist())
        surrogate = torch.minimum(r * a, r.clamp(low, high) * a)
        assert 0 < int((surrogate != r * a).sum()) < len(a) / 2
        loss = -surrogate.mean()
    else:
        new, old, a = map(torch.cat, (found, olds, spread))
        d = (new - old).detach()
        kept = dropped_until_it_fits(d, a)
        assert 0 < int((kept == 0).sum()) < len(a) / 2
        loss = -(kept * (new - old).exp() * a).mean()
    policy.zero_grad()
    loss.backward()
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


def test_the_capped_mask_is_where_the_released_range_has_no_gradient():
    draw = random.Random(0)
    seen = set()
    for _ in range(400):
        num, large = draw.randrange(1, 60), draw.choice([0.02, 0.1, 0.5])
        log_ratios = [draw.gauss(0, 0.6 if draw.random() < large else 0.05) for _ in range(num)]
        advantages = [draw.choice([-2.0, 0.5, 0.0]) for _ in range(num)]
        low, high = released_range(log_ratios, advantages)
        seen.add((low == 0, low == 0.7, high == 1.5))
        d = torch.tensor(log_ratios, dtype=torch.float64, requires_grad=True)
        a = torch.tensor(advantages, dtype=torch.float64)
        # t is the size of a token, whose own ratio rounding must not put beyond it.
        r, bounds = d.exp(), (low * (1 - 1e-12), high * (1 + 1e-12))
        torch.minimum(r * a, r.clamp(*bounds) * a).sum().backward()
        kept = HOW["m2po_capped"]["rule"].weights(d.detach(), a, torch.zeros(num).long())
        torch.testing.assert_close(kept * (r * a).detach(), d.grad, rtol=1e-12, atol=0)
    # No clip, both ends widened, the lower one, none.
    assert seen == {(True, False, False), (False, True, True), (False, False, True), (False,) * 3}
