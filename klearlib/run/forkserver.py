"""A process that has imported torch once, and forks the processes of stages.

``python -P -m klearlib.run.forkserver MODULE ...`` imports the modules and then writes
``{"ready": true}`` to its standard output. From then on it reads a JSON object a line:
``{"worker": 3, ...}`` forks worker 3, which is answered by ``{"worker": 3, "pid": ...}`` and at its
end by ``{"worker": 3, "code": ...}``. It ends with its standard input, and the kernel ends its
forks with it. `klearlib.run.preload` is the other end.

The standard library's forkserver would block the caller until the imports are done, import the
caller's main module again in every fork, and take its environment from the caller's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
from pathlib import Path

from klearlib.run.stops import ASKED, LEFT

PARENT = "KLEAR_PARENT_PID"


def main(modules: list[str]) -> None:
    """Serve until standard input ends; returns in a fork only, which is a worker then."""
    # A stop that is for a whole group of processes must not end the parent of the workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*ASKED, *LEFT})
    answers = os.dup(1)
    os.dup2(2, 1)  # what an import prints is no answer
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if not _can_be_forked():
        return
    _tell(answers, ready=True)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # any handler: the descriptor is what wakes
    workers: dict[int, int] = {}  # pid -> number
    orders = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
        if 0 in readable:
            received = os.read(0, 65536)
            if not received:
                return
            *lines, orders = (orders + received).split(b"\n")
            for order in map(json.loads, lines):
                server, pid = os.getpid(), os.fork()
                if not pid:
                    return _work(order, server)
                workers[pid] = order["worker"]
                _tell(answers, worker=order["worker"], pid=pid)
        for pid in list(workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                _tell(answers, worker=workers.pop(pid), code=code)


def _can_be_forked() -> bool:
    """Whether the imports left no threads, which no fork has, and did not touch CUDA, whose driver
    cannot be used in a fork of a process that has loaded it."""
    if len(os.listdir("/proc/self/task")) > 1:
        return False
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return "libcuda.so" not in maps


def _tell(answers: int, **answer: object) -> None:
    os.write(answers, json.dumps(answer).encode() + b"\n")


def _work(order: dict, server: int) -> None:
    """Be what a new process of the worker would be, and exit with its code."""
    os.setsid()
    os.chdir(order["folder"])
    os.umask(order["umask"])
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, file in enumerate((nothing, log, log)):
        os.dup2(file, standard)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for name, value in order["environment"].items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    os.environ[PARENT] = str(server)
    sys.path[:] = dict.fromkeys(os.environ["PYTHONPATH"].split(os.pathsep))
    sys.argv[1:] = [order["spec"]]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Seeded by the system at their import, and so to be different in every process.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    # The library may have changed on disk since the server started.
    for name in [name for name in sys.modules if name.partition(".")[0] == "klearlib"]:
        del sys.modules[name]
    sys.exit(importlib.import_module("klearlib.run.worker").main([order["spec"]]))


if __name__ == "__main__":
    main(sys.argv[1:])
