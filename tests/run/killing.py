"""Run toy stages in forked processes that are killed; imported by the fork server's children."""

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

from klearlib.run import worker
from klearlib.run.entry import SPEC
from klearlib.run.stage import Stage

OPERATIONS = ("open", "os.rename", "os.remove", "os.truncate")


def fork_server():
    """Children of a server that has torch, for checkpoints, start in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "killing", "toy_stages"])
    return context


def write_spec(stage: Stage, runs_dir: Path) -> Path:
    folder = stage.folder(runs_dir)
    folder.mkdir(parents=True, exist_ok=True)
    spec = {"target": stage.target, "params": stage.params, "inputs": {}, "code": stage.code}
    (folder / SPEC).write_text(json.dumps(spec))
    return folder / SPEC


def run_worker(spec: str, kill_before: int | None = None) -> None:
    """The worker's main; dies by SIGKILL before its `kill_before`-th operation on its files."""
    if kill_before is not None:
        folder, left = str(Path(spec).parent), [kill_before]

        def hook(event: str, arguments: tuple) -> None:
            if event in OPERATIONS and str(arguments[0]).startswith(folder):
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        sys.addaudithook(hook)
    os.fsync = lambda handle: None  # takes most of the time, and matters for power cuts alone
    worker.GUARD_POLL_S = 0.01  # the server waits for the guard too
    sys.exit(worker.main([spec]))


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(condition, timeout_s: float = 20.0) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
