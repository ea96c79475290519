"""The decoder computes what transformers does, for every shape of its three families."""

from types import SimpleNamespace

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from klearlib.policy.decoder import Decoder, Decoding, can_decode, rms_norm
from klearlib.policy.layout import token_line

FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
SHAPES = {
    "llama": ("llama", {"head_dim": 16}),
    "llama, biases, tied": (
        "llama",
        {"head_dim": 16, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "qwen2, no groups": ("qwen2", {"num_key_value_heads": 6}),
    "qwen2, tied, one key head": (
        "qwen2",
        {"num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3, biases, yarn": (
        "qwen3",
        {"head_dim": 16, "attention_bias": True, "rope_parameters": YARN},
    ),
}


def new_model(family: str, **changes):
    torch.manual_seed(0)
    config, kind = FAMILIES[family]
    small = {
        "vocab_size": 97,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "intermediate_size": 80,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
    }
    model = kind(config(**small | changes)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "bias" in name:
                weight.uniform_(0.5, 1.5)
    return model


@pytest.fixture(scope="module", params=SHAPES)
def model(request):
    family, changes = SHAPES[request.param]
    return new_model(family, **changes)


@pytest.fixture(scope="module")
def rollouts():
    """Two responses to each of three prompts of 5, 8 and 11 tokens."""
    draws, found = torch.Generator().manual_seed(1), []
    for length in (5, 8, 11):
        prompt = torch.randint(0, 97, (length,), generator=draws).tolist()
        for more in (7, 11):
            response = torch.randint(0, 97, (more,), generator=draws).tolist()
            found.append(SimpleNamespace(ids=prompt + response, num_prompt=length))
    return found


def expected_of(model, rollouts) -> torch.Tensor:
    """log softmax [K, V] before each response token, one rollout at a time."""
    return torch.cat(
        [
            torch.log_softmax(model(input_ids=torch.tensor([x.ids])).logits[0], -1)[
                x.num_prompt - 1 : -1
            ]
            for x in rollouts
        ]
    )


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((found - expected).norm() / expected.norm()).detach())


@pytest.mark.parametrize("recompute", [False, True])
def test_a_line_has_the_states_and_the_gradients_of_transformers(model, rollouts, recompute):
    assert can_decode(model)
    decoder = Decoder(model, recompute=recompute)
    states = decoder.line_states(token_line(rollouts, device="cpu"))
    found, expected = torch.log_softmax(decoder.logits(states), -1), expected_of(model, rollouts)
    assert apart(found, expected) < 1e-6
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    gradients = []
    for values in (found, expected):
        model.zero_grad()
        (values * weights).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert max(map(apart, *gradients)) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
def test_tokens_one_by_one_have_the_probabilities_of_the_whole(model, rollouts, padded):
    """Through a cache that grows, after rows were repeated and some have left."""
    chosen = rollouts if padded else rollouts[-2:]
    prompts = [x.ids[: x.num_prompt] for x in chosen[::2]]
    width = max(map(len, prompts))
    ids, mask = (torch.zeros(len(prompts), width, dtype=torch.long) for _ in range(2))
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    loop = Decoding(Decoder(model), ids, mask, width + 7)
    loop.repeat(2)
    for step in range(7):
        if step == 4:
            loop.keep(torch.tensor([1]))
            chosen = chosen[1:2]
        for found, x in zip(torch.log_softmax(loop.logits, -1), chosen, strict=True):
            so_far = torch.tensor([x.ids[: x.num_prompt + step]])
            expected = torch.log_softmax(model(input_ids=so_far).logits[0, -1], -1)
            assert apart(found, expected) < 1e-5
        loop.step(torch.tensor([x.ids[x.num_prompt + step] for x in chosen]))


def test_bf16_agrees_with_autocast_within_its_precision(model, rollouts):
    decoder = Decoder(model, precision="bf16")
    states = decoder.line_states(token_line(rollouts, device="cpu"))
    found = torch.log_softmax(decoder.logits(states).float(), -1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = expected_of(model, rollouts)
    whole = expected_of(model, rollouts)
    assert apart(found, whole) < 1.5 * apart(autocast.float(), whole)
    assert states.dtype == torch.float32


def test_a_token_that_is_padding_elsewhere_has_the_gradient_of_transformers(rollouts):
    """Its embedding has none, as in torch."""
    pad = SimpleNamespace(ids=[7, 3, 7, 9], num_prompt=2)
    model = new_model("llama", pad_token_id=7)
    states, gradients = Decoder(model).line_states(token_line([pad], device="cpu")), []
    found = torch.log_softmax(states @ model.lm_head.weight.T, -1)
    for values in (found, expected_of(model, [pad])):
        model.zero_grad()
        values[:, 5].sum().backward()
        gradients.append(model.model.embed_tokens.weight.grad.clone())
    assert not gradients[1][7].any() and apart(*gradients) < 1e-5


class Adapter(torch.nn.Linear):
    """What a library of adapters puts in place of a linear map."""


def adapted(model):
    attention = model.model.layers[1].self_attn
    attention.q_proj = Adapter(48, 96)
    return model


def hooked(model):
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)
    return model


def offloaded(model):
    model.model.norm.forward = model.model.norm.forward
    return model


def parametrised(model):
    torch.nn.utils.parametrizations.weight_norm(model.lm_head)
    return model


def other_attention(model):
    model.set_attn_implementation("eager")
    return model


def quantised(model):
    weight = model.lm_head.weight.detach().to(torch.int8)
    model.lm_head.weight = torch.nn.Parameter(weight, requires_grad=False)
    return model


ROPE = {"rope_theta": 1e4, "factor": 2.0}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
SLIDING = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
UNUSUAL = {
    "another family": lambda: new_model("mistral"),
    "window": lambda: new_model("qwen2", **SLIDING),
    "activation": lambda: new_model("llama", hidden_act="gelu"),
    "dropout": lambda: new_model("llama", attention_dropout=0.1),
    "dynamic": lambda: new_model("llama", rope_parameters=ROPE | {"rope_type": "dynamic"}),
    "linear": lambda: new_model("llama", rope_parameters=ROPE | {"rope_type": "linear"}),
    "llama3": lambda: new_model("llama", rope_parameters=ROPE | LLAMA3 | {"rope_type": "llama3"}),
    "bf16": lambda: new_model("qwen3").bfloat16(),
    "two types": lambda: (
        new_model("qwen3")
        .requires_grad_(False)
        .apply(lambda module: module.half() if isinstance(module, torch.nn.Embedding) else module)
    ),
} | {
    change.__name__: lambda change=change: change(new_model("qwen3"))
    for change in (adapted, hooked, offloaded, parametrised, other_attention, quantised)
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_what_it_does_not_compute_is_left_to_transformers(unusual):
    assert not can_decode(UNUSUAL[unusual]())


@pytest.mark.parametrize("shape", [(16,), (4, 8)])
def test_norm_by_its_formula(shape):
    draws = torch.Generator().manual_seed(0)
    states, weight = (
        torch.randn(x, dtype=torch.float64, generator=draws).requires_grad_()
        for x in ((5, *shape), shape)
    )
    plain = states / (states.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    assert torch.allclose(rms_norm(states, weight, 1e-6), plain, rtol=1e-12)
    with torch.no_grad():
        assert torch.allclose(rms_norm(states, weight, 1e-6), plain, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda s, w: rms_norm(s, w, 1e-6), (states, weight))
