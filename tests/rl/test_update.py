"""One optimiser update through a real Qwen3: the gradient depends on nothing but the mini-batch."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from printed_equations import SPECS
from rollout_fakes import row, settings
from update_oracle import NUM_PROMPT, PASSES, RULE, SETTINGS, gradient, make_rows, oracle

from klearlib.policy.batch_plan import BatchPlan
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.rule_specs import rule_from
from klearlib.rl.train import update


@pytest.fixture(scope="module")
def rows(policy):
    return make_rows(policy)


def how(**changes) -> dict:
    plan = BatchPlan(**PASSES)
    chosen = settings(**SETTINGS | changes)
    return {"rule": RULE, "settings": chosen, "plan": plan, "count_mismatch": True}


def assert_same(found: torch.Tensor, expected: torch.Tensor, relative: float = 1e-6) -> None:
    assert float((found - expected).norm() / expected.norm()) < relative


def assert_different(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert float((found - expected).norm() / expected.norm()) > 1e-2


@pytest.mark.parametrize("normalizer", ["token", "sequence", "prompt"])
@pytest.mark.parametrize("rule", SPECS)
def test_gradient_is_that_of_the_printed_objective(policy, rows, rule, normalizer):
    # Eq. 13's mean is over the mini-batch; the oracle of a prompt takes it inside a group.
    alpha = 0.0 if normalizer == "prompt" else 0.3
    expected = oracle(policy, rows, rule, alpha=alpha, normalizer=normalizer)
    found, _ = gradient(
        policy,
        rows,
        rule=rule_from(SPECS[rule]),
        normalizer=normalizer,
        alpha=alpha,
        micro_batch_tokens=25,
    )
    assert_same(found, expected, 2e-6)


@pytest.mark.parametrize("normalizer", ["token", "sequence", "prompt"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_any_split_and_order_and_padding_give_the_same_gradient(policy, rows, alpha, normalizer):
    how = {"alpha": alpha, "normalizer": normalizer}
    whole, sums = gradient(policy, rows, **how)
    for tokens in (1, 13, 24, 40):
        split, split_sums = gradient(policy, rows, micro_batch_tokens=tokens, **how)
        assert_same(split, whole)
        assert split_sums.policy_loss == pytest.approx(sums.policy_loss, rel=1e-5)
        assert split_sums.lm_loss == pytest.approx(sums.lm_loss, rel=1e-5)
        assert split_sums.entropy == pytest.approx(sums.entropy, rel=1e-5)
        assert split_sums.corner_tokens == sums.corner_tokens
    shuffled = [rows[i] for i in (5, 2, 7, 0, 3, 6, 1, 4)]
    assert_same(gradient(policy, shuffled, **how)[0], whole)
    assert_same(gradient(policy, shuffled, micro_batch_tokens=30, **how)[0], whole)


@pytest.mark.parametrize("name", ["loss_denominator", "lm_normalizer"])
def test_micro_batch_denominators_average_the_means(policy, rows, name):
    """The released code's way: it depends on the split, and it is exactly the mean of the means."""
    alpha = 1.0 if name == "lm_normalizer" else 0.0
    if alpha:  # with advantages of zero only the LM loss has a gradient
        rows = [row(r.ids, NUM_PROMPT, advantage=0.0, is_correct=r.is_correct) for r in rows]
    ordered = sorted(rows, key=lambda mine: len(mine.ids))
    how = {"alpha": alpha, name: "micro_batch"}
    whole, _ = gradient(policy, rows, alpha=alpha)
    alone, _ = gradient(policy, rows, micro_batch_tokens=1, **how)
    each = [[mine] for mine in ordered]
    expected = oracle(policy, rows, "gppo", alpha=alpha, normalizer="token", groups=each)
    assert_same(alone, expected, 2e-6)
    assert_different(alone, whole)
    assert_same(gradient(policy, rows, **how)[0], whole)


def test_no_positives_leave_the_policy_gradient_alone(policy, rows):
    wrong = [
        row(r.ids, NUM_PROMPT, logp_old=r.logp_old, advantage=r.advantage, is_correct=False)
        for r in rows
    ]
    with_lm, sums = gradient(policy, wrong, alpha=5.0)
    assert_same(with_lm, gradient(policy, wrong, alpha=0.0)[0])
    assert sums.lm_loss == 0 and sums.num_positive_tokens == 0


def test_temperature_divides_the_logits(policy, rows):
    expected = oracle(policy, rows, "gppo", alpha=0.2, normalizer="token", temperature=0.7)
    found, _ = gradient(policy, rows, alpha=0.2, temperature=0.7)
    assert_same(found, expected, 2e-6)


def test_log_ratio_clamp_reaches_the_loss(policy, rows):
    moved = [row(r.ids, NUM_PROMPT, logp_old=r.logp_old - 30, advantage=-1.0) for r in rows]
    free, free_sums = gradient(policy, moved)
    clamped, sums = gradient(policy, moved, log_ratio_clamp=20.0)
    assert free.norm() > 0 and clamped.norm() == 0
    # What is logged as the push of the tokens is what they really got.
    assert free_sums.gradient > 0 and sums.gradient == 0


def test_sums_are_those_of_the_tokens(policy, rows):
    rows = [*rows, replace(rows[0], advantage=0.0)]  # in no corner, of no sign
    _, sums = gradient(policy, rows, micro_batch_tokens=25)
    tokens = []
    for mine in rows:
        ids = mine.ids
        logp = torch.log_softmax(policy(input_ids=ids[None]).logits[0, :-1], -1)[NUM_PROMPT - 1 :]
        entropy = -(logp.exp() * logp).sum(-1)
        new = logp.gather(1, ids[NUM_PROMPT:, None])[:, 0]
        for value, before, spread in zip(new, mine.logp_old.tolist(), entropy, strict=True):
            tokens.append((value.item() - before, mine.advantage, spread.item()))
    ratios = [math.exp(difference) for difference, _, _ in tokens]
    assert sums.num_tokens == len(tokens) == sum(len(r.ids) - NUM_PROMPT for r in rows)
    assert sums.num_positive_tokens == sum(len(r.ids) - NUM_PROMPT for r in rows if r.is_correct)
    assert sums.entropy == pytest.approx(sum(spread for _, _, spread in tokens), rel=1e-5)
    assert sums.ratio_min == pytest.approx(min(ratios), rel=1e-4)
    assert sums.ratio_max == pytest.approx(max(ratios), rel=1e-4)
    moved = [difference for difference, _, _ in tokens]
    assert sums.log_ratio == pytest.approx(sum(moved), abs=1e-3)
    assert sums.k3 == pytest.approx(sum(math.exp(d) - 1 - d for d in moved), abs=1e-3)
    for name, sign in (("positive", 1), ("negative", -1)):
        of_sign = [difference for difference, a, _ in tokens if a * sign > 0]
        assert sums.tokens_by_sign[name] == len(of_sign)
        assert sums.log_ratio_by_sign[name] == pytest.approx(sum(of_sign), abs=1e-3)
    mismatch = [abs(difference) for difference in moved]
    assert sums.mismatch.abs_sum == pytest.approx(sum(mismatch), rel=1e-4)
    assert sums.mismatch.max_abs == pytest.approx(max(mismatch), rel=1e-4)
    assert sums.mismatch.num_tokens == len(tokens)
    corners, push = Counter(), Counter()
    total = 0.0
    for (_, advantage, _), ratio in zip(tokens, ratios, strict=True):
        size = abs(advantage) * ratio
        if advantage and not 0.8 <= ratio <= 1.28:
            side = "low" if ratio < 0.8 else "high"
            corner = f"{side}_{'negative' if advantage < 0 else 'positive'}"
            if corner in ("low_negative", "high_positive"):
                size = abs(advantage) * (0.8 if side == "low" else 1.28)
            corners[corner] += 1
            push[corner] += size
        total += size
    assert len(corners) == 4, "the test needs tokens in every corner"
    assert sums.corner_tokens == corners
    assert sums.corner_gradient == pytest.approx(push, rel=1e-4)
    assert sums.gradient == pytest.approx(total, rel=1e-4)


def test_mismatch_is_measured_only_at_the_weights_that_sampled(policy, rows):
    _, sums = gradient(policy, rows, count_mismatch=False)
    assert sums.mismatch == Mismatch(max_tokens=16)


def test_step_follows_minus_the_clipped_gradient(new_policy, rows):
    policy = new_policy(3, dtype=torch.float64)
    expected, _ = gradient(policy, rows)
    before = torch.cat([p.detach().flatten().clone() for p in policy.parameters()])
    sums, limit = UpdateSums(Mismatch(max_tokens=16)), float(expected.norm()) / 4
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    update(policy, optimizer, rows, sums, **how(max_grad_norm=limit))
    after = torch.cat([p.detach().flatten() for p in policy.parameters()])
    assert_same(after - before, -0.1 * expected / 4, 1e-5)
    # The norm is logged as it was before clipping.
    assert sums.grad_norms == pytest.approx([float(expected.norm())], rel=1e-5)
    assert sums.skipped_updates == 0


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_gradient_that_is_not_finite_skips_the_step_and_is_counted(new_policy, rows, bad):
    policy = new_policy(3, dtype=torch.float64)
    before = [p.detach().clone() for p in policy.parameters()]
    broken = row(rows[0].ids, NUM_PROMPT, advantage=bad)
    sums = UpdateSums(Mismatch(max_tokens=16))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.1)
    update(policy, optimizer, [*rows[1:], broken], sums, **how())
    assert sums.skipped_updates == 1 and sums.grad_norms == []
    for old, new in zip(before, policy.parameters(), strict=True):
        assert torch.equal(old, new)
    # What was not finite is gone at the next update.
    update(policy, optimizer, rows, sums, **how())
    assert sums.skipped_updates == 1 and len(sums.grad_norms) == 1
    assert all(torch.isfinite(p).all() for p in policy.parameters())


@pytest.mark.parametrize("micro_batch_tokens", [10_000, 25])
def test_a_correction_scales_the_policy_loss_and_not_the_lm_loss(policy, rows, micro_batch_tokens):
    weighed = [replace(mine, correction=torch.full_like(mine.logp_old, 1.5)) for mine in rows]
    found, sums = gradient(policy, weighed, alpha=0.3, micro_batch_tokens=micro_batch_tokens)
    of_policy = oracle(policy, rows, "gppo", alpha=0.0, normalizer="token")
    both = oracle(policy, rows, "gppo", alpha=0.3, normalizer="token")
    assert_same(found, both + 0.5 * of_policy, 3e-6)
    _, plain = gradient(policy, rows, alpha=0.3)
    assert sums.gradient == pytest.approx(1.5 * plain.gradient)
    assert sums.corner_tokens == plain.corner_tokens
    assert sums.lm_loss == pytest.approx(plain.lm_loss)


def test_sums_over_responses_and_by_the_budget_are_multiples_of_the_mean(policy, rows):
    count, tokens = len(rows), sum(len(each.logp_old) for each in rows)
    mean, _ = gradient(policy, rows)
    for normalizer, denominator in (("sequence_sum", count), ("budget", count * 16)):
        for size in (10_000, 24):
            found, _ = gradient(policy, rows, normalizer=normalizer, micro_batch_tokens=size)
            torch.testing.assert_close(found, mean * tokens / denominator, rtol=1e-4, atol=1e-7)
