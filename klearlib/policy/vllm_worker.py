"""The process of a vLLM engine: ``python -m klearlib.policy.vllm_worker DESCRIPTOR PARENT``.

vLLM runs here and not in the trainer's process: an engine that was killed or hangs is then left
behind and another one started, and its threads stay out of a process that forks.

The socket DESCRIPTOR carries pickled tuples. The first holds multiprocessing's key, without which
no shared tensor could be opened, and the arguments of `vllm.LLM`; each of the others the name of a
function of `_ANSWERS` and its arguments. Each is answered by ``("done", result)`` or ``("failed",
line)``, after any number of ``("alive", None)``. The process ends at ``("close",)``, and with the
socket or PARENT; the processes that vLLM starts for more than one GPU end with it.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import pickle
import signal
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from klearlib.run.worker import die_with

ALIVE_S = 5.0
LINE_CHARS = 300  # of an error; some of vLLM's name every model that it knows


class Receiver:
    """What each worker of vLLM can do besides its own: take over the trainer's weights."""

    def klear_prepare(self) -> None:
        """Ask the system for the tiles that bf16 kernels of some CPUs use: vLLM does so only where
        it binds threads to cores, and without them the first step dies of SIGILL."""
        if self.device.type == "cpu":
            importlib.import_module("torch").cpu._init_amx()

    def klear_load(self, payloads: Sequence[bytes]) -> None:
        """Load the pickled list of (name, tensor) that is this worker's; the tensors' memory is the
        trainer's.

        By the steps of vLLM's own weight transfer, which bring the weights into the form that the
        kernels want and leave compiled graphs as they are.

        Raises RuntimeError where a weight of the model got no value.
        """
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
    """Serve until the other end of the socket closes; the exit code."""
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
            _answer(connection, lambda: _ANSWERS[name](llm, connection, *given))  # noqa: B023
    return 0


def _answer(connection: Connection, work: Callable):
    """Send what `work` returns, a pair of (kept here, told there), and return its first."""
    try:
        kept, told = work()
    except Exception as error:  # whatever it is, the trainer's process must learn of it
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        line = f"{type(error).__name__}: {' '.join(lines)}"
        connection.send(("failed", line if len(line) <= LINE_CHARS else line[:LINE_CHARS] + "..."))
        return None
    connection.send(("done", told))
    return kept


def _start(arguments: dict):
    llm = importlib.import_module("vllm").LLM(**arguments)
    llm.collective_rpc("klear_prepare")
    platform = importlib.import_module("vllm.platforms").current_platform
    return llm, platform.device_type


def _load(llm, connection: Connection, payloads: Sequence[bytes]):
    llm.collective_rpc("klear_load", args=(payloads,))
    return None, None


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
    finished, told = {}, time.monotonic()
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            (finished[int(output.request_id)],) = output.outputs
        if time.monotonic() - told > ALIVE_S:
            connection.send(("alive", None))
            told = time.monotonic()
    return None, [_completion(finished[number]) for number in sorted(finished)]


def _completion(output) -> tuple:
    logp = None if output.logprobs is None else array("d", output.logprobs.logprobs)
    return array("q", output.token_ids), logp, output.finish_reason


def _sleep(llm, connection: Connection, level: int):
    return None, llm.sleep(level=level)


def _wake(llm, connection: Connection, tags: list[str] | None):
    return None, llm.wake_up(tags)


_ANSWERS = {"load": _load, "sample": _sample, "sleep": _sleep, "wake": _wake}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
