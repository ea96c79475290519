"""The head's own backward pass: equal to autograd's, computed once where the loss is foreseen."""

import pytest
import torch
import torch.nn.functional as F

from klearlib.policy import head as head_module
from klearlib.policy.head import head_logprobs
from klearlib.policy.logprobs import token_logprobs
from klearlib.policy.memory import head_chunk_tokens

TOKENS, WIDTH, WORDS = 11, 5, 17
HOW = {"temperature": 1.0, "with_entropy": True}


def made(dtype=torch.float64, *, needs=(True, True, True)):
    """States, weight, bias, targets, and the weight of each token in the loss."""
    draws = torch.Generator().manual_seed(3)
    shapes = ((TOKENS, WIDTH), (WORDS, WIDTH), (WORDS,))
    leaves = [
        torch.randn(shape, generator=draws, dtype=dtype).requires_grad_(need)
        for shape, need in zip(shapes, needs, strict=True)
    ]
    targets = torch.randint(0, WORDS, (TOKENS,), generator=draws)
    return *leaves, targets, torch.randn(TOKENS, generator=draws, dtype=dtype)


def dense(states, weight, bias, targets, temperature=1.0):
    logp = torch.log_softmax(F.linear(states, weight, bias) / temperature, -1)
    return logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def curved(scale):
    """A loss whose gradient of a token depends on the token's own logp."""
    return lambda logp: (scale * torch.exp(0.3 * logp)).sum()


def gradients(leaves, loss):
    needed = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    return torch.autograd.grad(loss, needed)


class Counter:
    """Counts how often the logits of a chunk are computed."""

    def __init__(self, monkeypatch):
        self.chunks, original = 0, head_module._Inputs.logits

        def logits(inputs, chunk):
            self.chunks += 1
            found = original(inputs, chunk)
            assert len(found) <= inputs.how.chunk_size
            return found

        monkeypatch.setattr(head_module._Inputs, "logits", logits)


@pytest.mark.parametrize("foreseen", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk_size", [1, 4, 11, 100])
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_are_those_of_the_dense_softmax(
    monkeypatch, foreseen, temperature, chunk_size, has_bias
):
    states, weight, bias, targets, scale = made()
    bias = bias if has_bias else None
    loss = curved(scale)
    expected, spread = dense(states, weight, bias, targets, temperature)
    wanted = gradients((states, weight, bias), loss(expected))
    counter = Counter(monkeypatch)
    how = HOW | {"temperature": temperature, "loss": loss if foreseen else None}
    logp, entropy = head_logprobs(states, weight, bias, targets, chunk_size=chunk_size, **how)
    torch.testing.assert_close(logp, expected)
    torch.testing.assert_close(entropy, spread)
    assert not entropy.requires_grad
    found = gradients((states, weight, bias), loss(logp))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
    num_chunks = -(-TOKENS // chunk_size)
    assert counter.chunks == (num_chunks if foreseen or num_chunks == 1 else 2 * num_chunks)


@pytest.mark.parametrize("chunk_size", [4, 100])
def test_gradcheck(chunk_size):
    states, weight, bias, targets, _ = made()

    def logp(states, weight, bias):
        how = HOW | {"temperature": 0.8, "with_entropy": False}
        return head_logprobs(states, weight, bias, targets, chunk_size=chunk_size, **how)[0]

    assert torch.autograd.gradcheck(logp, (states, weight, bias))


def test_gradient_that_was_not_foreseen_is_computed_again(monkeypatch):
    """Another loss, the same twice, and one token's gradient that differs in the last bit."""
    states, weight, bias, targets, scale = made()
    leaves = (states, weight, bias)
    counter = Counter(monkeypatch)
    other = torch.zeros(TOKENS, dtype=torch.float64)
    other[7] = 1.0
    for real in (other, scale * (1 + 1e-15), scale):
        expected = gradients(leaves, (dense(*leaves, targets)[0] * real).sum())
        logp, _ = head_logprobs(
            *leaves, targets, chunk_size=4, loss=lambda logp: (logp * scale).sum(), **HOW
        )
        assert counter.chunks == 3
        for times in (1, 2):  # what was foreseen is given away once
            loss = (logp * real).sum()
            found = torch.autograd.grad(loss, leaves, retain_graph=True)
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs)
            again = times if real is not scale else times - 1
            assert counter.chunks == 3 + 3 * again
        counter.chunks = 0


@pytest.mark.parametrize("foreseen", [True, False])
@pytest.mark.parametrize(
    "needs", [(True, False, False), (False, True, False), (False, False, True)]
)
def test_frozen_parts_get_no_gradient(needs, foreseen):
    states, weight, bias, targets, scale = made(needs=needs)
    loss = curved(scale)
    (expected,) = gradients((states, weight, bias), loss(dense(states, weight, bias, targets)[0]))
    logp, _ = head_logprobs(
        states, weight, bias, targets, chunk_size=4, loss=loss if foreseen else None, **HOW
    )
    (found,) = gradients((states, weight, bias), loss(logp))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("foreseen", [True, False])
def test_autocast_multiplies_in_bf16_and_takes_the_softmax_in_float32(foreseen):
    states, weight, bias, targets, scale = made(torch.float32)
    loss = curved(scale)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = F.linear(states, weight, bias)
        assert logits.dtype == torch.bfloat16
    expected = torch.log_softmax(logits.float(), -1).gather(1, targets[:, None])[:, 0]
    wanted = gradients((states, weight, bias), loss(expected))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, entropy = head_logprobs(
            states, weight, bias, targets, chunk_size=4, loss=loss if foreseen else None, **HOW
        )
    torch.testing.assert_close(logp, expected)
    assert logp.dtype == entropy.dtype == torch.float32
    for ours, theirs in zip(gradients((states, weight, bias), loss(logp)), wanted, strict=True):
        assert ours.dtype == torch.float32
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-2


@pytest.mark.parametrize("tied", [True, False])
def test_whole_model_has_the_gradient_of_the_dense_softmax(new_policy, monkeypatch, tied):
    policy = new_policy(1, dtype=torch.float64)
    if not tied:
        policy.lm_head.weight = torch.nn.Parameter(policy.lm_head.weight.detach().flip(0).clone())
    ids = torch.randint(0, 280, (4, 11), generator=torch.Generator().manual_seed(5))
    mask = torch.arange(40).view(4, 10) % 3 > 0
    logp = torch.log_softmax(policy(input_ids=ids).logits[:, :-1] / 0.7, -1)
    logp = logp.gather(-1, ids[:, 1:, None])[..., 0].float()

    def loss(logp):
        return (torch.where(mask, logp, 0.0).exp() * torch.arange(40).view(4, 10)).sum()

    weights = list(policy.parameters())
    expected = torch.autograd.grad(loss(logp), weights)
    counter = Counter(monkeypatch)
    how = {"chunk_size": 7, "mask": mask, "temperature": 0.7, "loss": loss}
    found, _ = token_logprobs(policy, ids, **how)
    for ours, theirs in zip(torch.autograd.grad(loss(found), weights), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert counter.chunks == 4, "26 tokens by 7, and none twice"


def test_chunk_is_as_large_as_its_logits_allow():
    for words in (64, 151_936, 2**31):
        for device in ("cpu", "cuda"):
            size = head_chunk_tokens(words, device=device)
            assert size >= 1 and (size == 1 or 4 * size * words <= 2**30)
    assert head_chunk_tokens(151_936, device="cuda") > head_chunk_tokens(151_936, device="cpu")
