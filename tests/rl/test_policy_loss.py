"""The policy loss, whose gradient is F * A / denominator whatever stands around a token, and the LM
loss on correct responses (Eq. 13, with log pi)."""

import math

import pytest
import torch
from printed_equations import SPECS, expected_coefficient, printed_objective

from klearlib.rl.coefficients import gppo
from klearlib.rl.objective import policy_loss, positive_lm_loss
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.rule_table import PUBLISHED

RULES = list(SPECS)
GPPO = gppo(eps_low=0.2, eps_high=0.28)


def ragged_batch(seed: int = 0, *, num_rows: int = 6, width: int = 20):
    """Ratios 1e-6 .. 1e6 of both signs of A, rows of different lengths, masks with a late start."""
    generator = torch.Generator().manual_seed(seed)
    exponent = torch.rand(num_rows, width, generator=generator, dtype=torch.float64) * 12 - 6
    # A third of the tokens near 1, where training lives.
    near = torch.rand(num_rows, width, generator=generator) < 0.33
    ratio = 10 ** torch.where(near, exponent / 20, exponent)
    logp = -torch.rand(num_rows, width, generator=generator, dtype=torch.float64) * 3
    advantages = torch.tensor([1.5, -0.7, 0.3, -2.0, 0.0, -0.1], dtype=torch.float64)[:num_rows]
    start = torch.tensor([0, 3, 1, 0, 5, 2])[:num_rows, None]
    stop = torch.tensor([20, 11, 20, 6, 9, 3])[:num_rows, None]
    position = torch.arange(width)
    mask = (position >= start) & (position < stop)
    return logp, logp - ratio.log(), advantages, mask


def gradient_of(loss: torch.Tensor, logp: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, logp)[0]


@pytest.mark.parametrize("normalizer", ["token", "sequence"])
@pytest.mark.parametrize("rule", RULES)
def test_gradient_is_that_of_the_printed_objective_and_the_value_the_mean_of_f_times_a(
    rule, normalizer
):
    """A correction multiplies the gradient of its token, as a constant."""
    logp, logp_old, advantages, mask = ragged_batch(1)
    logp.requires_grad_()
    objective = value = 0.0
    for row, t in mask.nonzero().tolist():
        # Eq. 7, Eq. 3
        share = 1 / int(mask.sum() if normalizer == "token" else mask[row].sum() * len(mask))
        new, old, advantage = logp[row, t], logp_old[row, t], advantages[row].item()
        objective = objective + share * printed_objective(rule, new, old, advantage)
        ratio = (new - old).exp().item()
        value += share * expected_coefficient(rule, ratio, advantage) * advantage
    expected = gradient_of(-objective, logp)
    how = {"rule": rule_from(SPECS[rule]), "normalizer": normalizer}
    loss = policy_loss(logp, logp_old, advantages, mask, **how)
    assert loss.item() == pytest.approx(-value, rel=1e-9)
    torch.testing.assert_close(gradient_of(loss, logp), expected, rtol=1e-9, atol=0)
    factor = torch.rand_like(mask, dtype=torch.float64)
    given = factor.masked_fill(~mask, math.nan).requires_grad_()
    loss = policy_loss(logp, logp_old, advantages, mask, correction=given, **how)
    found, of_the_factor = torch.autograd.grad(loss, [logp, given], allow_unused=True)
    torch.testing.assert_close(found, expected * factor, rtol=1e-9, atol=0)
    assert of_the_factor is None


def test_advantages_may_differ_from_token_to_token():
    logp, logp_old, advantages, mask = ragged_batch()
    logp.requires_grad_()
    by_row = policy_loss(logp, logp_old, advantages, mask, rule=GPPO)
    spread = advantages[:, None].expand_as(logp).contiguous()
    by_token = policy_loss(logp, logp_old, spread, mask, rule=GPPO)
    assert torch.equal(gradient_of(by_row, logp), gradient_of(by_token, logp))
    spread[0, 4] *= -3
    moved = gradient_of(policy_loss(logp, logp_old, spread, mask, rule=GPPO), logp)
    different = moved != gradient_of(policy_loss(logp, logp_old, advantages, mask, rule=GPPO), logp)
    assert different.nonzero().tolist() == [[0, 4]]


@pytest.mark.parametrize("advantage", [10.0, -10.0])
@pytest.mark.parametrize("rule", RULES)
def test_float32_stays_finite_at_log_ratios_up_to_200(rule, advantage):
    difference = torch.arange(-200.0, 200.5, 0.5)
    off_ties = difference + 0.01
    logp = torch.full_like(off_ties, -0.5)[None].requires_grad_()
    loss = policy_loss(
        logp,
        logp.detach() - off_ties,
        torch.tensor([advantage]),
        torch.ones_like(logp, dtype=torch.bool),
        rule=rule_from(SPECS[rule]),
    )
    factor = -gradient_of(loss, logp)[0] * logp.numel() / advantage
    assert torch.isfinite(loss) and torch.isfinite(factor).all()
    # exp(40) is far above any trained ratio and below the cap of float32.
    for index in (off_ties.abs() < 40).nonzero().flatten().tolist():
        ratio = math.exp(off_ties[index].item())
        expected = expected_coefficient(rule, ratio, advantage)
        assert factor[index].item() == pytest.approx(expected, rel=1e-4, abs=1e-30)
    # At the far ends the rule's corner is still there: zero stays zero, nothing else becomes it.
    for index in (0, -1):
        expected = expected_coefficient(rule, math.exp(off_ties[index].item()), advantage)
        if expected > 1e18:
            assert factor[index] > 1e18
        else:
            assert factor[index].item() == pytest.approx(expected, rel=1e-4, abs=1e-30)


@pytest.mark.parametrize("filling", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("normalizer", ["token", "sequence"])
@pytest.mark.parametrize("rule", ["unclipped", "gppo", "cispo"])
def test_masked_positions_may_hold_anything(rule, normalizer, filling):
    logp, logp_old, advantages, mask = ragged_batch()
    how = {"rule": rule_from(SPECS[rule]), "normalizer": normalizer}
    logp.requires_grad_()
    clean = policy_loss(logp, logp_old, advantages, mask, **how)
    dirty = logp.detach().masked_fill(~mask, filling).requires_grad_()
    dirty_old = logp_old.masked_fill(~mask, -filling)
    spread = advantages[:, None].expand_as(logp).masked_fill(~mask, filling)
    loss = policy_loss(dirty, dirty_old, spread, mask, **how)
    assert loss.item() == clean.item()
    found = gradient_of(loss, dirty)
    assert torch.equal(found, gradient_of(clean, logp))
    assert (found[~mask] == 0).all()


def test_empty_mask_is_zero_with_a_graph():
    logp, logp_old, advantages, mask = ragged_batch()
    logp.requires_grad_()
    for normalizer in ("token", "sequence"):
        loss = policy_loss(
            logp, logp_old, advantages, torch.zeros_like(mask), rule=GPPO, normalizer=normalizer
        )
        assert loss.item() == 0 and (gradient_of(loss, logp) == 0).all()


def test_log_ratio_clamp_takes_the_gradient_beyond_it_and_nothing_else():
    difference = torch.tensor([[-25.0, -20.5, -19.5, -1.0, 0.0, 1.0, 19.5, 20.5, 25.0]])
    logp = torch.full_like(difference, -1.0).double().requires_grad_()
    for advantage in (1.0, -1.0):
        batch = (
            logp,
            logp.detach() - difference,
            torch.tensor([advantage]),
            torch.ones_like(difference, dtype=torch.bool),
        )
        free = gradient_of(policy_loss(*batch, rule=GPPO), logp)
        cut = gradient_of(policy_loss(*batch, rule=GPPO, log_ratio_clamp=20.0), logp)
        within = difference.abs() < 20
        assert (cut[~within] == 0).all() and (free[~within] != 0).any()
        assert torch.equal(cut[within], free[within])


BATCH = ragged_batch()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logp": BATCH[0].long()}, "."),
        ({"logp": BATCH[0].bfloat16()}, "float32 or float64"),
        ({"logp_old": BATCH[1][:, :-1]}, "."),
        ({"correction": torch.ones(6, 19)}, "correction must be float32 or float64"),
        ({"advantages": torch.zeros(6, 2)}, r"advantages must be \[N\] or \[N, T\]"),
        ({"loss_mask": BATCH[3][:, :1]}, "."),
        ({"rule": "gppo"}, "rule must be a klearlib"),
        ({"rule": rule_from(PUBLISHED["gspo"].spec)}, "see klearlib.rl.mismatch.weighted"),
        ({"normalizer": "mean"}, "."),
        ({"denominator": 0.0}, "."),
        ({"denominator": math.inf}, "denominator must be positive and finite"),
    ],
)
def test_bad_arguments_are_refused(change, words):
    names = ("logp", "logp_old", "advantages", "loss_mask")
    with pytest.raises(ValueError, match=words):
        policy_loss(**(dict(zip(names, BATCH, strict=True)) | {"rule": GPPO} | change))


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
