"""One stage or task of a run, and its process: start it, judge its end, stop it."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from klearlib.errors import ParameterError, StageFailed
from klearlib.run import task, worker
from klearlib.run.entry import (
    CHECKPOINT,
    DONE,
    LOCK,
    SPEC,
    read_own_json,
    read_progress,
    verify_entry,
)
from klearlib.run.files import one_line_failures, write_json
from klearlib.run.preload import NewProcess, Worker, worker_environment
from klearlib.run.rows import Row
from klearlib.run.stage import Stage, is_locked
from klearlib.run.task import Task, TaskFailed

STOP_GRACE, STOP_GRACE_S = "KLEAR_STOP_GRACE_S", 60.0
"""Environment variable, and its default: seconds that a stage has to save its state."""
KILLED = 138
"""Exit code of a task whose process was killed."""
STOP_POLL_S = 0.05
NUM_LAST_LINES = 15
MAX_LOG_BYTES = 100_000


@dataclass(eq=False)
class Job:
    """A stage or task with what has become of it."""

    item: Stage | Task
    key: str  # the stage's, like `code` as it was when the run was planned
    folder: Path
    log: Path
    code: str = ""
    needs: tuple[str, ...] = ()  # keys of what comes before
    state: str = "waiting"  # or "running", "done", "failed", "skipped"
    elsewhere: bool = False  # another process runs it
    process: Worker | None = None
    slot: int = -1  # its place, -1 where it takes none
    log_start: int = 0  # where this process's lines begin in the log
    began: float = 0.0  # since the epoch, when it started or was first seen to run elsewhere
    seconds: float = 0.0  # that it took, 0 where it was done before

    @property
    def is_task(self) -> bool:
        return isinstance(self.item, Task)

    @property
    def spans_gpus(self) -> bool:
        """Whether the stage asks for its GPUs by itself, as one of `klearlib.scale.stage` does: it
        is given none, and no other runs beside it."""
        return not self.is_task and "cluster" in self.item.params


def look_elsewhere(job: Job) -> None:
    """Find out whether another process runs the job's stage, or has finished it meanwhile.

    Raises DamagedEntry where what it has finished is not what it wrote.
    """
    if job.is_task:
        return
    if (job.folder / DONE).exists():
        verify_entry(job.folder)
        job.seconds = read_own_json(job.folder / DONE, "seconds")["seconds"]
        job.state, job.elsewhere = "done", False
        return
    known, job.elsewhere = job.elsewhere, is_locked(job.folder / LOCK)
    if job.elsewhere and not known:
        job.began = time.time()


def start(job: Job, slot: int, places, needs: Sequence[Job]) -> None:
    """Start the job's process at the place `slot`."""
    environment = worker_environment()
    with one_line_failures(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        if job.is_task:
            job.item.failure_file.unlink(missing_ok=True)
            fixed = (worker.PARENT, "PYTHONPATH")
            environment = {**os.environ, **{name: environment[name] for name in fixed}}
        else:
            write_json(job.folder / SPEC, _spec(job, needs))
        with open(job.log, "ab") as log:
            job.log_start = log.tell()
            job.began = time.time()
            if job.is_task:
                process = NewProcess(task.__name__, job.item.command(), log, environment)
            else:
                spec = job.folder / SPEC
                process = places.start(slot, spec, log, environment, spans=job.spans_gpus)
    job.process, job.slot, job.state = process, slot, "running"


def _spec(job: Job, needs: Sequence[Job]) -> dict:
    """What the worker of a stage reads."""
    stage = job.item
    return {
        "name": stage.name,
        "key": job.key,
        "label": stage.label,
        "target": stage.target,
        "params": stage.arguments,
        "inputs": {
            name: f"{each.item.name}/{each.key}"
            for name, each in zip(stage.inputs, needs, strict=True)
        },
        "code": job.code,
    }


def end(job: Job) -> None:
    """Account for a process that ended: the job is done, or waits where another process was quicker
    to run its stage.

    Raises StageFailed or TaskFailed unless the process did what it should.
    """
    job.process.kill_group()
    code = job.process.returncode
    if code == worker.BUSY and not job.is_task:
        job.state = "waiting"
        return
    job.seconds = time.time() - job.began
    if job.is_task:
        job.item.seconds = job.seconds
        if code:
            raise _task_failed(job, code)
    elif code or not (job.folder / DONE).exists():
        raise _stage_failed(job, code)
    job.state = "done"


def _stage_failed(job: Job, code: int) -> StageFailed:
    who = f"{job.item.title} ({job.item.name}/{job.key})"
    has_state = (job.folder / CHECKPOINT).exists()
    again = "resumes from its checkpoint" if has_state else "starts it anew"
    if code < 0:
        return StageFailed(f"{who} {_killed_by(code)}: running again {again}; log: {job.log}")
    if code == worker.STOPPED:
        return StageFailed(f"{who} was stopped from outside: running again {again}; log: {job.log}")
    lines = _last_lines(job)
    if told := [line for line in lines if line.startswith(worker.ERROR_PREFIX)]:
        line = told[-1].removeprefix(worker.ERROR_PREFIX)
        return StageFailed(f"{who} failed: {line} (log: {job.log})")
    tail = "".join(f"\n  {line}" for line in lines[-NUM_LAST_LINES:])
    return StageFailed(f"{who} failed with exit code {code}; log: {job.log}; its last lines:{tail}")


def _task_failed(job: Job, code: int) -> TaskFailed:
    if job.item.failure_file.exists():
        told = json.loads(job.item.failure_file.read_text(encoding="utf-8"))
        job.item.failure_file.unlink()
        return TaskFailed(job.item, told["exit_code"], told["lines"])
    if code < 0:
        line = f"its process {_killed_by(code)}; finished stages are kept"
        return TaskFailed(job.item, KILLED, [line])
    lines = [f"exit code {code}; its last lines:", *_last_lines(job)[-NUM_LAST_LINES:]]
    return TaskFailed(job.item, code, lines)


def _killed_by(code: int) -> str:
    reason = " (often: out of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{reason}"


def _last_lines(job: Job) -> list[str]:
    try:
        with open(job.log, "rb") as file:
            file.seek(max(job.log_start, os.fstat(file.fileno()).st_size - MAX_LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return [f"(no log: {error})"]
    return [line for line in text.splitlines() if line.strip()]


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


def stop(running: Sequence[Job]) -> None:
    """Ask the processes to save their state and end; after `stop_grace_s` kill those that have not,
    and all they started."""
    for job in running:
        job.process.terminate()
    deadline = time.monotonic() + stop_grace_s()
    try:
        while _any_runs(running) and time.monotonic() < deadline:
            time.sleep(STOP_POLL_S)
    finally:  # also on a second Ctrl-C
        for job in running:
            job.process.kill_group()
            job.state = "waiting"
        while _any_runs(running):
            time.sleep(STOP_POLL_S)


def _any_runs(jobs: Sequence[Job]) -> bool:
    return None in [job.process.poll() for job in jobs]


def row_of(job: Job, needs: tuple[int, ...]) -> Row:
    """What to show of it; needs: positions of the rows of what comes before it."""
    title = job.item.name if job.is_task else job.item.title
    row = Row(job.item.name, title, job.state, job.item.estimate_s, job.seconds)
    row = replace(row, needs=needs, is_task=job.is_task)
    if job.state == "running" and job.process.is_queued:
        return replace(row, state="waiting")
    if job.state != "running" and not job.elsewhere:
        return row
    now = time.time()
    row = replace(row, state="running", elapsed_s=now - job.began)
    told = None if job.is_task else read_progress(job.folder)
    if told is None or told["updated"] < job.began:  # of an earlier process
        return row
    row = replace(row, **{name: told.get(name, "") for name in ("note", "doing", "warning")})
    row = replace(row, done=told["done"], total=told["total"])
    steps = told["done"] - told["began_done"]
    if steps <= 0:
        return row
    step_s = (told["updated"] - told["began"]) / steps
    left = (told["total"] - told["done"]) * step_s - (now - told["updated"])
    return replace(row, remaining_s=max(left, 0.0), step_s=step_s)
