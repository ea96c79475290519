"""The head's own backward pass."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from klearlib.policy.head import head_logprobs, wide_head

TOKENS, WIDTH, WORDS = 11, 5, 17


def made(dtype=torch.float64, *, needs=(True, True)):
    """States, weight, targets, and the weight of each token in the loss."""
    draws = torch.Generator().manual_seed(3)
    shapes = ((TOKENS, WIDTH), (WORDS, WIDTH))
    leaves = [
        torch.randn(shape, generator=draws, dtype=dtype).requires_grad_(need)
        for shape, need in zip(shapes, needs, strict=True)
    ]
    targets = torch.randint(0, WORDS, (TOKENS,), generator=draws)
    return *leaves, targets, torch.randn(TOKENS, generator=draws, dtype=dtype)


def dense(states, weight, targets, temperature=1.0):
    logp = torch.log_softmax(F.linear(states, weight) / temperature, -1)
    return logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def gradients(leaves, logp, scale):
    """Of a loss in which the gradient of a token depends on the token's own logp."""
    needed = [leaf for leaf in leaves if leaf.requires_grad]
    return torch.autograd.grad((scale * torch.exp(0.3 * logp)).sum(), needed)


@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_are_those_of_the_dense_softmax(temperature, with_entropy):
    *leaves, targets, scale = made()
    expected, spread = dense(*leaves, targets, temperature)
    wanted = gradients(leaves, expected, scale)
    how = {"temperature": temperature, "with_entropy": with_entropy}
    logp, entropy = head_logprobs(*leaves, targets, **how)
    torch.testing.assert_close(logp, expected)
    if with_entropy:
        torch.testing.assert_close(entropy, spread)
        assert not entropy.requires_grad
    else:
        assert entropy is None
    for ours, theirs in zip(gradients(leaves, logp, scale), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("needs", [(True, False), (False, True)])
def test_frozen_parts_get_no_gradient(needs):
    *leaves, targets, scale = made(needs=needs)
    (expected,) = gradients(leaves, dense(*leaves, targets)[0], scale)
    (found,) = gradients(leaves, head_logprobs(*leaves, targets)[0], scale)
    torch.testing.assert_close(found, expected)


def test_bf16_multiplies_in_bf16_and_keeps_sums_and_softmax_in_float32():
    *leaves, targets, scale = made(torch.float32)
    low = [leaf.bfloat16().float() for leaf in leaves]  # a number of bfloat16 each
    expected, _ = dense(*low, targets)
    wanted = gradients(leaves, expected, scale)
    logp, entropy = head_logprobs(*leaves, targets, dtype=torch.bfloat16)
    torch.testing.assert_close(logp, expected)
    assert logp.dtype == entropy.dtype == torch.float32
    for ours, theirs in zip(gradients(leaves, logp, scale), wanted, strict=True):
        assert ours.dtype == torch.float32
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-2


def test_at_logits_of_thirty_bf16_is_as_good_as_an_fp32_head_on_its_states(new_policy):
    """Between 16 and 32 the numbers of bfloat16 are 0.125 apart."""
    model = new_policy(1)
    head, draws = model.get_output_embeddings(), torch.Generator().manual_seed(2)
    states = torch.randn(200, head.in_features, generator=draws).bfloat16()
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=draws).bfloat16())
        head.weight *= 32 / F.linear(states.float(), head.weight).abs().max()
        head.weight.copy_(head.weight.bfloat16())
    targets = F.linear(states.float(), head.weight).argmax(-1)
    expected, _ = dense(states.double(), head.weight.detach().double(), targets)

    def apart(logp):
        return float((logp.detach().double() - expected).abs().max())

    logp, _ = head_logprobs(states.float(), head.weight, targets, dtype=torch.bfloat16)
    assert apart(logp) < 2e-3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = torch.log_softmax(head(states).float(), -1)
        with wide_head(model):
            logits = head(states)
    assert apart(rounded.gather(1, targets[:, None])[:, 0]) > 0.02
    assert apart(torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]) < 2e-3


def test_a_wide_head_has_the_gradient_of_autocast_and_goes_when_the_context_ends(new_policy):
    model = new_policy(1)
    ids = torch.arange(1, 9)[None]

    def gradient(context):
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16), context:
            logits = model(input_ids=ids).logits
        torch.log_softmax(logits.float(), -1)[..., 7].sum().backward()
        return [weight.grad for weight in model.parameters()], logits.dtype

    wide, wide_dtype = gradient(wide_head(model))
    plain, plain_dtype = gradient(nullcontext())
    assert (wide_dtype, plain_dtype) == (torch.float32, torch.bfloat16)
    for ours, theirs in zip(wide, plain, strict=True):
        assert float((ours - theirs).norm()) < 0.05 * float(theirs.norm()) + 1e-6
