"""The LM loss on correct responses (Eq. 13, with log pi) and its weight alpha (Eq. 14)."""

import math

import pytest
import torch

from klearlib.rl.coefficients import gppo
from klearlib.rl.objective import policy_loss, positive_lm_loss

LOGP = torch.tensor(
    [[-1.0, -2.0, -4.0], [-0.5, -0.25, -8.0], [-3.0, -6.0, -7.0]], dtype=torch.float64
)
MASK = torch.tensor([[True, True, False], [False, True, True], [True, False, False]])


def test_minus_the_mean_log_probability_of_all_positive_tokens():
    loss = positive_lm_loss(LOGP, MASK, torch.tensor([True, False, True]))
    assert loss.item() == pytest.approx((1.0 + 2.0 + 3.0) / 3)
    loss = positive_lm_loss(LOGP, MASK, torch.tensor([True, True, False]))
    assert loss.item() == pytest.approx((1.0 + 2.0 + 0.25 + 8.0) / 4)


def test_denominator_is_that_of_the_mini_batch():
    correct = torch.tensor([True, False, True])
    whole = positive_lm_loss(LOGP, MASK, correct)
    parts = [
        positive_lm_loss(LOGP[i : i + 1], MASK[i : i + 1], correct[i : i + 1], denominator=3)
        for i in range(3)
    ]
    assert sum(parts).item() == pytest.approx(whole.item(), rel=1e-12)
    own = [positive_lm_loss(LOGP[i : i + 1], MASK[i : i + 1], correct[i : i + 1]) for i in range(3)]
    assert [part.item() for part in own] == pytest.approx([1.5, 0.0, 3.0])


def test_no_positives_is_zero_with_a_finite_gradient():
    logp = LOGP.clone().requires_grad_()
    loss = positive_lm_loss(logp, MASK, torch.zeros(3, dtype=torch.bool))
    (found,) = torch.autograd.grad(loss, logp)
    assert loss.item() == 0 and torch.equal(found, torch.zeros_like(found))


@pytest.mark.parametrize("filling", [math.nan, -math.inf])
def test_masked_positions_and_wrong_responses_may_hold_anything(filling):
    correct = torch.tensor([True, False, True])
    chosen = MASK & correct[:, None]
    logp = LOGP.masked_fill(~chosen, filling).requires_grad_()
    loss = positive_lm_loss(logp, MASK, correct)
    (found,) = torch.autograd.grad(loss, logp)
    assert loss.item() == pytest.approx(2.0)
    assert torch.isfinite(found).all() and (found[~chosen] == 0).all()


@pytest.mark.parametrize("alpha", [0.0, 0.1, 2.0])
def test_total_gradient_is_policy_plus_alpha_lm(alpha):
    """Eq. 14 token by token: -(F A + alpha [correct]) over the two denominators."""
    ratio = torch.tensor([[1.1, 3.0, 1.0], [1.0, 0.3, 2.0], [0.9, 1.0, 1.0]], dtype=torch.float64)
    advantages = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    factor = torch.tensor([[1.1, 1.28, 0], [0, 0.8, 2.0], [0.9, 0, 0]], dtype=torch.float64)
    correct = torch.tensor([True, False, True])
    logp = LOGP.clone().requires_grad_()
    loss = policy_loss(
        logp, LOGP - ratio.log(), advantages, MASK, rule=gppo(eps_low=0.2, eps_high=0.28)
    ) + alpha * positive_lm_loss(logp, MASK, correct)
    (found,) = torch.autograd.grad(loss, logp)
    positive = (MASK & correct[:, None]).double()
    expected = -factor * advantages[:, None] / 5 - alpha * positive / 3
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    "is_correct",
    [
        torch.tensor([1.0, 0.0, 1.0]),
        torch.tensor([1, 0, 1]),
        torch.tensor([True, False]),
        torch.tensor([[True], [False], [True]]),
    ],
)
def test_only_verdicts_say_what_is_correct(is_correct):
    with pytest.raises(ValueError, match="is_correct"):
        positive_lm_loss(LOGP, MASK, is_correct)
