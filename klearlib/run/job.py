"""One stage or task of a run, and its process: start it, judge its end, stop it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from klearlib.run.preload import NewProcess, Worker, worker_environment
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
        super().__init__(f"{job.item.name} failed: {lines[0]} (log: {job.log})")
        self.exit_code, self.lines = exit_code, list(lines)


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

    def look_elsewhere(self) -> None:
        """Find out whether another process runs the stage, or has finished it meanwhile.

        Raises DamagedEntry where what it has finished is not what it wrote.
        """
        if self.is_task:
            return
        if (self.folder / DONE).exists():
            verify_entry(self.folder)
            self.seconds = read_own_json(self.folder / DONE)["seconds"]
            self.state, self.elsewhere = "done", False
            return
        known, self.elsewhere = self.elsewhere, is_locked(self.folder / LOCK)
        if self.elsewhere and not known:
            self.began = time.time()

    def start(self, slot: int, places, needs: Sequence[Job]) -> None:
        """Start its process at the place `slot`."""
        environment, item = worker_environment(), self.item
        with one_line_failures(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.log, "ab") as log:
                self.log_start, self.began = log.tell(), time.time()
                if self.is_task:
                    fixed = {name: environment[name] for name in (worker.PARENT, "PYTHONPATH")}
                    argument = json.dumps([item.target, item.arguments])
                    environment = {**os.environ, **fixed}
                    self.process = NewProcess(task.__name__, argument, log, environment)
                else:
                    each = zip(item.inputs, needs, strict=True)
                    inputs = {name: f"{need.item.name}/{need.key}" for name, need in each}
                    spec = {"name": item.name, "key": self.key, "label": item.label}
                    spec |= {"target": item.target, "params": item.arguments}
                    write_json(self.folder / SPEC, spec | {"inputs": inputs, "code": self.code})
                    self.process = places.start(
                        slot, self.folder / SPEC, log, environment, spans=self.spans_gpus
                    )
        self.slot, self.state = slot, "running"

    def end(self) -> None:
        """Account for a process that ended: the job is done, or waits where another process was
        quicker to run its stage.

        Raises StageFailed or TaskFailed unless the process did what it should.
        """
        code = self.process.poll()
        self.seconds = time.time() - self.began
        if code == worker.BUSY and not self.is_task:
            self.state = "waiting"
            return
        if code != 0 or not (self.is_task or (self.folder / DONE).exists()):
            raise self._failure(code)
        self.state = "done"

    def _failure(self, code: int) -> StageFailed | TaskFailed:
        lines, prefix = self._last_lines(), worker.ERROR_PREFIX
        told = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        last = lines[-NUM_LAST_LINES:]
        stopped = "was stopped from outside" if code == worker.STOPPED else ""
        if code < 0:
            stopped = f"was killed by {signal.Signals(-code).name}"
            stopped += " (often: out of memory)" if -code == signal.SIGKILL else ""
        if self.is_task:
            if code < 0:
                line = f"its process {stopped}; finished stages are kept"
                return TaskFailed(self, KILLED, [line])
            return TaskFailed(self, code, told or [f"exit code {code}; its last lines:", *last])
        who = f"{self.item.title} ({self.item.name}/{self.key})"
        if stopped:
            has_state = (self.folder / CHECKPOINT).exists()
            again = "resumes from its checkpoint" if has_state else "starts it anew"
            return StageFailed(f"{who} {stopped}: running again {again}; log: {self.log}")
        if told:
            return StageFailed(f"{who} failed: {told[-1]} (log: {self.log})")
        tail = "".join(f"\n  {line}" for line in last)
        why = f"failed with exit code {code}; log: {self.log}; its last lines:{tail}"
        return StageFailed(f"{who} {why}")

    def _last_lines(self) -> list[str]:
        with one_line_failures(self.log), open(self.log, "rb") as file:
            file.seek(max(self.log_start, os.fstat(file.fileno()).st_size - MAX_LOG_BYTES))
            text = file.read().decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()]

    def row(self, needs: tuple[int, ...]) -> ProgressRow:
        """What to show of it; needs: positions of the rows of what comes before it."""
        item, state = self.item, "running" if self.elsewhere else self.state
        row = ProgressRow(
            *(item.name, item.title, state, item.estimate_s, self.seconds),
            needs=needs,
            is_task=self.is_task,
        )
        if state != "running":
            return row
        now = time.time()
        row = replace(row, elapsed_s=now - self.began)
        progress = None if self.is_task else read_progress(self.folder)
        if progress is None or progress["updated"] < self.began:  # of an earlier process
            return row
        shown = ("done", "total", "note", "doing", "warning")
        row = replace(row, **{name: progress[name] for name in shown})
        steps = progress["done"] - progress["began_done"]
        if steps <= 0:
            return row
        step_s = (progress["updated"] - progress["began"]) / steps
        left = (row.total - row.done) * step_s - (now - progress["updated"])
        return replace(row, remaining_s=max(left, 0.0))


def stop_grace_s() -> float:
    """Seconds between asking a stage to stop and killing it.

    Raises ParameterError for a value of `STOP_GRACE` that is no number of seconds.
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
