"""The vLLM sampling engine: the groups of `klearlib.policy.sampling`, drawn by vLLM 0.32 in a
process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PretrainedConfig

from klearlib.errors import KlearError, MissingAsset, ParameterError
from klearlib.policy.compute import INSTALL_VLLM, Compute
from klearlib.policy.load import load_tokenizer, missing_model, with_yarn
from klearlib.policy.requests import (
    RequestEngine,
    draws_from_policy,
    request_words,
    require_temperature,
)
from klearlib.policy.vllm_process import MODULE, EngineFailed, EngineProcess, Receiver


class VLLMEngine(RequestEngine):
    """The engine by vLLM in a process of its own, whose weights are those of the trainer's model.

    A group's prompt is computed once, by the prefix cache, which is emptied at the start of each
    call: the same seed, settings and weights give the same responses on the same machine, whatever
    was sampled before. Weights are handed over in memory, a GPU's by handles on the trainer's own
    tensors. An engine that dies or hangs is a KlearError, and running again resumes the stage.

    Args:
        path: the model; only its config is read where a trainer's `model` is given.
        model, tokenizer: the trainer's, or None for those of `path`.
        yarn_factor, yarn_original: see `klearlib.policy.load.with_yarn`; a trainer's model is
            stretched already and its own config counts.

    Raises:
        MissingAsset: vLLM is not installed or does not load, or there is no such model.
        ParameterError: more GPUs than there are, or YaRN that the model cannot have.
        KlearError: too little memory, or a model that vLLM cannot run.
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
        device = "cuda" if torch.cuda.is_available() else "cpu"
        check_machine(compute.tensor_parallel, device)
        described = model
        if model is None:
            described, tokenizer = description(path, yarn_factor, yarn_original)
        setting = {"engine": compute.engine, "precision": compute.precision}
        super().__init__(described, tokenizer, setting)
        self._model, self._num_workers = model, compute.tensor_parallel
        self._can_sleep, self._asleep = device == "cuda", False
        arguments = engine_arguments(
            path, described.config, compute, device, handed_over=model is not None
        )
        self._process: EngineProcess | None = None
        try:
            self._process = EngineProcess(arguments, engine_environment(device))
            if model is not None and model.device.type != self._process.device:
                raise MissingAsset(
                    f"the installed vLLM computes on {self._process.device}, the model is on "
                    f"{model.device.type}: {INSTALL_VLLM}"
                )
            self._hand_over()
            # A kernel that this model lacks shows only in a step.
            self._process.ask("sample", [[0]], [[0]], {"max_tokens": 1, "detokenize": False})
        except EngineFailed as error:
            self.close()
            raise start_error(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _draw(self, problems, prompts, seeds, settings):
        require_temperature(settings)
        request = request_words(settings, self._ends) | {
            "detokenize": False,
            "logprobs": 0 if draws_from_policy(settings) else None,
            "flat_logprobs": True,
        }
        assert not self._asleep, "wake() comes before sampling"
        with self._alive() as process:
            drawn = process.ask("sample", prompts, seeds, request)
        each = [problem for problem, group in zip(problems, seeds, strict=True) for _ in group]
        if len(drawn) != len(each):
            raise KlearError(
                f"vLLM gave {len(drawn)} responses to {len(problems)} groups of {len(seeds[0])}"
            )
        for problem, (_, _, reason) in zip(each, drawn, strict=True):
            if reason not in ("stop", "length"):
                raise KlearError(
                    f"vLLM left a response to problem {problem.id!r} unfinished: {reason}"
                )
        return [(token_ids, logp) for token_ids, logp, _ in drawn]

    def wake(self) -> None:
        """Be ready to sample, with the weights that the trainer's model has now."""
        with self._alive() as process:
            if self._asleep:
                torch.cuda.empty_cache()
                process.ask("wake", ["weights"])
            self._hand_over()
            if self._asleep:  # room for keys and values after the weights are in their place
                process.ask("wake", ["kv_cache"])
        self._asleep = False

    def sleep(self) -> None:
        """Give the GPU's memory back; nothing on a CPU."""
        if not self._can_sleep or self._asleep:
            return
        with self._alive() as process:
            # Weights that wake() hands over again need not be kept in the host's memory.
            process.ask("sleep", 1 if self._model is None else 2)
        self._asleep = True

    def close(self) -> None:
        """End the engine's process. May be called twice."""
        if self._process is not None:
            self._process.close()

    @contextlib.contextmanager
    def _alive(self):
        """The engine's process; where that fails, it is ended and the stage fails in one line."""
        try:
            yield self._process
        except EngineFailed as error:
            self.close()
            raise KlearError(f"vLLM failed ({error}): run again to resume") from error

    def _hand_over(self) -> None:
        if self._model is None:
            return
        # Held until the answer: what is not contiguous is a copy.
        weights = [(name, p.detach().contiguous()) for name, p in self._model.named_parameters()]
        # One for each worker: a handle can be opened once.
        payloads = [bytes(ForkingPickler.dumps(weights)) for _ in range(self._num_workers)]
        self._process.ask("load", payloads)


def check_machine(tensor_parallel: int, device: str) -> None:
    """Raises MissingAsset without vLLM, ParameterError for more GPUs than this process sees."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingAsset(
            f"engine 'vllm' is not installed: {INSTALL_VLLM}; or give 'transformers'"
        )
    num_gpus = torch.cuda.device_count()
    if device == "cuda" and tensor_parallel > num_gpus:
        raise ParameterError(
            f"tensor_parallel is {tensor_parallel}, and this process sees {num_gpus} GPUs: "
            "lower it, or name more in CUDA_VISIBLE_DEVICES"
        )


def description(path: str | Path, yarn_factor: float | None, yarn_original: int | None):
    """(a model without weights, which holds the configs, and the tokenizer) of `path`."""
    try:
        config = AutoConfig.from_pretrained(path)
        tokenizer = load_tokenizer(path)
    except (OSError, ValueError) as error:
        raise missing_model(path, error) from error
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
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
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


def start_error(line: str) -> KlearError:
    """The error, with its advice, for the one line with which an engine failed to start."""
    kind, advice = KlearError, "change the setting, or give engine: transformers"
    words = ("ImportError", "ModuleNotFoundError", "undefined symbol", "infer device type")
    if any(word in line for word in words):
        kind, advice = MissingAsset, f"it does not fit this machine's torch or CUDA: {INSTALL_VLLM}"
    elif "max_num_seqs" in line:
        kind, advice = ParameterError, "lower batch_rows"
    elif "KV cache" in line or "memory" in line:
        advice = (
            "raise gpu_memory_share (on a CPU VLLM_CPU_KVCACHE_SPACE, in GiB), lower batch_rows or "
            "the model's positions, or take a larger GPU"
        )
    return kind(f"vLLM cannot start ({line}): {advice}")
