"""What a few tokens show of a model: whether its head and its attention are those we compute."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertGenerationConfig,
    BertGenerationDecoder,
    BertLMHeadModel,
    FalconH1Config,
    FalconH1ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Llama4ForCausalLM,
    Llama4TextConfig,
    PhiConfig,
    PhiForCausalLM,
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
)

from klearlib.errors import KlearError
from klearlib.policy import probes
from klearlib.policy.compute import local_compute
from klearlib.policy.passes import plan_passes
from klearlib.policy.probes import reads_lines, require_plain_head

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
RECURRENT = {"attention_window_size": 16, "lru_width": 32, "block_types": ["recurrent"]}
EXPERTS = {"num_local_experts": 2, "intermediate_size_mlp": 48, "head_dim": 8}
MODELS = {
    "scale": (FalconH1ForCausalLM, FalconH1Config, MAMBA | {"lm_head_multiplier": 0.2}),
    "cap": (RecurrentGemmaForCausalLM, RecurrentGemmaConfig, RECURRENT | {"logits_soft_cap": 3.0}),
    "transform": (BertLMHeadModel, BertConfig, {"is_decoder": True}),
    "look ahead": (BertGenerationDecoder, BertGenerationConfig, {"is_decoder": False}),
    "no states": (Llama4ForCausalLM, Llama4TextConfig, EXPERTS),
    "known name": (Gemma2ForCausalLM, Gemma2Config, {"head_dim": 8}),
}


@pytest.mark.parametrize("kind", MODELS)
def test_models_whose_logits_are_no_linear_head_are_refused_by_name(kind):
    model_class, config_class, how = MODELS[kind]
    torch.manual_seed(0)
    model = model_class(config_class(**SMALL | how)).train()
    with pytest.raises(KlearError, match=f"^{model_class.__name__} .*not supported$"):
        plan_passes(model, local_compute())
    assert model.training


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_linear_heads_are_taken(new_policy, precision):
    """Tied and not, with and without a bias, of few words and of large logits."""
    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=5, n_embd=8, n_layer=1, n_head=1))
    phi = PhiForCausalLM(PhiConfig(**SMALL | {"initializer_range": 1.0}))
    torch.nn.init.normal_(phi.lm_head.bias)
    for model in (gpt2, phi, new_policy(3), new_policy(3, dtype=torch.float64)):
        require_plain_head(model, precision=precision)


def test_bf16_sees_a_scale_too(new_policy):
    policy = new_policy(3)
    policy.lm_head.register_forward_hook(lambda _module, _inputs, logits: 1.5 * logits)
    with pytest.raises(KlearError, match="Qwen3ForCausalLM is no causal model"):
        require_plain_head(policy, precision="bf16")


@pytest.mark.parametrize(
    "window",
    [
        {"attention_chunk_size": 8},
        {"sliding_window": 4096, "use_sliding_window": True},
        {"layer_types": ["full_attention", "chunked_attention"]},
    ],
)
def test_windows_longer_than_the_probe_are_seen_in_the_config(new_policy, monkeypatch, window):
    policy = new_policy(3)
    assert reads_lines(policy)
    for name, value in window.items():
        monkeypatch.setattr(policy.config, name, value, raising=False)
    monkeypatch.setattr(probes, "line_states", lambda *_: pytest.fail("the config says it"))
    assert not reads_lines(policy)


def test_a_line_agrees_to_the_rounding_of_float32(new_policy, monkeypatch):
    policy, whole = new_policy(3), probes.line_states
    monkeypatch.setattr(probes, "line_states", lambda *of: whole(*of) * (1 + 5e-5))
    assert not reads_lines(policy)
