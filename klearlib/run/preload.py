"""Processes for stages: new ones, or forks of a server that has imported torch once.

Importing torch and transformers takes longer than a short stage. The server is the standard
library's (`multiprocessing.forkserver`). It imports these two alone: the library's own code may
change on disk while a notebook's kernel lives. A fork that would not be what a new process is
becomes one, and its log says why. Linux alone: there the kernel ends the forks with their server,
and a process with torch cannot be forked safely on macOS.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import BinaryIO, Protocol

from klearlib.run import worker
from klearlib.run.stops import ASKED, LEFT

CUDA = "CUDA_VISIBLE_DEVICES"
PRELOADED = (
    "torch",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3.configuration_qwen3",
)
# Variables without effect on what the server has imported: a fork may have others. The paths to
# import from are handed over, and a stage's own modules are imported after the fork.
_OWN, _OURS = {CUDA, "PYTHONPATH", "COLUMNS", "LINES"}, "KLEAR_"  # readline sets two of them


def worker_environment() -> dict[str, str]:
    """Ours, with the same places to import from, one thread and a fixed order of sets."""
    return {**os.environ, **_fixed(), worker.PARENT: str(os.getpid())}


def _fixed() -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # pyarrow's allocator would start a thread at its import, and nothing may fork then.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }


class Worker(Protocol):
    """A process of the pool, wherever it runs; `subprocess.Popen` has most of it."""

    is_queued: bool  # it waits for a place that others have
    returncode: int | None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""

    def terminate(self) -> None:
        """Ask it to save its state and end."""

    def kill_group(self) -> None:
        """SIGKILL to it and all that it started."""


class NewProcess(subprocess.Popen):
    """``python -m module argument``, which writes to `log`, an open file."""

    is_queued = False

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


class _Server:
    """What this process knows of its fork server, which ends with it."""

    lock = threading.Lock()
    was_started = False
    is_broken = False  # it ended before its imports did


def preload() -> bool:
    """Start the fork server, where it does not run: it imports while the caller goes on.

    False where there is none to have.
    """
    if sys.platform != "linux" or _Server.is_broken:
        return False
    with _Server.lock:
        try:
            resource_tracker.ensure_running()  # here: its start unblocks signals
            forkserver.set_forkserver_preload(list(PRELOADED))
            # A stop that is for a whole group of processes must not end the forks' parent.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*ASKED, *LEFT})
            # The server takes its environment from ours; it offers no other way.
            known, fixed = dict(os.environ), _fixed()
            os.environ.update(fixed)
            try:
                forkserver.ensure_running()
            finally:
                for name in fixed.keys() - known.keys():
                    del os.environ[name]
                os.environ.update({name: known[name] for name in fixed.keys() & known.keys()})
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        except OSError:  # no process or no socket: the stages will say so, each in its own words
            return False
    if not _Server.was_started:
        atexit.register(_end_server)
    _Server.was_started = True
    return True


def _end_server() -> None:
    """It would end by itself, but only when its imports are done."""
    server = forkserver._forkserver._forkserver_pid
    if server is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def was_preloaded() -> bool:
    """Whether `preload` has started a server that a single stage may use as well."""
    return _Server.was_started and not _Server.is_broken


def start_worker(
    spec_file: Path, log: BinaryIO, environment: dict[str, str], *, fork: bool
) -> ForkedWorker | NewProcess:
    """A stage's process for `spec_file` that writes to `log`, an open file, and sees
    `environment`; forked where that was asked for and can be."""
    if fork and preload():
        with contextlib.suppress(OSError):  # the server ended a moment ago
            return ForkedWorker(spec_file, log, environment)
    return NewProcess(worker.__name__, str(spec_file), log, environment)


class ForkedWorker:
    """A stage's process that the server forks as soon as its imports are done.

    `multiprocessing.Process` would wait for that moment, and import the caller's main module again;
    here both ends of the server's protocol are ours. pid: None until it is forked. returncode: as
    that of subprocess.Popen; `worker.BUSY` where the server ended before, so that another start may
    try. sentinel: a descriptor that can be read when there is news.
    """

    is_queued = False

    def __init__(self, spec_file: Path, log: BinaryIO, environment: dict[str, str]):
        mask = os.umask(0)
        os.umask(mask)
        self._work = _Fork(str(spec_file), log.name, environment, os.getcwd(), mask)
        self.pid: int | None = None
        self.returncode: int | None = None
        # The server tells the pid, later the exit code, and waits for two pickles.
        self.sentinel, self._pipe = forkserver.connect_to_new_process([])

    def poll(self) -> int | None:
        while self.returncode is None and connection.wait([self.sentinel], 0):
            try:
                number = forkserver.read_signed(self.sentinel)
            except EOFError:  # the server is gone, and its forks with it
                _Server.is_broken |= self.pid is None
                self._end(worker.BUSY if self.pid is None else -signal.SIGKILL)
                break
            if self.pid is None:
                self.pid = number
                self._tell(self._work)
            else:
                self._end(number)
        return self.returncode

    def terminate(self) -> None:
        if self.poll() is not None:
            return
        if self.pid is None:  # it has nothing to save yet
            self._tell(_NOTHING)
            self._end(-signal.SIGTERM)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill_group(self) -> None:
        if self.pid is None:
            self.terminate()
        if self.pid is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.poll() is None:  # it may not lead its group yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _tell(self, work: _Fork) -> None:
        with contextlib.suppress(BrokenPipeError), open(self._pipe, "wb") as pipe:
            paths = self._work.environment["PYTHONPATH"].split(os.pathsep)
            pickle.dump({"sys_path": list(dict.fromkeys(paths))}, pipe)
            pickle.dump(work, pipe)

    def _end(self, code: int) -> None:
        self.returncode = code
        os.close(self.sentinel)
        if self.pid is None and code == worker.BUSY:
            os.close(self._pipe)


@dataclass(frozen=True)
class _Fork:
    """What makes a fork of the server the process of a stage; pickled to it. spec_file: "" where
    there is nothing to do any more."""

    spec_file: str
    log: str
    environment: dict[str, str]
    folder: str
    umask: int

    def _bootstrap(self, _parent: int) -> int:
        """Called by `multiprocessing.spawn` in the fork; the exit code of the process."""
        if not self.spec_file:
            return 0
        self._become_new()
        code = 1
        try:
            code = worker.main([self.spec_file])
        except BaseException:
            traceback.print_exc()
        finally:  # a fork of the server ends without them
            threading._shutdown()
            atexit._run_exitfuncs()
        return code

    def _become_new(self) -> None:
        """Be what a new process with this log and environment would be, or start one in place."""
        os.setsid()
        os.chdir(self.folder)
        os.umask(self.umask)
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for standard, file in enumerate((nothing, log, log)):
            os.dup2(file, standard)
        # Among them the one on whose end, in all processes, the server ends.
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor > 2:
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(descriptor)
        forkserver._forkserver.__init__()
        resource_tracker._resource_tracker.__init__()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        environment = self.environment | {worker.PARENT: str(os.getppid())}
        began = _environment_of_server()
        if why := _unfit(began, environment):
            print(f"not forked from a process that has torch ({why}): a new one", flush=True)
            command = [sys.executable, "-P", "-m", worker.__name__, self.spec_file]
            os.execve(sys.executable, command, environment)
        for name in began.keys() - environment.keys():
            os.environ.pop(name, None)
        os.environ.update(environment)
        sys.argv[1:] = [self.spec_file]
        # Seeded by the system at their import, and so different in every process.
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        if "torch" in sys.modules:
            sys.modules["torch"].default_generator.seed()


_NOTHING = _Fork("", "", {}, "", 0)


def _environment_of_server() -> dict[str, str]:
    """As it was when the server started, which decides what its modules are."""
    entries = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    return {name: value for name, is_one, value in (e.partition("=") for e in entries) if is_one}


def _unfit(began: dict[str, str], wanted: dict[str, str]) -> str:
    """Why this fork is not what a new process with the variables `wanted` is; "" where it is."""
    for name in sorted(began.keys() | wanted.keys()):
        own = name in _OWN or name.startswith(_OURS)
        if not own and began.get(name) != wanted.get(name):
            return f"{name} differs"
    if (count := len(os.listdir(f"/proc/{os.getppid()}/task"))) > 1:
        return f"the imports started {count - 1} threads"
    # Its driver cannot be used in a fork of a process that has loaded it.
    if "libcuda.so" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace"):
        return "the imports touched CUDA"
    return ""
