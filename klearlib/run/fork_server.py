"""Forks workers that find torch imported: ``python -m klearlib.run.fork_server IDLE_S MODULE...``.

Importing torch and transformers takes longer than a short stage. This process imports them once,
with one thread and without touching CUDA, and forks one child for each stage that it is asked for
over the socket of its standard input; the child is a worker from its first line to its exit code.
What the socket carries is described at `serve`; the other end is `klearlib.run.preloaded`.

Linux alone: the kernel ends this process with its caller and its children with it, and a process
with torch cannot be forked safely on macOS.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from klearlib.run import worker

MAX_MESSAGE, MAX_REQUEST = 65_536, 1_000_000
# What a stage would import in its first seconds, beside its module and what that imports.
_LATER = (
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3.configuration_qwen3",
)


def main(argv: Sequence[str]) -> int:
    """Import the modules, then serve until the caller goes, or until nothing was asked for IDLE_S
    (0: for ever). Returns the exit code, in a child that of its worker."""
    idle_s, *modules = argv
    caller = int(os.environ[worker.PARENT])
    worker.die_with(caller)
    connection = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    before = sources()
    return prepare_and_serve(connection, modules, before, idle_s=float(idle_s))


def prepare_and_serve(
    connection: socket.socket,
    modules: Sequence[str],
    before: dict[str, tuple[int, int]],
    *,
    idle_s: float,
) -> int:
    """Import the modules, say so, then `serve`; the exit code, in a child that of its worker.

    before: the `sources` as they were when the first module of this library was imported here.
    """
    try:
        preload_modules(modules)
    except Exception as error:  # a plain worker will say what is wrong with the code, in its log
        tell(connection, {"broken": f"{type(error).__name__}: {error}"})
        return 1
    if why := unfit():
        tell(connection, {"broken": why})
        return 1
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that holds an object
    tell(connection, {"ready": os.getpid()})
    spec = serve(connection, before, idle_s=idle_s)
    return 0 if spec is None else worker.main([spec])


def serve(
    connection: socket.socket, before: dict[str, tuple[int, int]], *, idle_s: float = 0.0
) -> str | None:
    """Answer requests until the caller closes the socket: None; in a forked child: its spec file.

    One JSON object a message. Asked: ``start`` (number of the request) with ``spec`` (file),
    ``cuda`` (CUDA_VISIBLE_DEVICES or null), ``folder`` and ``umask``, and the log's descriptor
    beside it; ``signal`` (SIGKILL is for its group too) ``to`` a number that was started; nothing,
    which ends the idle time, as both others do. Told, each with ``start``: ``pid``, or ``refused``
    with the reason; and when the worker has ended ``code``, as subprocess gives it.
    """
    running: dict[int, int] = {}  # number of the request -> process
    ended: dict[int, int] = {}  # number of the request -> exit code
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    server, wait_s = os.getpid(), idle_s or None
    with woken, waker, selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(wait_s)]
            if not ready:
                return None
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
            _tell_ended(connection, running, ended)
            if connection not in ready:
                continue
            message, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 1)
            if not message:
                return None
            request, wait_s = json.loads(message), None
            if "to" in request:
                _pass_on(request, running)
                # An interrupt may have cost the caller what it was told before.
                if (number := request["to"]) in ended:
                    tell(connection, {"start": number, "code": ended[number]})
            if "start" not in request:
                continue
            (log,) = descriptors
            if changed := changed_source(before):
                answer = {"refused": f"{changed} changed"}
            else:
                try:
                    process = os.fork()
                except OSError as error:
                    answer = {"refused": str(error)}
                else:
                    if process == 0:
                        signal.set_wakeup_fd(-1)
                        for each in (connection, woken, waker):
                            each.close()
                        _become_worker(request, log, server)
                        return request["spec"]
                    running[request["start"]] = process
                    answer = {"pid": process}
            os.close(log)
            tell(connection, {"start": request["start"], **answer})


def _become_worker(request: dict, log: int, server: int) -> None:
    """Make this fork what a new process with this log and environment would be."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ[worker.PARENT] = str(server)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if request["cuda"] is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = request["cuda"]
    sys.argv[1:] = [request["spec"]]
    # Seeded by the system at their import, and so different in every process.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def _tell_ended(connection: socket.socket, running: dict[int, int], ended: dict[int, int]) -> None:
    for start, process in list(running.items()):
        how = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if how is None:
            continue
        _kill_group(process)  # before its number is free
        _, status = os.waitpid(process, 0)
        del running[start]
        ended[start] = os.waitstatus_to_exitcode(status)
        tell(connection, {"start": start, "code": ended[start]})


def _pass_on(request: dict, running: dict[int, int]) -> None:
    process = running.get(request["to"])
    if process is None:
        return
    if request["signal"] == signal.SIGKILL:
        _kill_group(process)
    os.kill(process, request["signal"])  # it may not lead its group yet


def _kill_group(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def tell(connection: socket.socket, message: dict) -> None:
    """Send a message, if there is somebody to read it."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the caller is gone
        connection.send(json.dumps(message).encode())


def preload_modules(modules: Sequence[str]) -> None:
    """Import them, and what a stage with torch imports in its first seconds."""
    for module in modules:
        importlib.import_module(module)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
        for module in _LATER:
            importlib.import_module(module)


def unfit() -> str:
    """Why this process may not be forked; "" where it may."""
    if (count := len(os.listdir("/proc/self/task"))) > 1:
        return f"the imports started {count - 1} threads"
    # Its driver cannot be used in a fork of a process that has loaded it.
    if "libcuda.so" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace"):
        return "the imports touched CUDA"
    return ""


def sources() -> dict[str, tuple[int, int]]:
    """Time of change and size of every source of this library, taken before it is imported."""
    package = Path(__file__).parents[1]
    return {str(file): _stamp(file) for file in package.rglob("*.py")}


def changed_source(before: dict[str, tuple[int, int]]) -> str:
    """The first file of a module imported here that is no longer what was imported; "" for none."""
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for file, stamp in before.items():
        if file in imported and _stamp(Path(file)) != stamp:
            return file
    return ""


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
