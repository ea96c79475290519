"""The process that executes notebooks, one after another: ``python -m klearlib.run.executor``.

Each place of `klear run` has one, so that notebooks run side by side: papermill wants the main
thread of its process for its event loop and for the signals that stop it, and importing it takes
seconds, which one process pays once for all its notebooks. It ends with the runner, and its kernel
with it. What its socket (its standard input) carries is described at `main`; the other end is
`Executor`.
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
import time
from collections.abc import Mapping
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.run.kernel import (
    EXIT_FAILED,
    EXIT_KERNEL_DIED,
    NotebookError,
    StopSignals,
    execute,
    library_path,
)
from klearlib.run.worker import PARENT, die_with

MAX_MESSAGE, MAX_LINES, MAX_LINE = 200_000, 30, 1_000
END_S = 10.0
"""Seconds that an executor with nothing left to do may take to end."""


def main() -> int:
    """Execute what is asked for until the caller goes; the exit code.

    One JSON object a message. Asked: ``source``, ``output``, ``values``, ``root`` and ``log`` of
    `klearlib.run.kernel.execute`. Told, when the notebook has ended: its exit ``code``, ``lines``
    that say why where it is not 0, ``seconds``. SIGTERM and SIGINT stop the kernel, which saves its
    state, and then this process; a second one kills the kernel.
    """
    die_with(int(os.environ[PARENT]))
    with StopSignals() as signals:
        try:
            connection = socket.socket(fileno=os.dup(0))
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)
            while message := connection.recv(MAX_MESSAGE):
                answer = json.dumps(_answer(json.loads(message), signals), ensure_ascii=False)
                connection.send(answer.encode(errors="replace"))
        except KeyboardInterrupt:
            return signals.exit_code
        except (BrokenPipeError, ConnectionResetError):  # the caller has gone
            return EXIT_FAILED
    return 0


def _answer(asked: dict, signals: StopSignals) -> dict:
    from klearlib.report.executed import render_notebook
    from klearlib.run.files import write_failure

    begun = time.monotonic()
    output = Path(asked["output"])
    code, lines = 0, []
    try:
        execute(
            Path(asked["source"]),
            output,
            asked["values"],
            root=Path(asked["root"]),
            log=Path(asked["log"]),
            signals=signals,
        )
        render_notebook(output, output.with_suffix(".html"))
    except NotebookError as error:
        code, lines = error.exit_code, error.lines
    except KlearError as error:
        code, lines = error.exit_code, [str(error)]
    except OSError as error:
        code, lines = EXIT_FAILED, [str(write_failure(error, error.filename or output))]
    return {"code": code, "lines": _that_fit(lines), "seconds": time.monotonic() - begun}


def _that_fit(lines: list[str]) -> list[str]:
    """`lines` short enough for one message: their beginning says where, their end why."""
    lines = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} ..." for line in lines]
    half = MAX_LINES // 2
    return lines if len(lines) <= MAX_LINES else [*lines[:half], "  ...", *lines[-half:]]


class Executor:
    """A running executor as its caller sees it. variables: of its environment, and its kernels'."""

    def __init__(self, variables: Mapping[str, str]):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "klearlib.run.executor"],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **library_path(), **variables, PARENT: str(os.getpid())},
                start_new_session=True,  # a terminal's Ctrl-C is for us to pass on
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Of the socket, which can be read when there is an answer or the process has ended."""
        return self._socket.fileno()

    def ask(self, request: dict) -> None:
        """Have a notebook executed; see `main`."""
        # Where it has ended, the answer will say so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.send(json.dumps(request).encode())

    def answer(self) -> dict | None:
        """What `main` tells, None while the notebook runs."""
        if not select.select([self._socket], [], [], 0)[0]:
            return None
        try:
            message = self._socket.recv(MAX_MESSAGE)
        except ConnectionResetError:
            message = b""
        if message:
            return json.loads(message)
        code = self._ended()
        reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        line = f"the process that executes the notebook {reason}; finished stages are kept"
        return {"code": EXIT_KERNEL_DIED, "lines": [line], "seconds": 0.0}

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Ask it to have the kernel save its state, and to end; asked again it kills the kernel."""
        self._process.terminate()

    def kill(self) -> None:
        """End it, and what it runs, at once."""
        self._process.kill()

    def close(self) -> None:
        """Wait for its end, which comes when it has nothing left to do, or end it."""
        self._socket.close()
        self._ended()

    def _ended(self) -> int:
        """The exit code of the process, which is killed where it does not end by itself."""
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()


if __name__ == "__main__":
    sys.exit(main())
