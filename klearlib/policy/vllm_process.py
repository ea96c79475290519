"""The process of a vLLM engine: the trainer's end of it, and what runs there.

vLLM has a process of its own, ``python -m klearlib.policy.vllm_process DESCRIPTOR PARENT``: its
client blocks for ever when its core is killed, and its threads stay out of a process that forks.

The socket DESCRIPTOR carries pickled tuples. The first holds multiprocessing's key, without which
no shared tensor could be opened, and the arguments of `vllm.LLM`; each of the others a name in
`_ANSWERS` and its arguments. Each is answered by ``("done", result)``, or by ``("failed", line)``
and the end of the process, which comes with that of the socket or of PARENT too.
"""

from __future__ import annotations

import contextlib
import importlib
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
from pathlib import Path

import torch
import torch.multiprocessing  # teaches multiprocessing to share tensors

from klearlib.run.worker import die_with

MODULE = "klearlib.policy.vllm_process"  # this one, whose name in the engine's process is __main__
CLOSE_S = 20.0
LINE_CHARS = 300  # of an error; some of vLLM's name every model that it knows


class EngineFailed(Exception):
    """An engine raised an error or ended: one line."""


class EngineProcess:
    """The trainer's end of one process with one vLLM engine. It ends with the thread that started
    it.

    It prints nothing but errors, to stderr. arguments: of `vllm.LLM`. environment: variables,
    beside those of this process. Raises EngineFailed where the engine cannot be started.
    """

    def __init__(self, arguments: dict, environment: dict[str, str]):
        ours, theirs = socket.socketpair()
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=2,
                env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        self.pid = self._process.pid
        try:
            self.ask(bytes(multiprocessing.current_process().authkey), arguments)
        except BaseException:
            self.close()
            raise

    def ask(self, *message):
        """The answer to `message`, the name of a function there and its arguments."""
        try:
            self._connection.send(message)
            kind, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise EngineFailed(f"it ended with exit code {self._end()}") from error
        if kind == "failed":
            raise EngineFailed(answer)
        return answer

    def close(self) -> None:
        """End the process. May be called twice."""
        with contextlib.suppress(OSError):
            self._connection.send(("close",))  # a forked child may hold the socket open
        self._connection.close()
        self._end()

    def _end(self) -> int:
        """The exit code of a process that is to end; one that does not is killed."""
        try:
            return self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


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


def _sample(llm, prompts, seeds, settings: dict):
    """(token ids, log-probabilities or None) of each response, group after group.

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
    drawn = llm.generate(*map(list, zip(*requests, strict=True)), use_tqdm=False)
    return [_completion(*each.outputs) for each in drawn]


def _completion(output) -> tuple:
    if output.finish_reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM left a response unfinished: {output.finish_reason}")
    logp = None if output.logprobs is None else array("d", output.logprobs.logprobs)
    return array("q", output.token_ids), logp


_ANSWERS = {
    "load": lambda llm, payloads: llm.collective_rpc("klear_load", args=(payloads,)),
    "sample": _sample,
    "sleep": lambda llm, level: llm.sleep(level=level),
    "wake": lambda llm, tags: llm.wake_up(tags),
}

if __name__ == "__main__":
    main(sys.argv[1:])
