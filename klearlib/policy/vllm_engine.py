"""The vLLM sampling engine: the groups of `klearlib.policy.sampling`, drawn by vLLM 0.32 in a
process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import AutoConfig, GenerationConfig, PretrainedConfig

from klearlib.errors import KlearError, MissingAsset
from klearlib.policy.compute import INSTALL_VLLM, Compute
from klearlib.policy.load import load_tokenizer, missing_model, with_yarn
from klearlib.policy.prompts import num_positions
from klearlib.policy.requests import RequestEngine, draws_from_policy, request_words
from klearlib.policy.vllm_process import MODULE, EngineFailed, EngineProcess, Receiver

_ADVICE = (
    f"install the one for this machine ({INSTALL_VLLM}), raise gpu_memory_share (on a CPU "
    "VLLM_CPU_KVCACHE_SPACE, in GiB), lower batch_rows or the model's positions, or give "
    "engine: transformers"
)


class VLLMEngine(RequestEngine):
    """The engine by vLLM in a process of its own, whose weights are those of the trainer's model.

    A group's prompt is computed once, by the prefix cache, which is emptied at the start of each
    call: the same seed, settings and weights give the same responses on the same machine, whatever
    was sampled before. Weights are handed over in memory, a GPU's by handles on the trainer's own
    tensors. An engine that dies is a KlearError, and running again resumes the stage.

    Args:
        path: the model; only its config is read where a trainer's `model` is given.
        model, tokenizer: the trainer's, or None for those of `path`.
        yarn_factor, yarn_original: see `klearlib.policy.load.with_yarn`; a trainer's model is
            stretched already and its own config counts.

    Raises:
        MissingAsset: vLLM is not installed, or there is no such model.
        KlearError: vLLM cannot start: it is not the one for this machine, has too little memory, or
            cannot run the model.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        compute: Compute,
        model=None,
        tokenizer=None,
        yarn_factor: float | None = None,
        yarn_original: int | None = None,
    ):
        if importlib.util.find_spec("vllm") is None:
            raise MissingAsset(
                f"engine 'vllm' is not installed: {INSTALL_VLLM}; or give 'transformers'"
            )
        described = model
        if model is None:
            described, tokenizer = description(path, yarn_factor, yarn_original)
        setting = {"engine": compute.engine, "precision": compute.precision}
        super().__init__(described, tokenizer, setting)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model, self._num_workers = model, compute.tensor_parallel
        self._can_sleep, self._asleep = device == "cuda", False
        arguments = engine_arguments(
            path, described.config, compute, device, handed_over=model is not None
        )
        try:
            self._process = EngineProcess(arguments, engine_environment(device))
        except EngineFailed as error:
            raise KlearError(f"vLLM cannot start ({error}): {_ADVICE}") from error
        with self._alive():
            self._hand_over()

    def _draw(self, prompts, seeds, settings):
        request = request_words(settings, self._ends) | {
            "detokenize": False,
            "logprobs": 0 if draws_from_policy(settings) else None,
            "flat_logprobs": True,
        }
        with self._alive():
            return self._process.ask("sample", prompts, seeds, request)

    def wake(self) -> None:
        """Be ready to sample, with the weights that the trainer's model has now."""
        with self._alive():
            if self._asleep:
                torch.cuda.empty_cache()
                self._process.ask("wake", ["weights"])
            self._hand_over()
            if self._asleep:  # room for keys and values after the weights are in their place
                self._process.ask("wake", ["kv_cache"])
        self._asleep = False

    def sleep(self) -> None:
        """Give the GPU's memory back; nothing on a CPU."""
        if self._can_sleep and not self._asleep:
            with self._alive():
                # Weights that wake() hands over again need not be kept in the host's memory.
                self._process.ask("sleep", 1 if self._model is None else 2)
            self._asleep = True

    def close(self) -> None:
        """End the engine's process. May be called twice."""
        self._process.close()

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        """Where the engine's process fails, it is ended and the stage fails in one line."""
        try:
            yield
        except EngineFailed as error:
            self.close()
            raise KlearError(
                f"vLLM failed ({error}; what it printed is above): run again to resume"
            ) from error

    def _hand_over(self) -> None:
        if self._model is None:
            return
        # Held until the answer: what is not contiguous is a copy.
        weights = [(name, p.detach().contiguous()) for name, p in self._model.named_parameters()]
        # One for each worker: a handle can be opened once.
        payloads = [bytes(ForkingPickler.dumps(weights)) for _ in range(self._num_workers)]
        self._process.ask("load", payloads)


def description(path: str | Path, yarn_factor: float | None, yarn_original: int | None):
    """(what holds the configs of the model in `path`, its tokenizer)."""
    try:
        config, tokenizer = AutoConfig.from_pretrained(path), load_tokenizer(path)
    except (OSError, ValueError) as error:
        raise missing_model(path, error) from error
    if yarn_factor is not None:
        with_yarn(config, yarn_factor, original=yarn_original)
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:  # a model without that file has the ends of its config
        generation = GenerationConfig.from_model_config(config)
    return SimpleNamespace(config=config, generation_config=generation), tokenizer


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
    positions = num_positions(SimpleNamespace(config=config))
    arguments = {
        "model": str(path),
        "load_format": "dummy" if handed_over else "auto",
        "dtype": {"fp32": "float32", "bf16": "bfloat16"}[compute.precision],
        "max_model_len": positions,
        "max_num_seqs": compute.batch_rows,
        "tensor_parallel_size": compute.tensor_parallel,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": f"{MODULE}.{Receiver.__name__}",
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
    whole = max(positions or 0, compute.batch_rows, 4096)
    prefill = {"enable_chunked_prefill": False, "max_num_batched_tokens": whole}
    return arguments | {"enforce_eager": True} | prefill


def engine_environment(device: str) -> dict[str, str]:
    """Environment variables of the engine's process: quiet, and nothing sent anywhere. On a CPU as
    many threads as here, and 1 GiB for keys and values unless VLLM_CPU_KVCACHE_SPACE says
    otherwise."""
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its process is one of its own already
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    if device == "cuda":
        return environment
    return environment | {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # stages beside each other would share one core
        "TORCHDYNAMO_DISABLE": "1",  # compiling for a CPU takes longer than it saves
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
    }
