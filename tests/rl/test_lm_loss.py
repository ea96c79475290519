"""The LM loss on correct responses (Eq. 13, with log pi)."""

import math

import pytest
import torch

from klearlib.rl.objective import positive_lm_loss

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


@pytest.mark.parametrize("is_correct", [[1.0, 0.0, 1.0], [True, False]])
def test_only_verdicts_say_what_is_correct(is_correct):
    with pytest.raises(ValueError, match="is_correct"):
        positive_lm_loss(LOGP, MASK, torch.tensor(is_correct))
