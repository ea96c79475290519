"""A task: what takes a place beside the stages, such as a notebook to execute.

``python -m klearlib.run.task JSON`` is its process: it calls the target in its main thread, and
dies with its parent, and all that it started with it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.run import worker
from klearlib.run.files import EXPLAINED, write_failure, write_json
from klearlib.run.stage import Stage


@dataclass(eq=False)
class Task:
    """``target(**arguments)``, called in a process of its own.

    name: for people ("notebook 05"). target: "package.module:function"; it raises what it fails
    with, and may give its error an `exit_code` and `lines` that say why. SIGTERM asks it to stop,
    and ends it where it has no handler. arguments: JSON values only. log: the file to which its
    output is appended. needs: stages and tasks that come before it. estimate_s: rough seconds.
    seconds: that it took, when it has ended.
    """

    name: str
    target: str
    arguments: dict
    log: Path
    needs: Sequence[Stage | Task] = ()
    estimate_s: float = 0.0
    seconds: float = field(default=0.0, init=False)

    @property
    def failure_file(self) -> Path:
        """Where its process leaves exit code and lines of a failure."""
        return self.log.with_name(f".{self.log.name}.failure")

    def command(self) -> str:
        """The argument of its process."""
        given = {"target": self.target, "arguments": self.arguments}
        return json.dumps(given | {"failure": str(self.failure_file)})


class TaskFailed(KlearError):
    """A task ended with an error: `exit_code`, and `lines` that say why."""

    def __init__(self, failed: Task, exit_code: int, lines: Sequence[str]):
        super().__init__(f"{failed.name} failed: {lines[0]} (log: {failed.log})")
        self.task, self.exit_code, self.lines = failed, exit_code, list(lines)


def main(argv: Sequence[str]) -> int:
    """Call the target that ``argv[0]`` describes (`Task.command`); the exit code."""
    worker._die_with_parent()
    del os.environ[worker.PARENT]
    given = json.loads(argv[0])
    module, _, function = given["target"].partition(":")
    try:
        getattr(importlib.import_module(module), function)(**given["arguments"])
    except Exception as error:
        code, lines = _told(error)
        write_json(Path(given["failure"]), {"exit_code": code, "lines": lines}, durable=False)
        return code
    return 0


def _told(error: Exception) -> tuple[int, list[str]]:
    if isinstance(error, OSError) and error.errno in EXPLAINED:
        error = write_failure(error, error.filename or "a file")
    if hasattr(error, "exit_code") and hasattr(error, "lines"):
        return error.exit_code, list(error.lines) or [str(error)]
    if isinstance(error, KlearError):
        return error.exit_code, [str(error)]
    traceback.print_exc()
    return 1, [f"{type(error).__name__}: {error}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
