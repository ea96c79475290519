"""The real engine on tiny models, run by `make test-vllm` alone.

The folder is not called vllm: Python would take it for the package where that is not installed.
"""

import sys
from pathlib import Path

import pytest
from small_models import small_model
from tiny_world import TINY_MODEL

# vLLM's attention on a CPU has no smaller heads.
TINY_MODEL["head_dim"] = 32
for folder in ("rl", "run"):  # what their own tests are made of
    sys.path.append(str(Path(__file__).parents[1] / folder))


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.vllm)


@pytest.fixture(scope="session")
def new_policy(tiny_tokenizer):
    """A function that makes a random Qwen3 that vLLM can run, the same one for the same seed.

    Its distributions are far from uniform, and every 23rd word of it ends a response.
    """

    def make(seed: int = 0, **changes):
        fields = {
            "vocab_size": len(tiny_tokenizer),
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "intermediate_size": 64,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": tiny_tokenizer.eos_token_id,
            "pad_token_id": tiny_tokenizer.pad_token_id,
        }
        policy = small_model(seed=seed, **fields | changes)
        policy.generation_config.eos_token_id = list(range(0, policy.config.vocab_size, 23))
        return policy

    return make


@pytest.fixture(scope="session")
def opened(tiny_tokenizer, tmp_path_factory):
    """A function that starts an engine for a trainer's model; all are closed at the end."""
    from klearlib.policy.compute import local_compute
    from klearlib.policy.load import save_policy
    from klearlib.policy.vllm_engine import VLLMEngine

    engines = []

    def start(policy, **compute) -> VLLMEngine:
        path = tmp_path_factory.mktemp("policy")
        save_policy(policy, tiny_tokenizer, path)
        how = local_compute(**{"engine": "vllm", "batch_rows": 64} | compute)
        engine = VLLMEngine(path, compute=how, model=policy, tokenizer=tiny_tokenizer)
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def policy(new_policy):
    """The trainer's model of `engine`. A test that changes its weights puts them back."""
    return new_policy(0)


@pytest.fixture(scope="session")
def engine(opened, policy):
    """One engine for all tests, which leave it as it was or kill it."""
    return opened(policy)


@pytest.fixture
def changed(engine, policy):
    """A function that moves every weight of the trainer's model; they are put back."""
    import torch

    before = {name: p.detach().clone() for name, p in policy.named_parameters()}

    def change(seed: int) -> None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter += 0.1 * torch.randn_like(parameter)

    yield change
    policy.load_state_dict(before, strict=False)
    engine.wake()
