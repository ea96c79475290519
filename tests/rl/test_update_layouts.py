"""However rollouts go through the model, and however little memory there is: the same gradient."""

import math
from dataclasses import replace

import pytest
import torch
from rollout_fakes import contents, row, settings
from update_oracle import RULE, SETTINGS, exact_logprobs, gradient, make_rows, oracle

from klearlib.errors import KlearError
from klearlib.policy.batch_plan import BatchPlan, plan_batches
from klearlib.policy.compute import local_compute
from klearlib.policy.decoder import Decoder, token_line
from klearlib.rl import logprobs
from klearlib.rl.metrics import UpdateSums
from klearlib.rl.mismatch import Mismatch
from klearlib.rl.train import trainer_logprobs, update

LOSS = {"alpha": 0.3, "normalizer": "sequence"}


@pytest.fixture(scope="module")
def policy(new_policy):
    return new_policy(3, dtype=torch.float64)


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


def test_line_holds_no_padding_and_a_prompt_once(policy, groups):
    line = token_line(groups, device="cpu")
    prompts = {tuple(mine.ids[: mine.num_prompt].tolist()) for mine in groups}
    responses = [len(mine.ids) - mine.num_prompt for mine in groups]
    assert len(line.ids) == sum(map(len, prompts)) + sum(responses) - len(groups)
    assert line.rows.shape == (len(groups), max(len(mine.ids) for mine in groups) - 1)
    assert line.rows.flatten()[line.places].tolist() == list(range(len(line.ids)))
    for number, mine in enumerate(groups):
        there = line.rows[number, : len(mine.ids) - 1]
        assert line.ids[there].tolist() == mine.ids[:-1].tolist()
        assert line.positions[there].tolist() == list(range(len(mine.ids) - 1))
    # No rollout sees another: another response changes no state outside of it.
    changed = [
        replace(groups[0], ids=torch.cat([groups[0].ids[:3], torch.ones(6, dtype=torch.long)])),
        *groups[1:],
    ]
    with torch.no_grad():
        decoder = Decoder(policy)
        states = [decoder.line_states(token_line(x, device="cpu")) for x in (groups, changed)]
    assert (states[0] - states[1])[1:6].abs().max() > 0.1
    assert torch.equal(states[0][6:], states[1][6:])


def test_gradient_checkpointing_changes_nothing_and_is_off_while_sampling(new_policy, groups):
    policy = new_policy(3)
    policy.set_attn_implementation("eager")
    expected, _ = gradient(policy, groups, **LOSS)
    plan = plan_batches(policy, local_compute(gradient_checkpointing=True))
    calls = []
    policy.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    found, _ = gradient(policy, groups, plan=plan, **LOSS)
    assert len(calls) == 2, "the layer is computed a second time"
    assert torch.equal(found, expected)
    assert not any(module.training for module in policy.modules())


def test_the_decoder_computes_a_layer_again_and_changes_nothing(policy, groups, monkeypatch):
    expected, _ = gradient(policy, groups, **LOSS)
    calls, compute = [], Decoder._compute
    monkeypatch.setattr(Decoder, "_compute", lambda *args: calls.append(1) or compute(*args))
    found, _ = gradient(policy, groups, recompute=True, **LOSS)
    assert len(calls) == 2 * len(policy.model.layers) and torch.equal(found, expected)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bf16_agrees_within_its_precision(new_policy, groups, attention):
    policy = new_policy(3)
    policy.set_attn_implementation(attention)
    expected, sums = gradient(policy, groups, **LOSS)
    found, low = gradient(policy, groups, precision="bf16", **LOSS)
    assert 0 < apart(found, expected) < 0.1
    assert low.entropy == pytest.approx(sums.entropy, rel=2e-2)
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in policy.parameters())


def bounded(max_tokens: int, error: BaseException):
    """`in_chunks` on a machine whose memory holds no more than that many padded tokens."""
    whole = logprobs.in_chunks

    def in_chunks(reader, part, **how):
        held = len(part) * max(len(each.ids) for each in part)
        if held > max_tokens:
            states = reader.states(part)
            if states.requires_grad:
                states.sum().backward()  # what a pass that fails in its middle leaves behind
            raise error
        yield from whole(reader, part, **how)

    return in_chunks


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=["cuda", "cpu", "python"])
def test_out_of_memory_halves_the_passes_and_goes_on(policy, groups, monkeypatch, error):
    expected, sums = gradient(policy, groups, micro_batch_tokens=28, **LOSS)
    monkeypatch.setattr(logprobs, "in_chunks", bounded(40, error))
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
    monkeypatch.setattr(logprobs, "in_chunks", bounded(10, ERRORS[0]))
    before = [p.detach().clone() for p in policy.parameters()]
    sums = UpdateSums(Mismatch(max_tokens=16))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    with pytest.raises(KlearError, match=r"12 tokens .*CUDA out of memory.*gradient_checkpointing"):
        how = {"rule": RULE, "settings": settings(**SETTINGS), "count_mismatch": True}
        update(policy, optimizer, groups, sums, plan=BatchPlan(100, "fp32"), **how)
    assert all(map(torch.equal, before, policy.parameters()))
    assert sums == UpdateSums(Mismatch(max_tokens=16))


def test_other_errors_are_not_taken_for_a_full_memory(policy, groups, monkeypatch):
    monkeypatch.setattr(logprobs, "in_chunks", bounded(10, RuntimeError("shapes do not fit")))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        gradient(policy, groups)


def test_budget_is_chosen_where_none_is_given(policy):
    given, chosen = (
        plan_batches(policy, local_compute(micro_batch_tokens=tokens)).micro_batch_tokens
        for tokens in (512, 0)
    )
    assert given == 512
    assert chosen >= 256 and math.log2(chosen).is_integer()
