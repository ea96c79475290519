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
            self.seconds = read_own_json(self.folder / DONE, "seconds")["seconds"]
            self.state, self.elsewhere = "done", False
            return
        known, self.elsewhere = self.elsewhere, is_locked(self.folder / LOCK)
        if self.elsewhere and not known:
            self.began = time.time()

    def start(self, slot: int, places, needs: Sequence[Job]) -> None:
        """Start its process at the place `slot`."""
        environment = worker_environment()
        with one_line_failures(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.log, "ab") as log:
                self.log_start, self.began = log.tell(), time.time()
                if self.is_task:
                    fixed = {name: environment[name] for name in (worker.PARENT, "PYTHONPATH")}
                    argument = json.dumps([self.item.target, self.item.arguments])
                    environment = {**os.environ, **fixed}
                    self.process = NewProcess(task.__name__, argument, log, environment)
                else:
                    spec = self.folder / SPEC
                    write_json(spec, self._spec(needs))
                    spans = self.spans_gpus
                    self.process = places.start(slot, spec, log, environment, spans=spans)
        self.slot, self.state = slot, "running"

    def _spec(self, needs: Sequence[Job]) -> dict:
        """What the worker of a stage reads."""
        stage = self.item
        return {
            "name": stage.name,
            "key": self.key,
            "label": stage.label,
            "target": stage.target,
            "params": stage.arguments,
            "inputs": {
                name: f"{each.item.name}/{each.key}"
                for name, each in zip(stage.inputs, needs, strict=True)
            },
            "code": self.code,
        }

    def end(self) -> None:
        """Account for a process that ended: the job is done, or waits where another process was
        quicker to run its stage.

        Raises StageFailed or TaskFailed unless the process did what it should.
        """
        code = self.process.poll()
        self.seconds = time.time() - self.began
        if self.is_task:
            self.item.seconds = self.seconds
        elif code == worker.BUSY:
            self.state = "waiting"
            return
        if code != 0 or not (self.is_task or (self.folder / DONE).exists()):
            raise self._failure(code)
        self.state = "done"

    def _failure(self, code: int) -> StageFailed | TaskFailed:
        how, lines = "", self._last_lines()
        prefix = worker.ERROR_PREFIX
        told = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            how += " (often: out of memory)" if -code == signal.SIGKILL else ""
        last = lines[-NUM_LAST_LINES:]
        if self.is_task:
            if how:
                return TaskFailed(self, KILLED, [f"its process {how}; finished stages are kept"])
            return TaskFailed(self, code, told or [f"exit code {code}; its last lines:", *last])
        who = f"{self.item.title} ({self.item.name}/{self.key})"
        has_state = (self.folder / CHECKPOINT).exists()
        again = f"running again {'resumes from its checkpoint' if has_state else 'starts it anew'}"
        if how or code == worker.STOPPED:
            how = how or "was stopped from outside"
            return StageFailed(f"{who} {how}: {again}; log: {self.log}")
        if told:
            return StageFailed(f"{who} failed: {told[-1]} (log: {self.log})")
        tail = "".join(f"\n  {line}" for line in last)
        why = f"failed with exit code {code}; log: {self.log}; its last lines:{tail}"
        return StageFailed(f"{who} {why}")

    def _last_lines(self) -> list[str]:
        try:
            with open(self.log, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(self.log_start, size - MAX_LOG_BYTES))
                text = file.read().decode(errors="replace")
        except OSError as error:
            return [f"(no log: {error})"]
        return [line for line in text.splitlines() if line.strip()]

    def row(self, needs: tuple[int, ...]) -> ProgressRow:
        """What to show of it; needs: positions of the rows of what comes before it."""
        title = self.item.name if self.is_task else self.item.title
        row = ProgressRow(self.item.name, title, self.state, self.item.estimate_s, self.seconds)
        row = replace(row, needs=needs, is_task=self.is_task)
        if self.state == "running" and self.process.is_queued:
            return replace(row, state="waiting")
        if self.state != "running" and not self.elsewhere:
            return row
        now = time.time()
        row = replace(row, state="running", elapsed_s=now - self.began)
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
