"""One stage of a fan-out and the worker process that runs it: start it, judge its end, stop it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import ParameterError, StageFailed
from klearlib.run import worker
from klearlib.run.entry import CHECKPOINT, DONE, LOCK, LOG, SPEC, read_own_json, verify_entry
from klearlib.run.files import one_line_failures, write_json
from klearlib.run.preloaded import Worker, worker_environment
from klearlib.run.stage import Stage, is_locked

STOP_GRACE, STOP_GRACE_S = "KLEAR_STOP_GRACE_S", 60.0
"""Environment variable, and its default: seconds that a stage has to save its state."""
NUM_LAST_LINES = 15
MAX_LOG_BYTES = 100_000


@dataclass
class Job:
    """A stage with its place in one call of `run_stages`.

    key, code: the stage's, as they were when the run was planned. needs: keys of the upstream
    stages. slot: -1 while no worker of ours runs it. elsewhere: another process runs it. log_start:
    where this process's lines begin in the log. began: seconds since the epoch, when it started or
    was first seen to run elsewhere; seconds: that it took.
    """

    stage: Stage
    key: str
    folder: Path
    code: str
    needs: tuple[str, ...]
    cached: bool
    process: Worker | None = None
    slot: int = -1
    elsewhere: bool = False
    log_start: int = 0
    began: float = 0.0
    seconds: float = 0.0
    finished: bool = field(init=False)

    def __post_init__(self) -> None:
        self.finished = self.cached


def stop_grace_s() -> float:
    """Seconds between asking a stage to stop and killing it.

    Raises ParameterError for a value of `STOP_GRACE` that is no number of seconds.
    """
    given = os.environ.get(STOP_GRACE, "")
    try:
        seconds = float(given or STOP_GRACE_S)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ParameterError(f"{STOP_GRACE} is {given!r}: give seconds above 0, such as 840")
    return seconds


def look_elsewhere(job: Job) -> None:
    """Find out whether another process runs the job's stage, or has finished it meanwhile.

    Raises DamagedEntry where what it has finished is not what it wrote.
    """
    if (job.folder / DONE).exists():
        verify_entry(job.folder)
        job.seconds = read_own_json(job.folder / DONE, "seconds")["seconds"]
        job.finished, job.elsewhere = True, False
        return
    known, job.elsewhere = job.elsewhere, is_locked(job.folder / LOCK)
    if job.elsewhere and not known:
        job.began = time.time()


def spans_gpus(stage: Stage) -> bool:
    """Whether the stage asks for its GPUs by itself, as one of `klearlib.scale.stage` does: it is
    given none, and no other runs beside it."""
    return "cluster" in stage.params


Begin = Callable[[Stage, int, Path, BinaryIO, dict[str, str]], Worker]
"""Starts the worker of a stage at a place: see `start` of `klearlib.run.places.LocalPlaces`."""


def start(job: Job, *, slot: int, begin: Begin) -> None:
    """Start the job's worker by `begin`, at the place that has the number `slot`."""
    stage = job.stage
    with one_line_failures(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        spec = {
            "name": stage.name,
            "key": job.key,
            "label": stage.label,
            "target": stage.target,
            "params": stage.arguments,
            "inputs": {
                name: f"{upstream.name}/{key}"
                for (name, upstream), key in zip(stage.inputs.items(), job.needs, strict=True)
            },
            "code": job.code,
        }
        write_json(job.folder / SPEC, spec)
        with open(job.folder / LOG, "ab") as log:
            job.log_start = log.tell()
            job.began, job.slot = time.time(), slot
            job.process = begin(stage, slot, job.folder / SPEC, log, worker_environment())


def end(job: Job) -> None:
    """Account for a worker that ended; raises StageFailed unless it did what it should, or found
    another process at work: then the job is not finished."""
    job.process.kill_group()
    job.seconds, job.slot = time.time() - job.began, -1
    code = job.process.returncode
    if code == 0 and (job.folder / DONE).exists():
        job.finished = True
        return
    if code == worker.BUSY:
        return
    log = job.folder / LOG
    who = f"{job.stage.title} ({job.stage.name}/{job.key})"
    has_state = (job.folder / CHECKPOINT).exists()
    again = "resumes from its checkpoint" if has_state else "starts it anew"
    lines = _last_lines(log, job.log_start)
    if code < 0:
        number = signal.Signals(-code).name
        reason = " (often: out of memory)" if -code == signal.SIGKILL else ""
        raise StageFailed(
            f"{who} was killed by {number}{reason}: running again {again}; log: {log}"
        )
    if code == worker.STOPPED:
        raise StageFailed(f"{who} was stopped from outside: running again {again}; log: {log}")
    if told := [line for line in lines if line.startswith(worker.ERROR_PREFIX)]:
        line = told[-1].removeprefix(worker.ERROR_PREFIX)
        raise StageFailed(f"{who} failed: {line} (log: {log})")
    tail = "".join(f"\n  {line}" for line in lines[-NUM_LAST_LINES:])
    raise StageFailed(f"{who} failed with exit code {code}; log: {log}; its last lines:{tail}")


def _last_lines(log: Path, start: int) -> list[str]:
    try:
        with open(log, "rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - MAX_LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return [f"(no log: {error})"]
    return [line for line in text.splitlines() if line.strip()]


def stop(running: list[Job]) -> None:
    """Ask the workers to save their state and end; after `stop_grace_s` kill those that have not,
    and all they started."""
    for job in running:
        job.process.terminate()
    deadline = time.monotonic() + stop_grace_s()
    try:
        for job in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(max(deadline - time.monotonic(), 0.0))
    finally:  # also on a second Ctrl-C
        for job in running:
            job.process.kill_group()
            job.process.wait()
            job.slot = -1
