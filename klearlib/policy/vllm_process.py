"""The trainer's end of a vLLM engine's process: start it, ask it, notice its death, end it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import weakref
from multiprocessing.connection import Connection
from pathlib import Path

from klearlib.policy import vllm_worker

# An engine that has said nothing for so long hangs: it says that it is alive every few seconds
# while it samples, and neither its start nor new weights take half an hour.
SILENT_S = 1800.0
CLOSE_S = 20.0
_CAUSE = re.compile(r"\b([A-Z]\w*(?:Error|Exception): .+)")


class EngineLost(Exception):
    """The process of an engine ended, or hung and was ended."""


class EngineFailed(Exception):
    """What an engine was asked for raised an error there: its one line."""


class EngineProcess:
    """One process with one vLLM engine; see `klearlib.policy.vllm_worker` for what it answers.

    What it and its own processes print goes to a file of no name, which is read when they fail. It
    ends with the thread that started it.

    Args:
        arguments: of `vllm.LLM`.
        environment: its environment variables, beside those of this process.

    Raises:
        EngineFailed: the engine cannot be started.
        EngineLost: it ended before it was ready.
    """

    def __init__(self, arguments: dict, environment: dict[str, str]):
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        source = str(Path(__file__).parents[2])
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            numbers = [str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                [sys.executable, "-m", vllm_worker.__name__, *numbers],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        self._end = weakref.finalize(self, _end, self._process, self._connection, self._log)
        key = bytes(multiprocessing.current_process().authkey)
        try:
            self.device: str = self._exchange((key, arguments))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, name: str, *arguments):
        """The answer of the function `name` there; raises EngineFailed or EngineLost."""
        return self._exchange((name, *arguments))

    def close(self) -> None:
        """End the process, and with it all that it started. May be called twice."""
        self._end()

    def _exchange(self, message: tuple):
        try:
            self._connection.send(message)
            kind = "alive"
            while kind == "alive":
                if not self._connection.poll(SILENT_S):
                    self._process.kill()
                    raise EngineLost(f"it said nothing for {SILENT_S:g} s")
                kind, content = self._connection.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise EngineLost(f"it ended with {how}{self._last_words()}") from error
        if kind == "failed":
            raise EngineFailed(self._root_cause(content))
        return content

    def _printed(self) -> str:
        # By its own offset: the processes write at that of the descriptor.
        size = os.fstat(self._log.fileno()).st_size
        start = max(0, size - 100_000)
        return os.pread(self._log.fileno(), size - start, start).decode(errors="replace")

    def _root_cause(self, line: str) -> str:
        """vLLM's front says of an error in another of its processes only that there was one."""
        if "root cause" in line or "background process" in line:
            found = _CAUSE.findall(self._printed())
            return next((each for each in found if "root cause" not in each), line)
        return line

    def _last_words(self) -> str:
        found = _CAUSE.findall(self._printed())
        return f" ({found[-1]})" if found else ""


def _end(process: subprocess.Popen, connection: Connection, log) -> None:
    """An idle process ends in order; one that does not end is killed."""
    with contextlib.suppress(OSError):
        connection.send(("close",))  # a forked child may hold the socket open
    connection.close()
    try:
        process.wait(CLOSE_S if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    log.close()
