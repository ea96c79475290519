"""The sampler's correction in the loss: a constant factor behind the clipping, and nowhere else."""

import dataclasses

import pytest
import torch
from printed_equations import SPECS
from update_oracle import gradient, make_rows, oracle

from klearlib.rl.objective import policy_loss, token_weights
from klearlib.rl.rule_specs import rule_from

DRAWS = torch.Generator().manual_seed(1)
SHAPE = (4, 7)
LOGP = -torch.rand(SHAPE, generator=DRAWS, dtype=torch.float64) * 3
# Ratios in all corners: from 0.3 to 3.
LOGP_OLD = LOGP - (torch.rand(SHAPE, generator=DRAWS, dtype=torch.float64) * 2 - 1) * 1.1
ADVANTAGES = torch.tensor([1.5, -0.7, 0.3, -2.0], dtype=torch.float64)
MASK = torch.rand(SHAPE, generator=DRAWS) < 0.8
FACTOR = torch.rand(SHAPE, generator=DRAWS, dtype=torch.float64) * 2


def gradient_of(**how) -> torch.Tensor:
    logp = LOGP.clone().requires_grad_()
    loss = policy_loss(logp, LOGP_OLD, ADVANTAGES, MASK, **how)
    return torch.autograd.grad(loss, logp)[0]


@pytest.mark.parametrize("normalizer", ["token", "sequence"])
@pytest.mark.parametrize("rule", SPECS)
def test_each_tokens_gradient_is_multiplied_by_its_factor(rule, normalizer):
    how = {"rule": rule_from(SPECS[rule]), "normalizer": normalizer}
    found = gradient_of(correction=FACTOR, **how)
    torch.testing.assert_close(found, gradient_of(**how) * FACTOR, rtol=1e-12, atol=0)
    ones = gradient_of(correction=torch.ones(SHAPE, dtype=torch.float64), **how)
    assert torch.equal(ones, gradient_of(**how))


def test_the_factor_is_a_constant_and_what_is_masked_is_not_looked_at():
    how = {"rule": rule_from(SPECS["gppo"])}
    factor = FACTOR.clone().requires_grad_()
    logp = LOGP.clone().requires_grad_()
    policy_loss(logp, LOGP_OLD, ADVANTAGES, MASK, correction=factor, **how).backward()
    assert factor.grad is None
    broken = torch.where(MASK, FACTOR, torch.nan)
    assert torch.equal(gradient_of(correction=broken, **how), logp.grad)


def test_pushes_are_reported_with_the_factor():
    log_ratio, advantages = (LOGP - LOGP_OLD)[MASK], ADVANTAGES[:, None].expand(SHAPE)[MASK]
    rule = rule_from(SPECS["gppo"])
    for clamp in (None, 0.5):
        plain, found = (
            token_weights(
                log_ratio,
                torch.zeros_like(log_ratio),
                advantages,
                factor,
                rule=rule,
                log_ratio_clamp=clamp,
            )
            for factor in (torch.ones_like(log_ratio), FACTOR[MASK])
        )
        assert torch.equal(found, plain * FACTOR[MASK])


@pytest.mark.parametrize(
    "factor", [torch.ones(4, 6), torch.ones(4), torch.ones(SHAPE, dtype=torch.long)]
)
def test_a_factor_of_another_shape_or_type_is_refused(factor):
    with pytest.raises(ValueError, match="correction must be float32 or float64"):
        gradient_of(rule=rule_from(SPECS["gppo"]), correction=factor)


@pytest.fixture(scope="module")
def policy(new_policy):
    return new_policy(3, dtype=torch.float64)


@pytest.mark.parametrize("micro_batch_tokens", [10_000, 25])
def test_one_factor_for_all_scales_the_policy_loss_and_not_the_lm_loss(policy, micro_batch_tokens):
    """The gradient is 1.5 x that of the printed objective plus alpha x that of Eq. 13."""
    rows = make_rows(policy)
    weighed = [
        dataclasses.replace(mine, correction=torch.full_like(mine.logp_old, 1.5)) for mine in rows
    ]
    how = {"normalizer": "token"}
    found, sums = gradient(policy, weighed, alpha=0.3, micro_batch_tokens=micro_batch_tokens)
    policy_part = oracle(policy, rows, "gppo", alpha=0.0, **how)
    lm_part = oracle(policy, rows, "gppo", alpha=0.3, **how) - policy_part
    expected = 1.5 * policy_part + lm_part
    assert float((found - expected).norm() / expected.norm()) < 3e-6
    _, plain = gradient(policy, rows, alpha=0.3)
    assert sums.gradient == pytest.approx(1.5 * plain.gradient)
    assert sums.corner_tokens == plain.corner_tokens
    assert sums.lm_loss == pytest.approx(plain.lm_loss)
