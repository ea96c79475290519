"""Runs stages with all that they need, and tasks beside them: one graph, several at a time, each in
a process of its own.

None of these outlives the call, however it ends: they are asked to stop (and save their state) when
it is interrupted or something fails, and die with this process when it is killed.
"""

from __future__ import annotations

import contextlib
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError
from klearlib.run.entry import DONE, LOG, verify_entry
from klearlib.run.job import Job, stop, stop_grace_s
from klearlib.run.preload import (
    CUDA,
    ForkedWorker,
    Worker,
    start_worker,
)
from klearlib.run.progress import Progress, ProgressRow
from klearlib.run.provenance import gpus, num_cores
from klearlib.run.stage import Stage, code_read_once
from klearlib.run.stops import on_stop
from klearlib.run.task import Task
from klearlib.scale.ray_cluster import RAY, check_workers

TASKS_BESIDE = 2
"""Tasks at a time where the places are GPUs, or those of a cluster."""


@dataclass(frozen=True)
class Failure:
    """What failed and why. skipped: what will not run, as it needs that."""

    item: Stage | Task
    error: KlearError
    skipped: list[Stage | Task]

    @property
    def exit_code(self) -> int:
        return self.error.exit_code

    @property
    def lines(self) -> list[str]:
        return getattr(self.error, "lines", [str(self.error)])


OnDone = Callable[[Stage | Task], Iterable[Task] | None]


def run_stages(
    stages: Sequence[Stage],
    *,
    runs_dir: Path | str,
    workers: int | str = 0,
    tasks: Sequence[Task] = (),
    on_done: OnDone | None = None,
    on_failed: Callable[[Failure], object] | None = None,
    progress: Progress | None = None,
    keep_going: bool = False,
    poll_s: float = 0.2,
) -> list[Failure]:
    """Run `tasks` and those of `stages` that are not done, and before them the stages they need.

    stages: in the order in which they should start; equal ones run once. workers: stages at a time,
    0 for one per GPU, of which each worker sees one, or per core without GPUs. "ray": on a Ray
    cluster (`ray_cluster`), one per GPU, or per core without; all nodes have to see `runs_dir`.
    tasks: where the places are cores, each takes one like a stage; elsewhere `TASKS_BESIDE` run
    beside the stages. on_done: called with each stage that was not done before, and each task, when
    it is; may give further tasks. on_failed: called with each
    failure, at once. progress: where to show it (default: notebook or standard error).

    A stage that another process runs at this moment is waited for and takes no place meanwhile.
    Calling again after a failure, an interrupt or a kill goes on from the last checkpoints.

    Returns the failures, which are none unless `keep_going`: then all goes on that does not need
    what failed. Else the first one stops all and is raised.

    Raises ParameterError for a bad `workers` or KLEAR_STOP_GRACE_S, DamagedEntry, StageFailed,
    TaskFailed; MissingAsset without Ray, KlearError for a cluster that does not answer. On
    KeyboardInterrupt the workers save their state first (a second one kills them).
    """
    check_workers(workers)
    stop_grace_s()  # a wrong one is said now, not when something stops
    run = _Run(Path(runs_dir).absolute(), on_done, on_failed, keep_going)
    with code_read_once():
        run.plan([*stages, *tasks])
    progress = progress or Progress()
    waiting = [job.item for job in run.waiting if not job.is_task]
    if workers == RAY and waiting:
        from klearlib.scale.ray_places import RayPlaces

        places = RayPlaces()
    else:
        places = LocalPlaces(0 if workers == RAY else workers, waiting)
    try:
        while run.waiting or run.running:
            run.start_what_can(places)
            progress.show(run.rows(), places.count)
            places.listen([job.process for job in run.running], poll_s)
            run.end_what_has()
    finally:
        unheard = contextlib.suppress(OSError)  # what failed may be that nobody reads
        try:
            if run.running:
                with unheard:
                    progress.say("stopping: what runs saves its state (Ctrl-C again kills it)")
            stop(run.running)
        finally:
            places.close()
            with unheard:
                progress.show(run.rows(), places.count, last=True)
    return run.failures


class LocalPlaces:
    """Where stages run on this machine: on a GPU each in turn where it has some, else on a core.

    `klearlib.scale.ray_places.RayPlaces` says the same of a Ray cluster. count: how many there are.
    shares_cores: whether a task takes one as well. stages: those that are to run.
    """

    def __init__(self, workers: int, stages: Sequence[Stage]):
        self._gpus = gpus() if stages else []
        self.count = workers or len(self._gpus) or num_cores()
        self.shares_cores = not self._gpus

    def start(
        self, slot: int, spec_file: Path, log: BinaryIO, environment: dict, *, spans: bool
    ) -> Worker:
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`, with
        the GPU of the place `slot`; spans: the stage asks for its GPUs by itself."""
        if self._gpus and not spans:
            environment = environment | {CUDA: self._gpus[slot % len(self._gpus)]}
        return start_worker(spec_file, log, environment)

    def listen(self, workers: Sequence[Worker], timeout_s: float) -> None:
        """Wait until one of `workers` has news, or `timeout_s` where nothing tells."""
        forked = [w for w in workers if isinstance(w, ForkedWorker) and w.returncode is None]
        if forked:
            select.select({each.server.connection for each in forked}, [], [], timeout_s)
        else:
            time.sleep(timeout_s)

    def close(self) -> None:
        """Nothing: the fork server serves the next call too."""


@dataclass
class _Run:
    """The graph of one call and what has become of it; `jobs` are by key, what is needed first."""

    runs_dir: Path
    on_done: OnDone | None = None
    on_failed: Callable[[Failure], object] | None = None
    keep_going: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "waiting"]

    @property
    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "running"]

    def plan(self, items: Iterable[Stage | Task]) -> None:
        """Make the jobs; what only done stages would need is left out."""
        for each in items:
            self._add(each)
        needed = {need for job in self.jobs.values() for need in job.needs}
        self.jobs = dict(sorted(self.jobs.items(), key=lambda item: item[0] not in needed))

    def _add(self, item: Stage | Task) -> str:
        """The key of the item's job, which is made after those of all that it needs."""
        is_stage = isinstance(item, Stage)
        key = item.key if is_stage else f"task {id(item)}"
        if key in self.jobs:
            return key
        if is_stage:
            folder = item.folder(self.runs_dir)
            job = Job(item, key, folder, folder / LOG, item.code)
        else:
            job = Job(item, key, item.log.parent, item.log)
        if is_stage and (folder / DONE).exists():
            verify_entry(folder)
            job.state = "done"
        else:
            job.needs = tuple(map(self._add, item.inputs.values() if is_stage else item.needs))
        self.jobs[key] = job
        for failure in self.failures:  # of which it may need one, as a later task
            self._skip(failure)
        return key

    def start_what_can(self, places) -> None:
        """Start what has all that it needs, tasks first, as far as there are places."""
        done = {key for key, job in self.jobs.items() if job.state == "done"}
        ready = [job for job in self.waiting if done.issuperset(job.needs)]
        for job in sorted(ready, key=lambda job: not job.is_task):
            with self._accounted(job):
                job.look_elsewhere()
                idle = job.state == "waiting" and not job.elsewhere
                if idle and (slot := self._slot(job, places)) is not None:
                    with _stops_later():
                        job.start(slot, places, [self.jobs[need] for need in job.needs])

    def end_what_has(self) -> None:
        """Account for the processes that have ended."""
        for job in self.running:
            if job.process.poll() is not None:
                with self._accounted(job):
                    job.end()

    @contextlib.contextmanager
    def _accounted(self, job: Job) -> Iterator[None]:
        """Whether the job is done or has failed after the block is told."""
        try:
            yield
        except KlearError as error:
            job.state, job.elsewhere = "failed", False
            failure = Failure(job.item, error, [])
            self.failures.append(failure)
            self._skip(failure)
            if self.on_failed is not None:
                self.on_failed(failure)
            if not self.keep_going:
                raise
        else:
            if job.state == "done" and self.on_done is not None:
                for added in self.on_done(job.item) or ():
                    self._add(added)

    def rows(self) -> list[ProgressRow]:
        position = {key: index for index, key in enumerate(self.jobs)}
        return [job.row(tuple(position[n] for n in job.needs)) for job in self.jobs.values()]

    def _slot(self, job: Job, places) -> int | None:
        """The place where `job` may start now; None where there is none."""
        running = self.running
        if job.is_task and not places.shares_cores:
            return -1 if sum(each.is_task for each in running) < TASKS_BESIDE else None
        if not job.is_task:
            beside = [each for each in running if not each.is_task]
            if beside and any(each.spans_gpus for each in (job, *beside)):
                return None
        taken = {each.slot for each in running}
        return next((slot for slot in range(places.count) if slot not in taken), None)

    def _skip(self, failure: Failure) -> None:
        """Leave out what needs the failure, or something that does."""
        gone = {id(failure.item), *map(id, failure.skipped)}
        for job in self.jobs.values():  # what is needed comes first
            if job.state == "waiting" and any(id(self.jobs[n].item) in gone for n in job.needs):
                job.state = "skipped"
                failure.skipped.append(job.item)
                gone.add(id(job.item))


@contextlib.contextmanager
def _stops_later() -> Iterator[None]:
    """Hold back what asks to stop in the block: a worker must be known before anything may end the
    call."""
    caught: list[int] = []
    with on_stop(lambda number, frame: caught.append(number)):
        yield
    for number in caught:
        signal.raise_signal(number)
