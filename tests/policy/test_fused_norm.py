"""RMSNorm as one function gives what the models' own modules give, forward and backward."""

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

from klearlib.policy.fused_norm import fused_norms, rms_norm


def plain(states, weight, eps):
    return states / (states.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def test_gradients_by_finite_differences():
    torch.manual_seed(0)
    states = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: rms_norm(x, w, 0.1), (states, weight))
    assert torch.allclose(rms_norm(states, weight, 0.1), plain(states, weight, 0.1), rtol=1e-12)
    with torch.no_grad():
        assert torch.allclose(rms_norm(states, weight, 0.1), plain(states, weight, 0.1))


def gradients(model, ids) -> list[torch.Tensor]:
    model.zero_grad()
    model(input_ids=ids).logits.square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def random_weights(model):
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


SIZES = {
    "vocab_size": 17,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "head_dim": 8,
}


@pytest.mark.parametrize(
    ("kind", "config"),
    [(LlamaForCausalLM, LlamaConfig), (Gemma3ForCausalLM, Gemma3TextConfig)],
)
def test_a_model_computes_the_same_in_the_context_and_is_left_as_it_was(kind, config):
    model = random_weights(kind(config(**SIZES)).eval())
    ids = torch.randint(0, 17, (2, 6), generator=torch.Generator().manual_seed(0))
    expected = gradients(model, ids)
    with fused_norms(model):
        found = gradients(model, ids)
        patched = [m for m in model.modules() if "forward" in m.__dict__]
    # Gemma scales by 1 + weight, so its norms stay as they are.
    assert bool(patched) == (kind is LlamaForCausalLM)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-7)
    assert not [m for m in model.modules() if "forward" in m.__dict__]


def test_qwen3_norms_of_heads_are_taken_too_and_bf16_states_are_not(tiny_policy, monkeypatch):
    import klearlib.policy.fused_norm as module

    ids = torch.randint(5, 60, (2, 6), generator=torch.Generator().manual_seed(0))
    calls = []
    own = module.rms_norm

    def counted(states, weight, eps):
        calls.append((states.dtype, len(weight)))
        return own(states, weight, eps)

    monkeypatch.setattr(module, "rms_norm", counted)
    with fused_norms(tiny_policy):
        tiny_policy(input_ids=ids)
        assert len(calls) == 4 * tiny_policy.config.num_hidden_layers + 1
        calls.clear()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tiny_policy(input_ids=ids)
    assert calls and {dtype for dtype, _ in calls} == {torch.float32}


def test_an_error_inside_leaves_the_model_as_it_was(tiny_policy):
    with pytest.raises(ZeroDivisionError), fused_norms(tiny_policy):
        raise ZeroDivisionError
    assert not [m for m in tiny_policy.modules() if "forward" in m.__dict__]
