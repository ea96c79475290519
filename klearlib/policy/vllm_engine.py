"""The vLLM sampling engine: the groups of `klearlib.policy.sampling`, drawn by vLLM 0.32.

vLLM has a process of its own, ``python -m klearlib.policy.vllm_engine DESCRIPTOR PARENT``: its
client blocks for ever when its core is killed, and its threads stay out of a process that forks.

The socket DESCRIPTOR carries pickled tuples. The first holds multiprocessing's key, without which
no shared tensor could be opened, and the arguments of `vllm.LLM`; each of the others a name in
`_ANSWERS` and its arguments. Each is answered by ``("done", result)``, or by ``("failed", line)``
and the end of the process, which comes with that of the socket or of PARENT too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from array import array
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.multiprocessing  # teaches multiprocessing to share tensors
from transformers import AutoConfig, GenerationConfig, PretrainedConfig

from klearlib.errors import KlearError, MissingAsset
from klearlib.hub import model_folder
from klearlib.policy.compute import INSTALL_VLLM, Compute
from klearlib.policy.load import load_tokenizer, with_yarn
from klearlib.policy.prompts import num_positions
from klearlib.policy.requests import RequestEngine, draws_from_policy, request_words
from klearlib.run.stops import die_with

MODULE = "klearlib.policy.vllm_engine"  # this one, whose name in the engine's process is __main__
CLOSE_S = 20.0
LINE_CHARS = 300  # of an error; some of vLLM's name every model that it knows
_ADVICE = (
    f"install the build for this machine ({INSTALL_VLLM}), raise gpu_memory_share (on a CPU "
    "VLLM_CPU_KVCACHE_SPACE, in GiB), lower batch_rows or the model's positions, or set "
    "engine: transformers"
)


class VLLMEngine(RequestEngine):
    """The engine by vLLM in a process of its own, whose weights are those of the trainer's model.

    A group's prompt is computed once, by the prefix cache, which is emptied at the start of each
    call: the same seed, settings and weights give the same responses on the same machine, whatever
    was sampled before; on a GPU, where one seed is for a whole call, nearly so. Weights are handed
    over in memory, a GPU's by handles on the trainer's own tensors. An engine that dies is a
    KlearError, and running again resumes the stage. It ends with the thread that started it, and
    prints nothing but errors, to stderr.

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
                f"engine 'vllm' is not installed: {INSTALL_VLLM}; or use 'transformers'"
            )
        described = model
        if model is None:
            described, tokenizer = description(path, yarn_factor, yarn_original)
        setting = {"engine": compute.engine, "precision": compute.precision}
        super().__init__(described, tokenizer, setting)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model, self._num_workers = model, compute.tensor_parallel
        self._can_sleep = self._seeds_calls = device == "cuda"
        self._asleep = False
        arguments = engine_arguments(
            path, described.config, compute, device, handed_over=model is not None
        )
        self._process, self._connection = start_process(engine_environment(device))
        key = bytes(multiprocessing.current_process().authkey)
        self._ask(key, arguments, failed=f"cannot start ({{}}): {_ADVICE}")
        self._hand_over()

    def _draw(self, prompts, seeds, settings):
        request = request_words(settings, self._ends) | {
            "detokenize": False,
            "logprobs": 0 if draws_from_policy(settings) else None,
            "flat_logprobs": True,
        }
        seed = None
        if self._seeds_calls:  # a GPU's requests with seeds would be drawn one by one
            seed, seeds = settings.seed, [[None] * len(group) for group in seeds]
        return self._ask("sample", prompts, seeds, request, seed)

    def wake(self) -> None:
        """Be ready to sample, with the weights that the trainer's model has now."""
        if self._asleep:
            torch.cuda.empty_cache()
            self._ask("wake", ["weights"])
        self._hand_over()
        if self._asleep:  # room for keys and values after the weights are in their place
            self._ask("wake", ["kv_cache"])
        self._asleep = False

    def sleep(self) -> None:
        """Give the GPU's memory back; nothing on a CPU."""
        if self._can_sleep and not self._asleep:
            # Weights that wake() hands over again need not be kept in the host's memory.
            self._ask("sleep", 1 if self._model is None else 2)
            self._asleep = True

    def close(self) -> None:
        """End the engine's process; one that does not end is killed. May be called twice."""
        with contextlib.suppress(OSError):
            self._connection.send(("close",))  # a forked child may hold the socket open
        self._connection.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hand_over(self) -> None:
        if self._model is None:
            return
        # Held until the answer: what is not contiguous is a copy.
        weights = [(name, p.detach().contiguous()) for name, p in self._model.named_parameters()]
        # One for each worker: a handle can be opened once.
        payloads = [bytes(ForkingPickler.dumps(weights)) for _ in range(self._num_workers)]
        self._ask("load", payloads)

    def _ask(self, *message, failed="failed ({}; what it printed is above): run again to resume"):
        """The answer to `message`, the name of a function in the engine's process and its
        arguments. KlearError, of one line, where that fails, and the process is ended."""
        try:
            self._connection.send(message)
            kind, answer = self._connection.recv()
        except (EOFError, OSError):
            kind, answer = "ended", ""
        if kind == "done":
            return answer
        self.close()
        words = answer or f"it exited with code {self._process.returncode}"
        raise KlearError(f"vLLM {failed.format(words)}")


def start_process(environment: dict[str, str]) -> tuple[subprocess.Popen, Connection]:
    """An engine's process and the trainer's end of its socket. environment: variables, beside those
    of this process."""
    ours, theirs = socket.socketpair()
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=[theirs.fileno()],
        )
    return process, Connection(ours.detach())


def description(path: str | Path, yarn_factor: float | None, yarn_original: int | None):
    """(what holds the configs of the model in `path`, its tokenizer)."""
    folder = model_folder(path)
    config, tokenizer = AutoConfig.from_pretrained(folder), load_tokenizer(folder)
    if yarn_factor is not None:
        with_yarn(config, yarn_factor, original=yarn_original)
    try:
        generation = GenerationConfig.from_pretrained(folder)
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


class Receiver:
    """What each worker of vLLM can do besides its own: take over the trainer's weights."""

    def klear_prepare(self) -> None:
        """Ask the system for the tiles that bf16 kernels of some CPUs use: vLLM does so only where
        it binds threads to cores, and without them the first step dies of SIGILL."""
        if self.device.type == "cpu":
            torch.cpu._init_amx()

    def klear_seed(self, seed: int) -> None:
        """Seed what requests without a seed are drawn by."""
        torch.manual_seed(seed)

    def klear_load(self, payloads: Sequence[bytes]) -> None:
        """Load the pickled list of (name, tensor) that is this worker's, by the steps of vLLM's own
        weight transfer, which bring the weights into the form that the kernels want and leave
        compiled graphs as they are. RuntimeError where a weight of the model got no value."""
        reload = importlib.import_module("vllm.model_executor.model_loader.reload")
        model = self.model_runner.get_model()
        missing = {name for name, _ in model.named_parameters()}
        reload.initialize_layerwise_reload(model)
        missing -= model.load_weights(pickle.loads(payloads[self.rank]))
        reload.finalize_layerwise_reload(model, self.model_config)
        if missing:
            raise RuntimeError(f"the trainer's model has no weights for {sorted(missing)}")
        if self.model_config.hf_text_config.tie_word_embeddings:
            # The reload sees the embedding alone, and a CPU's head keeps a packed copy of it.
            model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


def main(argv: Sequence[str]) -> None:
    """The engine's process: serve until the other end of the socket closes, or a request fails."""
    descriptor, parent = map(int, argv)
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, ConnectionError):
        multiprocessing.current_process().authkey, arguments = connection.recv()
        try:
            llm, answer = importlib.import_module("vllm").LLM(**arguments), None
            llm.collective_rpc("klear_prepare")
            while True:
                connection.send(("done", answer))
                name, *given = connection.recv()
                if name == "close":
                    return
                answer = _ANSWERS[name](llm, *given)
        except (EOFError, ConnectionError):
            raise
        except Exception as error:  # whatever it is, the trainer's process must learn of it
            traceback.print_exc()
            line = " ".join(f"{type(error).__name__}: {error}".split())
            connection.send(("failed", line[:LINE_CHARS]))


def _sample(llm, prompts, seeds, settings: dict, seed: int | None):
    """(token ids, log-probabilities or None) of each response, group after group.

    Args:
        prompts: token ids of the P prompts. seeds: [P, G], each may be None. settings: of
            `vllm.SamplingParams`. seed: of those without one, together.
    """
    if seed is not None:
        llm.collective_rpc("klear_seed", args=(seed,))
    # Of older weights, perhaps; and what a cache holds moves the last bits of a response.
    if not llm.reset_prefix_cache():
        raise RuntimeError("vLLM did not empty its prefix cache")
    new_params = importlib.import_module("vllm").SamplingParams
    requests = [
        ({"prompt_token_ids": ids}, new_params(**settings, seed=own))
        for ids, group in zip(prompts, seeds, strict=True)
        for own in group
    ]
    drawn = llm.generate(*map(list, zip(*requests, strict=True)), use_tqdm=False)
    outputs = [each.outputs[0] for each in drawn]
    logps = [None if o.logprobs is None else array("d", o.logprobs.logprobs) for o in outputs]
    return [(array("q", o.token_ids), logp) for o, logp in zip(outputs, logps, strict=True)]


_ANSWERS = {
    "load": lambda llm, payloads: llm.collective_rpc("klear_load", args=(payloads,)),
    "sample": _sample,
    "sleep": lambda llm, level: llm.sleep(level=level),
    "wake": lambda llm, tags: llm.wake_up(tags),
}

if __name__ == "__main__":
    main(sys.argv[1:])
