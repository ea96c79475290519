"""Workers as their fan-out sees them: a new process each, or forked by a server that has imported
torch once.

All kinds of worker are asked in the same words, those of `Worker`, and all run
`klearlib.run.worker.main`. A server that cannot be had, or may not be used, costs nothing
but time: its workers become new processes, and their logs say why.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from klearlib.run import fork_server, shared_server, worker
from klearlib.run.stage import Stage

CUDA = "CUDA_VISIBLE_DEVICES"
AHEAD_S = 120.0
PRELOADED = "klearlib."  # the modules that a server imports: their code is ours to know


def worker_environment() -> dict[str, str]:
    """Ours, with the same places to import from, one thread and a fixed order of sets."""
    fixed = {
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
    return {**os.environ, **fixed}


@contextlib.contextmanager
def interrupt_later() -> Iterator[None]:
    """Hold back Ctrl-C in the block: a worker must be known before anything may end the call."""
    known = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(known):
        yield
        return
    caught: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, known)
    if caught:
        known(signal.SIGINT, None)


class Worker(Protocol):
    """The process of one stage, wherever it runs; `subprocess.Popen` has most of it.

    is_queued: it waits for a place that others have. poll: the exit code, None while it runs. wait:
    the same when it has ended; subprocess.TimeoutExpired where that takes longer. terminate: ask it
    to save its state and end. kill_group: SIGKILL to it and to all that it started.
    """

    is_queued: bool
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill_group(self) -> None: ...


class PlainWorker(subprocess.Popen):
    """A worker that is a new process."""

    is_queued = False

    def __init__(self, spec_file: Path, log: BinaryIO, environment: dict[str, str]):
        super().__init__(
            [sys.executable, "-P", "-m", worker.__name__, str(spec_file)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a terminal's Ctrl-C is for us to pass on
        )

    def kill_group(self) -> None:
        """SIGKILL to the worker and all that it started."""
        # The worker leads a group of its own; its guard keeps the number from being given away.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class ForkedWorker:
    """A worker that the server forks when it is ready; see `Preloaded.start`.

    pid: None until then. returncode: as that of subprocess.Popen.
    """

    is_queued = False

    def __init__(
        self, server: Preloaded, number: int, spec_file: Path, log: Path, environment: dict
    ):
        self._server = server
        self._number = number
        self._plain_start = (spec_file, log, environment)
        self._plain: PlainWorker | None = None
        self._pid: int | None = None
        self._returncode: int | None = None

    @property
    def pid(self) -> int | None:
        return self._plain.pid if self._plain is not None else self._pid

    @property
    def returncode(self) -> int | None:
        return self._plain.returncode if self._plain is not None else self._returncode

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        self._server.listen(0)
        return self._plain.poll() if self._plain is not None else self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code when it has ended; subprocess.TimeoutExpired where that takes longer."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(str(self._plain_start[0]), timeout)
            if self._plain is not None:
                return self._plain.wait(None if timeout is None else left)
            self._server.listen(min(left, 1.0))
        return self.returncode

    def terminate(self) -> None:
        """Ask it to save its state and end."""
        if self.poll() is not None:
            return
        if self._plain is not None:
            self._plain.terminate()
        elif self._pid is None and not self._server.is_ready:  # it has nothing to save yet
            self._signal(signal.SIGKILL)
            self._returncode = -signal.SIGTERM
        else:
            self._signal(signal.SIGTERM)

    def kill_group(self) -> None:
        """SIGKILL to it and to all that it started; the server does so where it ended by itself."""
        if self._plain is not None:
            self._plain.kill_group()
        elif self._returncode is None:
            self._signal(signal.SIGKILL)

    def hear(self, answer: dict) -> None:
        """Take what the server told."""
        if "refused" in answer:
            self._start_plainly(answer["refused"])
        elif "pid" in answer:
            self._pid = answer["pid"]
        else:
            self._returncode = answer["code"]

    def lose(self, why: str) -> None:
        """The server is gone: the kernel killed the worker with it, or there was none yet."""
        if self._pid is None:
            self._start_plainly(why)
        elif self._returncode is None:
            self._returncode = -signal.SIGKILL

    def _signal(self, number: signal.Signals) -> None:
        self._server.tell({"signal": int(number), "to": self._number})

    def _start_plainly(self, why: str) -> None:
        if self._plain is not None or self._returncode is not None:
            return
        spec_file, path, environment = self._plain_start
        with interrupt_later(), open(path, "ab") as log:
            log.write(f"not forked from a process that has torch ({why}): a new one\n".encode())
            log.flush()
            self._plain = PlainWorker(spec_file, log, environment)


class Preloaded:
    """A running fork server. It ends with `close`, and with this process.

    It imports while the caller goes on; what is asked of it before it is ready waits in its socket.
    Not for several threads at once. In a run of several notebooks it is a fork of a process that
    they share (`klearlib.run.shared_server`).

    modules: what it imports. idle_s: seconds after which it ends by itself where nothing was asked
    of it and `keep` was not called; 0 for never.
    """

    def __init__(self, modules: Iterable[str], *, idle_s: float = 0.0):
        self._environment = worker_environment()
        self._workers: dict[int, ForkedWorker] = {}
        self._num_started = 0
        self._broken = ""
        self.is_ready = False
        self._sources = fork_server.sources()
        self._process: subprocess.Popen | None = None
        modules = list(modules)
        shared = shared_server.connect(self._environment, modules, idle_s=idle_s)
        if shared is not None:
            self._socket = shared
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", fork_server.__name__, str(idle_s), *modules],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """None for a fork of a shared process."""
        return None if self._process is None else self._process.pid

    def start(
        self, spec_file: Path, log: BinaryIO, environment: dict[str, str]
    ) -> ForkedWorker | PlainWorker:
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`."""
        if not self.can_fork(environment):
            return PlainWorker(spec_file, log, environment)
        self._num_started += 1
        number = self._num_started
        forked = ForkedWorker(self, number, spec_file, Path(log.name), environment)
        self._workers[number] = forked
        request = {"start": number, "spec": str(spec_file), "cuda": environment.get(CUDA)}
        request |= {"folder": os.getcwd(), "umask": _umask()}
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [log.fileno()])
        except OSError as error:
            self.listen(0)
            self._lose(str(error))
        return forked

    def keep(self) -> None:
        """There is a run: the server is to wait for its stages as long as it takes."""
        self.tell({})

    def tell(self, request: dict) -> None:
        """Send a request that has no answer."""
        with contextlib.suppress(OSError):  # gone: the next `listen` finds out
            self._socket.send(json.dumps(request).encode())

    def listen(self, timeout_s: float) -> None:
        """Take what the server has told; wait for something at most `timeout_s`."""
        if self._broken:
            time.sleep(timeout_s)
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while poll.poll(timeout_s * 1000):
            timeout_s = 0
            try:
                message = self._socket.recv(fork_server.MAX_MESSAGE)
            except ConnectionResetError:  # what it told before it went is still to be read
                message = self._socket.recv(fork_server.MAX_MESSAGE)
            answer = json.loads(message) if message else {"broken": "it was killed"}
            if "broken" in answer:
                self._lose(answer["broken"])
                return
            if "ready" in answer:
                self.is_ready = True
            else:
                self._workers[answer["start"]].hear(answer)

    def can_fork(self, environment: dict[str, str]) -> bool:
        """Whether the server lives, and its workers could see `environment`."""
        self.listen(0)
        return not self._broken and _shared(environment) == _shared(self._environment)

    def is_usable(self) -> bool:
        """Whether it could fork now, and the library's sources are those that it has imported."""
        return self.can_fork(worker_environment()) and self._sources == fork_server.sources()

    def close(self) -> None:
        """End the server, and what it has forked."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket.close()  # which ends a fork of a shared process
        self._broken = "it was closed"

    def _lose(self, why: str) -> None:
        self._broken = self._broken or why
        for each in self._workers.values():
            each.lose(why)


def preload(stages: Iterable[Stage], *, idle_s: float = 0.0) -> Preloaded | None:
    """A server that imports the library's modules of `stages`; None where there are none, or where
    this system cannot have one. idle_s: see `Preloaded`."""
    modules = {stage.target.partition(":")[0] for stage in stages}
    modules = sorted(each for each in modules if each.startswith(PRELOADED))
    if not modules or sys.platform != "linux":
        return None
    try:
        return Preloaded(modules, idle_s=idle_s)
    except OSError:  # no process or no socket: the stages will say so, each in its own words
        return None


_ahead: list[Preloaded] = []


def preload_ahead(stages: Iterable[Stage]) -> None:
    """`preload` for the next `take_preloaded` of this process: it imports while the caller does
    other things, and ends by itself where nothing is asked of it for `AHEAD_S`."""
    if _ahead and not _ahead[0].is_usable():
        _ahead.pop().close()
    if not _ahead and (server := preload(stages, idle_s=AHEAD_S)) is not None:
        _ahead.append(server)


def take_preloaded() -> Preloaded | None:
    """The server that `preload_ahead` started, if it can still be used; the caller closes it."""
    with contextlib.suppress(IndexError):
        server = _ahead.pop()
        server.keep()
        if server.is_usable():
            return server
        server.close()
    return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _shared(environment: dict[str, str]) -> dict[str, str]:
    """Without what a fork may have of its own."""
    return {name: value for name, value in environment.items() if name != CUDA}
