"""A process that has imported torch once, and forks the processes of stages.

``python -P -m klearlib.run.forkserver DESCRIPTOR MODULE ...`` imports the modules and then sends
``(0, None)`` over the connection. From then on it forks a worker for each order, and answers
``(pid, None)`` and at the worker's end ``(pid, returncode)``. It ends with the connection, and the
kernel ends its forks with it. `klearlib.run.preload` is the other end.

The standard library's forkserver would block the caller until the imports are done, import the
caller's main module again in every fork, and take its environment from the caller's.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import sys
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

from klearlib.run.stops import ASKED, LEFT

PARENT = "KLEAR_PARENT_PID"


def main(descriptor: str, *modules: str) -> None:
    """Serve until the connection ends."""
    # A stop sent to a whole process group must not end the parent of the workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*ASKED, *LEFT})
    caller = Connection(int(descriptor))
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if not _can_be_forked():
        return
    caller.send((0, None))
    workers: dict[int, int] = {}  # pidfd, readable at the end -> pid
    while True:
        for readable in wait([caller, *workers]):
            if readable is not caller:
                pid = workers.pop(readable)
                os.close(readable)
                caller.send((pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
                continue
            try:
                order = caller.recv()
            except (EOFError, OSError):
                os._exit(0)  # at once, and the forks with it: torch takes its time to end
            server, pid = os.getpid(), os.fork()
            if not pid:
                caller.close()
                _work(*order, server)
            workers[os.pidfd_open(pid)] = pid
            caller.send((pid, None))


def _can_be_forked() -> bool:
    """Whether the imports left no threads, which a fork would lack, and did not touch CUDA, whose
    driver cannot be used in a fork of a process that has loaded it."""
    if len(os.listdir("/proc/self/task")) > 1:
        return False
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return "libcuda.so" not in maps


def _work(spec: str, log: str, environment: dict, folder: str, server: int) -> NoReturn:
    """Act as a new process of the worker would, and exit with its code."""
    os.setsid()
    os.chdir(folder)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, file in enumerate((nothing, output, output)):
        os.dup2(file, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ |= environment | {PARENT: str(server)}
    sys.path[:] = dict.fromkeys(os.environ["PYTHONPATH"].split(os.pathsep))
    sys.argv[1:] = [spec]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # The system seeds them at import, so they have to be seeded again in each process.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    # The library may have changed on disk since the server started.
    for name in [name for name in sys.modules if name.partition(".")[0] == "klearlib"]:
        del sys.modules[name]
    code = importlib.import_module("klearlib.run.worker").main([spec])
    # The interpreter's normal exit would touch, and so copy, each page that the server has filled,
    # which takes two seconds.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
