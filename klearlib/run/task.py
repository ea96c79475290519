"""A task: what takes a place alongside the stages, such as a notebook to execute.

``python -m klearlib.run.task JSON`` is its process: it calls the target in its main thread, and
dies with its parent, together with all that it started.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from klearlib.run import worker
from klearlib.run.stage import Stage


@dataclass(eq=False)
class Task:
    """``target(**arguments)``, called in a process of its own.

    name: for people ("notebook 05"). target: "package.module:function"; it raises an error if it
    fails, which may have an `exit_code` and `lines` that say why. SIGTERM asks it to stop, and ends
    it if it has no handler. arguments: JSON values only. log: the file to which its output is
    appended. needs: stages and tasks that come before it. estimate_s: rough seconds.
    """

    name: str
    target: str
    arguments: dict
    log: Path
    needs: Sequence[Stage | Task] = ()
    estimate_s: float = 0.0

    @property
    def title(self) -> str:
        return self.name


def main(argv: Sequence[str]) -> int:
    """Call the target with the arguments in ``argv[0]``, JSON of both; the exit code."""
    worker.die_with_parent()
    del os.environ[worker.PARENT]
    target, arguments = json.loads(argv[0])
    module, _, function = target.partition(":")
    try:
        getattr(importlib.import_module(module), function)(**arguments)
    except Exception as error:
        return worker.tell(error).exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
