"""The sandbox as its judge sees it: the fork server, and the process of one program at a time."""

from __future__ import annotations

import array
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from klearlib.verify import sandbox_server
from klearlib.verify.sandbox_child import Limits
from klearlib.verify.sandbox_server import ENDING, MAX_STRETCH, REQUEST, REQUESTS

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
# The hooks that random and threading would run in every child are for forks beside other threads.
_START = """
import os, sys
sys.path.insert(0, sys.argv[1])
register, os.register_at_fork = os.register_at_fork, lambda **hooks: None
from {module} import main
os.register_at_fork = register
main(sys.argv[2], int(sys.argv[3]))
"""
_READY_TIMEOUT_S = 60.0
_SLACK_S = 30.0
# LD_LIBRARY_PATH: a Python of its own may need it to start.
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "TZ")
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # -I would ignore it, and the order of sets would differ
    "PYTHONUTF8": "1",
    "ONLINE_JUDGE": "1",  # as on Codeforces: programs that read files elsewhere ask for it
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # an arena per thread would fill the address space
}


class SandboxEndedError(Exception):
    """The fork server is gone, or never came up; the message says why where it is known."""


class Ending(NamedTuple):
    """How a child ended. `status`: exit status, or minus the number of the signal."""

    status: int
    timed_out: bool
    folder_full: bool
    cpu_s: float


class SandboxProcess:
    """A running fork server of one tier. Not for several threads at once."""

    def __init__(self, tier: str) -> None:
        # a message is whole or absent
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        with theirs:
            self._keeper = subprocess.Popen(
                [
                    *(sys.executable, "-s", "-P", "-B", "-W", "ignore", "-c"),
                    _START.format(module=sandbox_server.__name__),
                    *(_PACKAGE_ROOT, tier, str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                env={**_ENVIRONMENT, **kept, "TMPDIR": tempfile.gettempdir()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        self._folder: str | None = None
        greeting = json.loads(_receive(self._socket, time.monotonic() + _READY_TIMEOUT_S))
        if "fatal" in greeting:
            self.close()
            raise SandboxEndedError(greeting["fatal"])
        self._folder = greeting["folder"]

    def program(self, limits: Limits) -> SandboxProgram:
        """A process for one program; the one before must be closed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                _send(self._socket, json.dumps(asdict(limits)).encode(), [theirs.fileno()])
            except SandboxEndedError:
                ours.close()
                raise
        return SandboxProgram(ours)

    def close(self) -> None:
        """End the fork server and all its children, and wait until its folder is gone."""
        self._socket.close()
        try:
            self._keeper.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        if self._folder is not None:  # the keeper may have been killed
            shutil.rmtree(self._folder, ignore_errors=True)


class SandboxProgram:
    """One program in the sandbox, to be closed after its last test."""

    def __init__(self, control: socket.socket) -> None:
        self._socket = control
        self._endings: dict[int, Ending] = {}
        self._deadlines: dict[int, float] = {}

    def close(self) -> None:
        """End its process and all children of it."""
        self._socket.close()

    def start(self, role: str, descriptors: Sequence[int], *, timeout_s: float) -> int:
        """Begin a child's task, a word of `sandbox_child.ROLES`; its key.

        descriptors: stdin, stdout, report and, for some roles, the source or a channel.
        """
        key = secrets.randbits(62)  # a program can read it: it must not count the tests
        self._deadlines[key] = time.monotonic() + MAX_STRETCH * timeout_s + _SLACK_S
        _send(self._socket, REQUEST.pack(REQUESTS.index(role), key, timeout_s), descriptors)
        return key

    def load(self, code: int) -> bool:
        """Hand over the compiled program; False where it does not fit into its memory limit."""
        key = self.start("load", [code], timeout_s=_SLACK_S)
        return self.ending(key).status == 0

    def stop(self, key: int) -> None:
        """Kill a child that may still run."""
        if key not in self._endings:
            _send(self._socket, REQUEST.pack(REQUESTS.index("stop"), key, 0.0))

    def ending(self, key: int) -> Ending:
        """Wait for a child's end. SandboxEndedError where the sandbox is gone or hangs."""
        deadline = self._deadlines.pop(key)
        while key not in self._endings:
            ended, *how = ENDING.unpack(_receive(self._socket, deadline))
            self._endings[ended] = Ending(*how)
        return self._endings.pop(key)


def _send(control: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    try:
        control.sendmsg([message], rights if descriptors else [])
    except OSError as error:
        raise SandboxEndedError(str(error)) from error


def _receive(control: socket.socket, deadline: float) -> bytes:
    control.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        message = control.recv(1 << 16)
    except OSError as error:  # TimeoutError too: a sandbox that hangs is of no use
        raise SandboxEndedError(str(error)) from error
    if not message:
        raise SandboxEndedError("a process of the sandbox ended")
    return message
