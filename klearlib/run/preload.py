"""Processes for stages: new ones, or forks of a server that has imported torch once.

Importing torch and transformers takes longer than a short stage. Only Linux forks: there the kernel
ends the forks with their server, and a process with torch cannot be forked safely on macOS.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import BinaryIO, Protocol

from klearlib.run import forkserver, worker

CUDA = "CUDA_VISIBLE_DEVICES"
PRELOADED = (
    "torch",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3.configuration_qwen3",
)
_OWN, _OURS = {CUDA, "PYTHONPATH", "COLUMNS", "LINES"}, "KLEAR_"
"""Variables, and the start of their names, that a fork may have other than the server: they have no
effect on its imports. Readline sets two of them."""


def worker_environment() -> dict[str, str]:
    """Ours, with the same places to import from, one thread and a fixed order of sets."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # pyarrow's allocator would start a thread at its import, and nothing may fork then.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        worker.PARENT: str(os.getpid()),
    }


class Worker(Protocol):
    """A process of the pool, wherever it runs; `subprocess.Popen` has most of it."""

    returncode: int | None

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...  # it is to save its state and end
    def kill_group(self) -> None: ...  # SIGKILL to it and all that it started


class NewProcess(subprocess.Popen):
    """``python -m module argument``, which writes to `log`, an open file."""

    def __init__(self, module: str, argument: str, log: BinaryIO, environment: dict[str, str]):
        super().__init__(
            [sys.executable, "-P", "-m", module, argument],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a terminal's Ctrl-C is for us to pass on
        )

    def kill_group(self) -> None:
        # It leads a group of its own; a stage's guard keeps the number from being given away.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """This process's `klearlib.run.forkserver`, which imports while the caller goes on."""

    def __init__(self):
        self.environment = worker_environment()
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", forkserver.__name__, str(theirs.fileno()), *PRELOADED],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # imports may print
                stderr=subprocess.DEVNULL,
                env=self.environment,
                start_new_session=True,
            )
        self.was_ready = self.has_ended = False
        self.workers: list[ForkedWorker] = []  # by their numbers
        atexit.register(self.end)

    def listen(self) -> None:
        """Take in what it has answered until now."""
        try:
            while not self.has_ended and self.connection.poll():
                answer = self.connection.recv()
                if answer.pop("ready", False):
                    self.was_ready = True
                else:
                    vars(self.workers[answer.pop("worker")]).update(answer)
        except (EOFError, OSError):
            self.has_ended = True

    def end(self) -> None:
        """Kill it, and its forks with it: it would end by itself, but after its imports only."""
        self.process.kill()
        self.process.wait()
        if self in _servers:  # the next one starts with its imports
            _servers.remove(self)


_servers: list[ForkServer] = []  # this process's, at most one


def preload() -> bool:
    """Start the fork server where none runs. False if none can be started."""
    if sys.platform != "linux":
        return False
    if _servers:
        _servers[0].listen()
        if not _servers[0].has_ended:
            return True
        if not _servers[0].was_ready:  # it cannot import, or cannot be forked: nor could the next
            return False
    _servers[:] = [ForkServer()]
    return True


def start_worker(
    spec_file: Path, log: BinaryIO, environment: dict[str, str]
) -> ForkedWorker | NewProcess:
    """A stage's process for `spec_file` that writes to `log`, an open file, and sees `environment`;
    forked if that can be and the server's imports saw the same environment."""
    if preload() and _imported_by(environment) == _imported_by(_servers[0].environment):
        return ForkedWorker(_servers[0], spec_file, log, environment)
    return NewProcess(worker.__name__, str(spec_file), log, environment)


def _imported_by(environment: dict[str, str]) -> dict[str, str]:
    """The variables that may have had an effect on what the server has imported."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OWN and not name.startswith(_OURS)
    }


class ForkedWorker:
    """A stage's process that the server forks as soon as its imports are done.

    pid: None until it is forked. returncode: as that of subprocess.Popen; `worker.BUSY` if the
    server ended before, so that another start may try.
    """

    def __init__(
        self, server: ForkServer, spec_file: Path, log: BinaryIO, environment: dict[str, str]
    ):
        self.server = server
        self.pid: int | None = None
        self.returncode: int | None = None
        order = {"worker": len(server.workers), "spec": str(spec_file), "log": log.name}
        order |= {"environment": environment, "folder": os.getcwd()}
        server.workers.append(self)
        with contextlib.suppress(OSError):  # it has ended, which `poll` says
            server.connection.send(order)

    def poll(self) -> int | None:
        self.server.listen()
        if self.returncode is None and self.server.has_ended:  # and its forks with it
            self.returncode = worker.BUSY if self.pid is None else -signal.SIGKILL
        return self.returncode

    def terminate(self) -> None:
        while self.poll() is None and self.pid is None and self.server.was_ready:
            time.sleep(0.001)  # it is forked at this moment
        if self.returncode is None and self.pid is None:  # nothing has been forked yet
            self.server.end()
            self.returncode = -signal.SIGTERM
        elif self.returncode is None:
            self._signal(os.kill, signal.SIGTERM)

    def kill_group(self) -> None:
        if self.pid is None:
            self.terminate()
            return
        self._signal(os.killpg, signal.SIGKILL)
        if self.poll() is None:  # it may not lead its group yet
            self._signal(os.kill, signal.SIGKILL)

    def _signal(self, send: Callable[[int, int], None], number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(self.pid, number)
