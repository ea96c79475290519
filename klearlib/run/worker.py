"""The process of one stage: ``python -m klearlib.run.worker SPEC.json``, or a fork of
`klearlib.run.preload` that does the same.

It computes with one thread, so that a sum has the same order on every machine with the same
kernels; holds the folder's lock, so that a stage never runs twice at a time; saves its state when
asked to stop; and dies, with all that it started, when its parent does. Exit codes: 0 done,
`STOPPED` stopped with the state saved, `BUSY` another process runs the stage, 1 an error, with its
text at the end of log.txt: one line if a user may have caused it, as for every ValueError.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError, Stopped
from klearlib.run.entry import DONE, LOCK, verify_entry
from klearlib.run.files import EXPLAINED, write_failure
from klearlib.run.fingerprint import code_fingerprint
from klearlib.run.folder import RunFolder
from klearlib.run.forkserver import PARENT
from klearlib.run.stops import ASKED, LEFT, die_with

STOPPED, BUSY = 3, 4
ERROR_PREFIX = "klear: "
"""The start of the lines of a log that say why a worker failed."""
LOCK_POLL_S, LOCK_TRIES = 0.05, 4
GUARD_POLL_S = 0.3


def main(argv: list[str]) -> int:
    """Run the stage that the file ``argv[0]`` describes (written by `job.start`); the exit code."""
    die_with_parent()
    stopping: list[int] = []
    for number in ASKED:
        signal.signal(number, lambda caught, frame: stopping.append(caught))
    try:
        return _run(Path(argv[0]), lambda: bool(stopping))
    except Stopped as error:
        print(f"stopped: {error}", flush=True)
        return STOPPED
    except Exception as error:
        tell(error)
        return 1


def tell(error: Exception) -> KlearError:
    """Print why a stage or task failed, in lines that `klearlib.run.job` looks for in the log; the
    error in these words. If it is not the user's or the machine's fault, the log also has the
    traceback."""
    if isinstance(error, OSError) and error.errno in EXPLAINED:
        error = write_failure(error, error.filename or "a file")
    if not hasattr(error, "exit_code"):
        traceback.print_exc()
        error = KlearError(f"{type(error).__name__}: {' '.join(str(error).split())}")
    for line in "\n".join(getattr(error, "lines", [str(error)])).splitlines():
        print(f"{ERROR_PREFIX}{line}", flush=True)
    return error


def _run(spec_file: Path, stop_requested: Callable[[], bool]) -> int:
    """The exit code of a run that raises nothing."""
    folder = RunFolder(spec_file.parent, stop_requested=stop_requested)
    runs_dir = spec_file.parent.parent.parent
    with open(folder.path / LOCK, "wb") as lock:
        if not _locks(lock):
            return BUSY
        if (folder.path / DONE).exists():
            return 0  # another notebook has run it since this one looked
        spec = json.loads(spec_file.read_text(encoding="utf-8"))
        module, _, function = spec["target"].partition(":")
        if code_fingerprint(module) != spec["code"]:
            raise KlearError(
                f"the code of {module} changed since this run was planned: run again (in a "
                "notebook, restart the kernel first)"
            )
        target = getattr(importlib.import_module(module), function)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        if stop_requested():
            raise Stopped("a stop was asked for before the first step")
        inputs = {name: runs_dir / place for name, place in spec["inputs"].items()}
        for place in inputs.values():
            verify_entry(place, hash_below=math.inf)
        target(folder, inputs, **spec["params"])
        folder.finish()
    return 0


def _locks(lock: BinaryIO) -> bool:
    """Lock the file, which the system frees however this process ends; whether it succeeded.

    If another process runs the stage, whoever waits for it must not hold a worker's place
    meanwhile.
    """
    # A forked child would keep the lock as long as it outlives us.
    os.register_at_fork(after_in_child=lock.close)
    for _ in range(LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(LOCK_POLL_S)  # `stage.folder_state` holds it for a moment to look
    return False


def die_with_parent() -> None:
    """Leave nothing behind: the parent's end kills this process, and its end all that it started.

    On Linux the kernel does the first; a forked guard, which outlives this process by a moment,
    does the second by killing its process group. Elsewhere the guard does both.
    """
    parent, worker = int(os.environ.get(PARENT, os.getppid())), os.getpid()
    if os.getpgrp() != worker:
        os.setpgid(0, 0)
    die_with(parent)
    if os.fork() == 0:
        for number in (*ASKED, *LEFT):
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(OSError):  # the parent no longer exists
            while os.getppid() == worker:
                os.kill(parent, 0)
                time.sleep(GUARD_POLL_S)
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
