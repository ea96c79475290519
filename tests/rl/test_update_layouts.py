"""However rollouts go through the model, and however little memory there is: the same gradient."""

from dataclasses import replace

import pytest
import torch
from full_memory import too_large_for
from rollout_fakes import contents, row, settings
from update_oracle import RULE, SETTINGS, exact_logprobs, gradient, make_rows, oracle

from klearlib.errors import KlearError
from klearlib.policy.batch_plan import BatchPlan
from klearlib.rl import logprobs
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.train import trainer_logprobs, update

LOSS = {"alpha": 0.3, "normalizer": "sequence"}


@pytest.fixture(scope="module")
def by_rows(new_policy):
    """The same model, that goes through transformers."""
    model = new_policy(3, dtype=torch.float64)
    model.set_attn_implementation("eager")
    return model


@pytest.fixture(scope="module")
def groups(policy):
    """Three groups: prompts of 3, 5 and 1 tokens, the second beginning as the first; responses from
    1 to 9 tokens."""
    draws = torch.Generator().manual_seed(7)
    first = (11, 12, 13)
    rows = []
    for prompt, lengths in ((first, (6, 1, 9)), ((*first, 4, 5), (2, 7)), ((9,), (3, 3, 8))):
        for length in lengths:
            response = torch.randint(0, 280, (length,), generator=draws).tolist()
            ids = (*prompt, *response)
            logp = exact_logprobs(policy, torch.tensor(ids))[len(prompt) - 1 :]
            logp_old = logp + 0.4 * torch.randn(length, generator=draws)
            rows.append(
                row(
                    ids,
                    len(prompt),
                    logp_old=logp_old,
                    advantage=(-1.0) ** len(rows) * (0.5 + len(rows) / 4),
                    is_correct=len(rows) % 3 == 0,
                )
            )
    return rows


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("budget", [1, 26, 40, 10_000])
def test_line_and_padded_rows_have_the_same_gradient_and_sums(policy, by_rows, groups, budget):
    expected, sums = gradient(by_rows, groups, **LOSS)
    for model in (policy, by_rows):
        found, others = gradient(model, groups, micro_batch_tokens=budget, **LOSS)
        assert apart(found, expected) < 1e-6
        assert_same_sums(others, sums)


def assert_same_sums(others: UpdateSums, sums: UpdateSums) -> None:
    for name in ("policy_loss", "lm_loss", "entropy", "gradient", "ratio_min", "ratio_max"):
        assert getattr(others, name) == pytest.approx(getattr(sums, name), rel=1e-5), name
    assert others.corner_tokens == sums.corner_tokens
    assert others.mismatch.quarter_tokens == sums.mismatch.quarter_tokens
    assert others.mismatch.quarter_abs == pytest.approx(sums.mismatch.quarter_abs, rel=1e-4)


def test_a_shared_prompt_has_the_gradient_of_the_printed_objective(policy):
    rows = [mine for seed in range(2) for mine in make_rows(policy, seed=seed)]
    shared = [
        replace(mine, ids=torch.cat([torch.tensor([5, 6, 7]), mine.ids[3:]])) for mine in rows
    ]
    expected = oracle(policy, shared, "gppo", alpha=0.3, normalizer="sequence")
    assert apart(gradient(policy, shared, **LOSS)[0], expected) < 2e-6


def test_corrections_and_old_logprobs_keep_to_their_tokens(policy, by_rows, groups):
    factors = [
        replace(mine, correction=0.1 + (i + torch.arange(len(mine.logp_old))) % 5)
        for i, mine in enumerate(groups)
    ]
    expected, _ = gradient(policy, factors, **LOSS)
    assert apart(gradient(policy, groups, **LOSS)[0], expected) > 0.1
    for model in (policy, by_rows):
        assert apart(gradient(model, factors, **LOSS)[0], expected) < 2e-6
        plan = BatchPlan(30, "fp32")
        renewed = trainer_logprobs(model, factors, temperature=1.0, plan=plan)
        for old, new in zip(factors, renewed, strict=True):
            assert contents(replace(new, logp_old=old.logp_old)) == contents(old)
            exact = exact_logprobs(policy, old.ids)[old.num_prompt - 1 :]
            assert new.logp_old.tolist() == pytest.approx(exact.tolist(), rel=1e-6, abs=2e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bf16_agrees_within_its_precision(new_policy, groups, attention):
    policy = new_policy(3)
    policy.set_attn_implementation(attention)
    expected, sums = gradient(policy, groups, **LOSS)
    found, low = gradient(policy, groups, precision="bf16", **LOSS)
    assert 0 < apart(found, expected) < 0.1
    assert low.entropy == pytest.approx(sums.entropy, rel=2e-2)
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in policy.parameters())


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_out_of_memory_halves_the_passes_and_goes_on(policy, groups, monkeypatch):
    expected, sums = gradient(policy, groups, micro_batch_tokens=28, **LOSS)
    monkeypatch.setattr(logprobs, "in_chunks", too_large_for(40, FULL))
    plan = BatchPlan(112, "fp32")
    found, others = gradient(policy, groups, plan=plan, **LOSS)
    assert torch.equal(found, expected)
    assert others == sums
    assert (plan.micro_batch_tokens, plan.num_halvings) == (28, 2)
    # The rest of the run stays with it.
    again, _ = gradient(policy, groups, plan=plan, **LOSS)
    assert torch.equal(again, expected) and plan.num_halvings == 2
    plan = BatchPlan(112, "fp32")
    trainer_logprobs(policy, groups, temperature=1.0, plan=plan)
    assert plan.num_halvings == 2


def test_rollout_that_fits_no_memory_is_one_line(policy, groups, monkeypatch):
    monkeypatch.setattr(logprobs, "in_chunks", too_large_for(10, FULL))
    before = [p.detach().clone() for p in policy.parameters()]
    sums = UpdateSums(Mismatch(max_tokens=16))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    with pytest.raises(KlearError, match=r"12 tokens .*CUDA out of memory.*gradient_checkpointing"):
        how = {"rule": RULE, "settings": settings(**SETTINGS), "count_mismatch": True}
        update(policy, optimizer, groups, sums, plan=BatchPlan(100, "fp32"), **how)
    assert all(map(torch.equal, before, policy.parameters()))
    assert sums == UpdateSums(Mismatch(max_tokens=16))
