"""One process that imports torch for all notebooks of a run.

Each notebook's fan-out has a fork server of its own (`klearlib.run.fork_server`), and importing
torch and transformers costs more than many a stage. In a run of several notebooks these servers are
forks of this process, which imports the two when the first server is asked for. Who asks connects
to the socket that is this process's standard input, and sends one JSON object: the ``environment``,
the ``folder`` and the ``idle_s`` of the server and the ``modules`` that it imports. From then on
the connection is that of `fork_server.serve`; its end is the end of the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence

from klearlib.run import fork_server, worker
from klearlib.run.progress import PROGRESS_LOG

SHARED = "KLEAR_SHARED_SERVER"
HEAVY = ("torch",)
# Set for a kernel, or by libraries that it has imported, with no effect on what was imported here.
_OWN = {worker.PARENT, PROGRESS_LOG, SHARED, "CUDA_VISIBLE_DEVICES", "KLEAR_ROOT", "PYTHONPATH"}
_OWN |= {"TERM", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "PAGER", "GIT_PAGER", "MPLBACKEND"}
_OWN |= {"PYDEVD_USE_FRAME_EVAL", "TORCHINDUCTOR_CACHE_DIR", "COLUMNS", "LINES"}


@contextlib.contextmanager
def shared_server(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Keep such a process during the block; gives the variable by which `connect` finds it.

    environment: of the process. Where this system cannot have one, there is no variable.
    """
    if sys.platform != "linux":
        yield {}
        return
    name = f"klear-{os.getpid()}-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("\0" + name)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "klearlib.run.shared_server"],
            stdin=listener,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    try:
        yield {SHARED: name}
    finally:
        process.kill()
        process.wait()


def connect(
    environment: dict[str, str], modules: Sequence[str], *, idle_s: float
) -> socket.socket | None:
    """The socket of a new fork server with `modules`, None where no process is shared.

    environment, idle_s: of the server; see `fork_server.serve` for what to ask of it.
    """
    if not (name := os.environ.get(SHARED)):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked = {"environment": environment, "folder": os.getcwd(), "modules": list(modules)}
    asked["idle_s"] = idle_s
    try:
        connection.connect("\0" + name)
        connection.send(json.dumps(asked).encode())
    except OSError:  # it has gone, or it would be too long a message
        connection.close()
        return None
    return connection


def main() -> int:
    """Fork a server for each connection until the parent goes; in a server, and in a worker that
    it has forked, the exit code."""
    parent = int(os.environ[worker.PARENT])
    worker.die_with(parent)
    listener = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    before = fork_server.sources()
    known = dict(os.environ)
    own = os.getpid()
    while True:
        connection, _ = listener.accept()
        if not _is_ours(connection):
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        fork_server.preload_modules(HEAVY)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the servers are nobody's to wait for
        if why := fork_server.unfit():
            fork_server.tell(connection, {"broken": why})
        elif os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            os.setsid()
            worker.die_with(own)
            return _serve(connection, known, before)
        connection.close()


def _is_ours(connection: socket.socket) -> bool:
    """Whether a process of the same user asks: it may have anything run here."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    return struct.unpack("3i", credentials)[1] == os.getuid()


def _serve(connection: socket.socket, known: dict[str, str], before: dict) -> int:
    message = connection.recv(fork_server.MAX_REQUEST)
    if not message:
        return 0
    asked = json.loads(message)
    wanted = asked["environment"]
    differs = {name for name in known.keys() | wanted.keys() if known.get(name) != wanted.get(name)}
    if differs := sorted(differs - _OWN - {n for n in differs if n.startswith("JPY_")}):
        fork_server.tell(connection, {"broken": f"{differs[0]} differs"})
        return 1
    os.environ.clear()
    os.environ.update(wanted)
    os.environ[worker.PARENT] = str(os.getppid())
    places = wanted["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = dict.fromkeys([*places, *sys.path])  # as a new process has them
    os.chdir(asked["folder"])
    return fork_server.prepare_and_serve(
        connection, asked["modules"], before, idle_s=asked["idle_s"]
    )


if __name__ == "__main__":
    sys.exit(main())
