"""Processes for stages: new ones, or forks of a server that has imported torch once.

Importing torch and transformers takes longer than a short stage. Only Linux uses forks: there the
kernel ends the forks with their server; on macOS a process with torch cannot be forked safely.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import BinaryIO

from klearlib.run import forkserver, worker

CUDA = "CUDA_VISIBLE_DEVICES"
PRELOADED = (
    "torch",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3.configuration_qwen3",
)
_OWN = {CUDA, "PYTHONPATH", "COLUMNS", "LINES", "TORCHINDUCTOR_CACHE_DIR"}
_OURS = "KLEAR_"
"""Variables, or the start of their names, that may differ between a fork and the server: they have
no effect on its imports. Readline sets two of them, importing transformers the last."""


def worker_environment() -> dict[str, str]:
    """Our environment, with the same import paths, one thread and a fixed order of sets."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # pyarrow's allocator would start a thread at import, and then nothing may fork.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        worker.PARENT: str(os.getpid()),
    }


class NewProcess(subprocess.Popen):
    """``python -m module argument``, which writes to `log`, an open file.

    Every kind of worker has its `poll` and `returncode`, `terminate`, which asks the process to
    save its state and end, and `kill_group`, which kills it and all that it started.
    """

    def __init__(self, module: str, argument: str, log: BinaryIO, environment: dict[str, str]):
        super().__init__(
            [sys.executable, "-P", "-m", module, argument],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # so that we pass on a terminal's Ctrl-C
        )

    def kill_group(self) -> None:
        # It leads its own group; a stage's guard keeps the number from being reused.
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
        self.workers: dict[int, ForkedWorker] = {}  # by their pids, those that run
        atexit.register(self.end)

    def end(self) -> None:
        """Kill it, and its forks with it: by itself it would end only after its imports."""
        self.process.kill()
        self.process.wait()

    def listen(self, *, for_answer: bool = False) -> int | None:
        """Read what it has sent so far, or until it answers; the pid in its answer."""
        try:
            while for_answer or self.connection.poll():
                pid, code = self.connection.recv()
                if code is None:
                    self.was_ready = True
                    return pid
                self.workers.pop(pid).returncode = code
        except (EOFError, OSError):
            self.has_ended = True
            for worker in self.workers.values():  # the kernel has ended them with it
                worker.returncode = -signal.SIGKILL
        return None

    def fork(self, spec_file: Path, log: str, environment: dict[str, str]) -> ForkedWorker | None:
        """A stage's process, as `start_worker` makes one; None if the server has ended."""
        with contextlib.suppress(OSError):  # the answer shows it
            self.connection.send((str(spec_file), log, environment, os.getcwd()))
        pid = self.listen(for_answer=True)
        if pid is not None:
            self.workers[pid] = ForkedWorker(self, pid)
        return self.workers.get(pid)


_servers: list[ForkServer] = []  # this process's, at most one


def preload(*, wait: bool = False) -> ForkServer | None:
    """The fork server, started if none runs; None where there can be none. wait: until its imports
    are done."""
    if sys.platform != "linux":
        return None
    if _servers:
        _servers[0].listen()
    # A server that could not import, or cannot be forked, has ended unready: so would the next.
    if not _servers or (_servers[0].was_ready and _servers[0].has_ended):
        _servers[:] = [ForkServer()]
    (server,) = _servers
    if wait and not server.was_ready:
        server.listen(for_answer=True)
    return None if server.has_ended else server


def start_worker(
    spec_file: Path, log: BinaryIO, environment: dict[str, str]
) -> ForkedWorker | NewProcess:
    """A stage's process for `spec_file` that writes to `log`, an open file, and sees `environment`;
    forked if possible and if the server's imports saw the same environment."""
    server, forked = preload(wait=True), None
    if server is not None and _imported_by(environment) == _imported_by(server.environment):
        forked = server.fork(spec_file, log.name, environment)
    return forked or NewProcess(worker.__name__, str(spec_file), log, environment)


def _imported_by(environment: dict[str, str]) -> dict[str, str]:
    """The variables that may have affected the server's imports."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OWN and not name.startswith(_OURS)
    }


class ForkedWorker:
    """A stage's process that the server has forked; returncode: as that of subprocess.Popen."""

    def __init__(self, server: ForkServer, pid: int):
        self.server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self.server.listen()
        return self.returncode

    def terminate(self) -> None:
        if self.poll() is None:
            self._signal(os.kill, signal.SIGTERM)

    def kill_group(self) -> None:
        self._signal(os.killpg, signal.SIGKILL)
        if self.poll() is None:  # it may not lead its group yet
            self._signal(os.kill, signal.SIGKILL)

    def _signal(self, send: Callable[[int, int], None], number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(self.pid, number)
