"""One stage or task of a run, and its process: start it, judge its end, stop it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError, ParameterError, StageFailed
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
from klearlib.run.preload import ForkedWorker, NewProcess, worker_environment
from klearlib.run.progress import ProgressRow
from klearlib.run.stage import Stage, is_locked
from klearlib.run.task import Task

STOP_GRACE, STOP_GRACE_S = "KLEAR_STOP_GRACE_S", 60.0
"""Environment variable, and its default: seconds that a stage has to save its state."""
KILLED = 138
"""Exit code of a task whose process was killed."""
STOP_POLL_S = 0.05
NUM_LAST_LINES = 15
MAX_LOG_BYTES = 100_000


class TaskFailed(KlearError):
    """A task ended with an error: `exit_code`, and `lines` that say why."""

    def __init__(self, job: Job, exit_code: int, lines: Sequence[str]):
        super().__init__(f"{job.title} failed: {lines[0]} (log: {job.log})")
        self.exit_code, self.lines = exit_code, list(lines)


@dataclass(frozen=True)
class Failure:
    """What failed and why. skipped: what will not run, because it needs that."""

    item: Stage | Task
    error: KlearError
    skipped: list[Stage | Task]


@dataclass(eq=False, kw_only=True)
class Job(ProgressRow):
    """A stage or task in flight: what is shown of it, and its process."""

    item: Stage | Task
    log: Path  # in the stage's folder
    failure: Failure | None = None  # why it has failed, or is skipped
    process: ForkedWorker | NewProcess | None = None
    slot: int = -1  # its place, -1 if it takes none
    log_start: int = 0  # where this process's lines begin in the log
    began: float = 0.0  # since the epoch, when it started or was first seen to run elsewhere

    @property
    def folder(self) -> Path:
        return self.log.parent

    @property
    def spans_gpus(self) -> bool:
        """Whether the stage asks for GPUs itself, as one of `klearlib.scale.stage` does: it is
        given none, and no other stage runs at the same time."""
        return not self.is_task and "cluster" in self.item.params

    def look_elsewhere(self) -> None:
        """Find out whether another process runs the stage, or has finished it in the meantime.

        Raises DamagedEntry where the finished files are not what it wrote.
        """
        if self.is_task:
            return
        if (self.folder / DONE).exists():
            verify_entry(self.folder)
            self.elapsed_s = read_own_json(self.folder / DONE)["seconds"]
            self.state = "done"
        elif not is_locked(self.folder / LOCK):
            self.state = "waiting"
        elif self.state == "waiting":
            self.state, self.began = "elsewhere", time.time()

    def start(self, slot: int, places) -> None:
        """Start its process at the place `slot`."""
        with one_line_failures(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.log, "ab") as log:
                self.log_start, self.began = log.tell(), time.time()
                self.process = self._started(log, slot, places)
        self.slot, self.state = slot, "running"

    def _started(self, log: BinaryIO, slot: int, places) -> ForkedWorker | NewProcess:
        environment, item = worker_environment(), self.item
        if self.is_task:
            fixed = {name: environment[name] for name in (worker.PARENT, "PYTHONPATH")}
            argument = json.dumps([item.target, item.arguments])
            return NewProcess(task.__name__, argument, log, os.environ | fixed)
        inputs = {name: f"{each.name}/{each.key}" for name, each in item.inputs.items()}
        spec = {"name": item.name, "key": item.key, "label": item.label, "target": item.target}
        spec |= {"params": item.arguments, "inputs": inputs, "code": item.code}
        write_json(self.folder / SPEC, spec)
        return places.start(slot, self.folder / SPEC, log, environment, spans=self.spans_gpus)

    def look(self) -> None:
        """Read the time, and what its process reports of its progress."""
        self.remaining_s = None
        if not self.is_running:
            return
        now = time.time()
        self.elapsed_s = now - self.began
        told = None if self.is_task else read_progress(self.folder)
        if told is None or told["updated"] < self.began:  # of an earlier process
            return
        for name in ("done", "total", "note", "doing", "warning"):
            setattr(self, name, told[name])
        if (steps := told["done"] - told["began_done"]) > 0:
            step_s = (told["updated"] - told["began"]) / steps
            left = (self.total - self.done) * step_s - (now - told["updated"])
            self.remaining_s = max(left, 0.0)

    def end(self) -> None:
        """Account for a process that ended: the job is done, or waits if another process took its
        stage first.

        Raises StageFailed or TaskFailed unless the process did what it should.
        """
        code, self.elapsed_s = self.process.poll(), time.time() - self.began
        if code == worker.BUSY and not self.is_task:
            self.state = "waiting"
        elif code == 0 and (self.is_task or (self.folder / DONE).exists()):
            self.state = "done"
        else:
            raise self._failure(code)

    def _failure(self, code: int) -> StageFailed | TaskFailed:
        lines, prefix = self._last_lines(), worker.ERROR_PREFIX
        told = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        told = told or [f"exit code {code}; its last lines:", *lines[-NUM_LAST_LINES:]]
        stopped = "was stopped from outside" if code == worker.STOPPED else ""
        if code < 0:
            stopped = f"was killed by {signal.Signals(-code).name}"
            stopped += " (often: out of memory)" if -code == signal.SIGKILL else ""
        if self.is_task:
            if stopped:
                code, told = KILLED, [f"its process {stopped}; finished stages are kept"]
            return TaskFailed(self, code, told)
        why = "failed: " + "\n  ".join(told)
        if stopped:
            has_state = (self.folder / CHECKPOINT).exists()
            again = "resumes from its checkpoint" if has_state else "starts it over"
            why = f"{stopped}: running again {again}"
        return StageFailed(f"{self.title} ({self.name}/{self.item.key}) {why} (log: {self.log})")

    def _last_lines(self) -> list[str]:
        with one_line_failures(self.log), open(self.log, "rb") as file:
            file.seek(max(self.log_start, os.fstat(file.fileno()).st_size - MAX_LOG_BYTES))
            text = file.read().decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()]


def stop_grace_s() -> float:
    """Seconds between asking a stage to stop and killing it.

    Raises ParameterError for a value of `STOP_GRACE` that is not a number of seconds.
    """
    given = os.environ.get(STOP_GRACE) or STOP_GRACE_S
    with contextlib.suppress(ValueError):
        if 0 < float(given) < math.inf:
            return float(given)
    raise ParameterError(f"{STOP_GRACE} is {given!r}: give seconds above 0, such as 840")


def stop(running: Sequence[Job]) -> None:
    """Ask the processes to save their state and end; after `stop_grace_s` kill those that have not,
    and all they started."""
    processes = [job.process for job in running]
    for each in processes:
        each.terminate()
    deadline = time.monotonic() + stop_grace_s()
    try:
        while None in [each.poll() for each in processes] and time.monotonic() < deadline:
            time.sleep(STOP_POLL_S)
    finally:  # also on a second Ctrl-C
        for job in running:
            job.process.kill_group()
            job.state = "waiting"
        while None in [each.poll() for each in processes]:
            time.sleep(STOP_POLL_S)
