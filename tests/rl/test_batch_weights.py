"""Weights of whole responses and mini-batches: the gradient is that of the printed objective."""

import pytest
import torch
from update_oracle import NUM_PROMPT, gradient, make_rows

from klearlib.experiments.demos import neighbours as demo
from klearlib.rl.coefficients import Rule, unclipped
from klearlib.rl.neighbours import gspo

CLIP = {"eps_low": 0.1, "eps_high": 0.12}
HOW = {
    "sequence_ratio": {"rule": Rule("gspo", **CLIP, function=gspo), "normalizer": "sequence"},
    "second_moment": {"rule": unclipped()},
}


def printed(policy, rows, kind):
    found, olds, spread = [], [], []
    for mine in rows:
        ids = torch.tensor(mine.ids)
        logits = policy(input_ids=ids[None]).logits[0, :-1]
        logp = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[NUM_PROMPT - 1 :, 0]
        found.append(logp)
        olds.append(torch.tensor(mine.logp_old, dtype=logp.dtype))
        spread.append(torch.full_like(logp, mine.advantage))
    if kind == "sequence_ratio":
        s = torch.stack([(new - old).mean().exp() for new, old in zip(found, olds, strict=True)])
        a = torch.tensor([mine.advantage for mine in rows], dtype=s.dtype)
        cut = s.clamp(1 - CLIP["eps_low"], 1 + CLIP["eps_high"])
        assert 1 <= int((cut != s).sum()) < len(rows)
        loss = -torch.minimum(s * a, cut * a).mean()
    else:
        new, old, a = map(torch.cat, (found, olds, spread))
        d = (new - old).detach()[None]
        kept = demo.second_moment_mask(d, a[None], torch.ones_like(d, dtype=torch.bool))[0]
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
    how = HOW[kind] | {"batch_weights": kind, "micro_batch_tokens": micro_batch_tokens}
    found, _ = gradient(policy, rows, **how)
    plain, _ = gradient(policy, rows, **HOW[kind])
    assert float((found - wanted).norm() / wanted.norm()) < 1e-5
    assert float((plain - wanted).norm() / wanted.norm()) > 1e-2
