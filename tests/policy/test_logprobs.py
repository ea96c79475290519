"""Token log-probabilities equal the dense log-softmax, in values and gradients, for any chunk."""

import pytest
import torch
from small_models import small_model

from klearlib.policy.logprobs import token_logprobs


@pytest.fixture(scope="module")
def policy(new_policy):
    # In float64 what is left of the difference is the float32 of the results.
    return new_policy(1, dtype=torch.float64)


@pytest.fixture(scope="module")
def ids(policy):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, policy.config.vocab_size, (4, 11), generator=generator)


def dense(policy, ids, temperature: float = 1.0):
    """log pi and entropy by the full softmax over all positions."""
    logits = policy(input_ids=ids).logits[:, :-1] / temperature
    probability = torch.softmax(logits, -1)
    logp = torch.log(probability).gather(-1, ids[:, 1:, None])[..., 0]
    return logp, -(probability * torch.log(probability)).sum(-1)


def weights_gradient(policy, value) -> torch.Tensor:
    policy.zero_grad()
    value.backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters()])


CHUNKS = [1, 3, 7, 40, 1000]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("chunk_size", CHUNKS)
def test_values_and_gradients_are_those_of_the_dense_softmax(
    policy, ids, chunk_size, masked, temperature
):
    mask = torch.ones(4, 10, dtype=torch.bool)
    if masked:
        mask = torch.rand(4, 10, generator=torch.Generator().manual_seed(2)) < 0.4
        mask[2] = False
    weight = torch.linspace(-1, 2, 40, dtype=torch.float64).view(4, 10)
    expected, spread = dense(policy, ids, temperature)
    by_dense = weights_gradient(policy, (expected * weight * mask).sum())
    how = {"chunk_size": chunk_size, "temperature": temperature}
    logp, entropy = token_logprobs(policy, ids, mask=mask if masked else None, **how)
    torch.testing.assert_close(logp[mask], expected[mask].float(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(entropy[mask], spread[mask].float(), rtol=1e-5, atol=1e-5)
    assert (logp[~mask] == 0).all() and (entropy[~mask] == 0).all()
    assert logp.shape == entropy.shape == (4, 10) and not entropy.requires_grad
    assert entropy[mask].max() > entropy[mask].min() + 0.1, "the test needs such distributions"
    found = weights_gradient(policy, (logp * weight).sum())
    assert float((found - by_dense).norm() / by_dense.norm()) < 1e-6


def test_empty_mask_is_zero_with_a_graph(policy, ids):
    mask = torch.zeros(4, 10, dtype=torch.bool)
    logp, _ = token_logprobs(policy, ids, chunk_size=4, mask=mask)
    found = weights_gradient(policy, logp.sum())
    assert (logp == 0).all() and (found == 0).all()


def test_right_padding_changes_nothing(policy, ids):
    short, _ = token_logprobs(policy, ids[:, :6], chunk_size=5)
    padded = torch.cat([ids[:, :6], torch.full((4, 7), 3)], dim=1)
    other = torch.cat([ids[:, :6], torch.full((4, 2), 100)], dim=1)
    for wide in (padded, other):
        found, _ = token_logprobs(policy, wide, chunk_size=5)
        torch.testing.assert_close(found[:, :5], short, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("chunk_size", [3, 1000])
def test_restarting_positions_separate_the_sequences_of_a_row(policy, ids, chunk_size):
    positions = torch.cat([torch.arange(4), torch.arange(7)]).expand(4, 11)
    logp, entropy = token_logprobs(policy, ids, chunk_size=chunk_size, position_ids=positions)
    for start, stop in ((0, 4), (4, 11)):
        alone, alone_entropy = dense(policy, ids[:, start:stop])
        torch.testing.assert_close(logp[:, start : stop - 1], alone.float(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            entropy[:, start : stop - 1], alone_entropy.float(), rtol=1e-5, atol=1e-5
        )
    whole, _ = token_logprobs(policy, ids, chunk_size=chunk_size)
    assert (logp - whole)[:, 4:].abs().max() > 0.1, "the test needs a second part that would see"
    plain = torch.arange(11).expand(4, 11)
    same, _ = token_logprobs(policy, ids, chunk_size=chunk_size, position_ids=plain)
    torch.testing.assert_close(same, whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("chunk_size", [3, 1000])
def test_without_entropy_the_rest_is_the_same_bit_for_bit(policy, ids, chunk_size, monkeypatch):
    mask = torch.arange(40).view(4, 10) % 3 > 0
    how = {"chunk_size": chunk_size, "mask": mask, "temperature": 0.7}
    expected, _ = token_logprobs(policy, ids, **how)
    gradient = weights_gradient(policy, expected.sum())
    # What sums up the entropy of a row.
    monkeypatch.setattr(torch, "bmm", lambda *_: pytest.fail("the entropy was computed"))
    found, entropy = token_logprobs(policy, ids, with_entropy=False, **how)
    assert entropy is None and torch.equal(found, expected)
    assert torch.equal(weights_gradient(policy, found.sum()), gradient)


def test_float32_policy_agrees_within_its_precision(new_policy, ids):
    policy = new_policy(1)
    found, _ = token_logprobs(policy, ids, chunk_size=4)
    torch.testing.assert_close(found, dense(policy, ids)[0], rtol=1e-5, atol=1e-5)
    assert found.dtype == torch.float32


def test_soft_capped_model_is_refused(ids):
    with pytest.raises(ValueError, match="final_logit_softcapping"):
        token_logprobs(small_model("Gemma2", vocab_size=280, head_dim=8), ids, chunk_size=8)


@pytest.mark.parametrize(
    ("shape", "how", "words"),
    [
        ((11,), {}, "input_ids must be"),
        ((4, 1), {}, "input_ids must be"),
        ((4, 11), {"position_ids": torch.arange(10)[None]}, "position_ids must be"),
        ((4, 11), {"chunk_size": 0}, "chunk_size .* must be"),
        ((4, 11), {"temperature": 0.0}, "temperature must be"),
        ((4, 11), {"temperature": float("nan")}, "temperature must be"),
    ],
)
def test_bad_arguments_are_refused(policy, shape, how, words):
    with pytest.raises(ValueError, match=words):
        token_logprobs(policy, torch.zeros(shape, dtype=torch.long), **{"chunk_size": 4} | how)
