"""The process of a vLLM engine: the trainer's end of it, and what runs there.

vLLM has a process of its own, ``python -m klearlib.policy.vllm_process DESCRIPTOR PARENT``: its
client blocks for ever when its core is killed, and its threads stay out of a process that forks.

The socket DESCRIPTOR carries pickled tuples. The first holds multiprocessing's key, without which
no shared tensor could be opened, and the arguments of `vllm.LLM`; each of the others a name in
`_ANSWERS` and its arguments, answered by ``("done", result)`` or ``("failed", line)``, after any
number of ``("alive", None)``. The process ends with the socket or PARENT.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from array import array
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.multiprocessing  # teaches multiprocessing to share tensors

from klearlib.run.worker import die_with

MODULE = "klearlib.policy.vllm_process"  # this one, whose name in the engine's process is __main__
# An engine that has said nothing for so long hangs: it says that it is alive every few seconds
# while it samples, and neither its start nor new weights take half an hour.
SILENT_S, ALIVE_S, CLOSE_S = 1800.0, 5.0, 20.0
LINE_CHARS = 300  # of an error; some of vLLM's name every model that it knows
_CAUSE = re.compile(r"\b([A-Z]\w*(?:Error|Exception): .+)")


class EngineFailed(Exception):
    """An engine raised an error, ended or hung: one line."""


class EngineProcess:
    """The trainer's end of one process with one vLLM engine. It ends with the thread that started
    it.

    What it prints goes to a file of no name, which is read when it fails. arguments: of `vllm.LLM`.
    environment: variables, beside those of this process. Raises EngineFailed where the engine
    cannot be started.
    """

    def __init__(self, arguments: dict, environment: dict[str, str]):
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        self.pid = self._process.pid
        # May be called twice, and is when this object goes.
        self.close = weakref.finalize(self, _end, self._process, self._connection, self._log)
        try:
            key = bytes(multiprocessing.current_process().authkey)
            self.device: str = self.ask(key, arguments)
        except BaseException:
            self.close()
            raise

    def ask(self, *message):
        """The answer to `message`, the name of a function there and its arguments."""
        try:
            self._connection.send(message)
            kind = "alive"
            while kind == "alive":
                if not self._connection.poll(SILENT_S):
                    raise EngineFailed(f"it said nothing for {SILENT_S:g} s")
                kind, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            code = _ended(self._process, CLOSE_S)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            last_words = f" ({printed[-1]})" if (printed := self._printed_errors()) else ""
            raise EngineFailed(f"it ended with {how}{last_words}") from error
        if kind == "failed":
            if "root cause" in answer or "background process" in answer:
                # vLLM's front says of an error in another of its processes only that there was one.
                causes = (each for each in self._printed_errors() if "root cause" not in each)
                answer = next(causes, answer)
            raise EngineFailed(answer)
        return answer

    def _printed_errors(self) -> list[str]:
        # By its own offset: the processes write at that of the descriptor.
        size = os.fstat(self._log.fileno()).st_size
        start = max(0, size - 100_000)
        text = os.pread(self._log.fileno(), size - start, start).decode(errors="replace")
        return _CAUSE.findall(text)


def _end(process: subprocess.Popen, connection: Connection, log) -> None:
    """An idle process ends with its socket; one that does not end is killed."""
    with contextlib.suppress(OSError):
        connection.send(("close",))  # a forked child may hold the socket open
    connection.close()
    _ended(process, CLOSE_S)
    log.close()


def _ended(process: subprocess.Popen, timeout_s: float) -> int:
    """Its exit code; one that does not end in time is killed."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class Receiver:
    """What each worker of vLLM can do besides its own: take over the trainer's weights."""

    def klear_prepare(self) -> None:
        """Ask the system for the tiles that bf16 kernels of some CPUs use: vLLM does so only where
        it binds threads to cores, and without them the first step dies of SIGILL."""
        if self.device.type == "cpu":
            torch.cpu._init_amx()

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


def main(argv: Sequence[str]) -> int:
    """The engine's process: serve until the other end of the socket closes; the exit code."""
    descriptor, parent = map(int, argv)
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, ConnectionError):
        multiprocessing.current_process().authkey, arguments = connection.recv()
        llm = _answer(connection, lambda: _start(arguments))
        while llm is not None:
            name, *given = connection.recv()
            if name == "close":
                break
            _answer(connection, lambda: (None, _ANSWERS[name](llm, connection, *given)))  # noqa: B023
    return 0


def _answer(connection: Connection, work: Callable):
    """Send what `work` returns, a pair of (kept here, answer), and return its first."""
    try:
        kept, answer = work()
    except Exception as error:  # whatever it is, the trainer's process must learn of it
        line = " ".join(f"{type(error).__name__}: {error}".split())
        connection.send(("failed", line if len(line) <= LINE_CHARS else line[:LINE_CHARS] + "..."))
        return None
    connection.send(("done", answer))
    return kept


def _start(arguments: dict):
    llm = importlib.import_module("vllm").LLM(**arguments)
    llm.collective_rpc("klear_prepare")
    platform = importlib.import_module("vllm.platforms").current_platform
    return llm, platform.device_type


def _sample(llm, connection: Connection, prompts, seeds, settings: dict):
    """(token ids, log-probabilities or None, finish reason) of each response, group after group.

    Args:
        prompts: token ids of the P prompts. seeds: [P, G]. settings: of `vllm.SamplingParams`.
    """
    # Of older weights, perhaps; and what a cache holds moves the last bits of a response.
    if not llm.reset_prefix_cache():
        raise RuntimeError("vLLM did not empty its prefix cache")
    new_params = importlib.import_module("vllm").SamplingParams
    requests = [
        ({"prompt_token_ids": ids}, new_params(**settings, seed=seed))
        for ids, group in zip(prompts, seeds, strict=True)
        for seed in group
    ]
    llm.enqueue([prompt for prompt, _ in requests], [each for _, each in requests], use_tqdm=False)
    finished, last_sign = {}, time.monotonic()
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            (finished[int(output.request_id)],) = output.outputs
        if time.monotonic() - last_sign > ALIVE_S:
            connection.send(("alive", None))
            last_sign = time.monotonic()
    return [_completion(finished[number]) for number in sorted(finished)]


def _completion(output) -> tuple:
    logp = None if output.logprobs is None else array("d", output.logprobs.logprobs)
    return array("q", output.token_ids), logp, output.finish_reason


_ANSWERS = {
    "load": lambda llm, _, payloads: llm.collective_rpc("klear_load", args=(payloads,)),
    "sample": _sample,
    "sleep": lambda llm, _, level: llm.sleep(level=level),
    "wake": lambda llm, _, tags: llm.wake_up(tags),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
