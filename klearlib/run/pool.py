"""Runs stages with all that they need, and tasks alongside: one graph, several at a time, each in
its own process.

None of these outlives the call, however it ends: they are asked to stop (and save their state) when
it is interrupted or something fails, and die with this process when it is killed.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError
from klearlib.run import preload
from klearlib.run.entry import DONE, LOG, verify_entry
from klearlib.run.job import Failure, Job, stop, stop_grace_s
from klearlib.run.progress import Progress
from klearlib.run.provenance import gpus, num_cores
from klearlib.run.stage import Stage
from klearlib.run.stops import on_stop
from klearlib.run.task import Task
from klearlib.scale.ray_cluster import RAY, check_workers

TASKS_BESIDE = 2
"""Tasks at a time if the places are GPUs or those of a cluster."""
POLL_S = 0.1

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
) -> list[Failure]:
    """Run `tasks` and the unfinished ones of `stages`, after the stages that they need.

    stages: in the order in which they should start; equal ones run once. workers: stages at a time,
    0 for one per GPU (each worker sees one), or per core without GPUs. "ray": on a Ray cluster
    (`ray_cluster`), one per GPU, or per core without; all nodes have to see `runs_dir`. tasks: if
    the places are cores, each takes one like a stage; otherwise `TASKS_BESIDE` run alongside the
    stages. on_done: called with each stage that was not done before, and each task, when it is
    done; may return further tasks. on_failed: called with each failure, at once. progress: where to
    show it (default: notebook or standard error).

    A stage that another process is running is waited for and takes no place meanwhile. Calling
    again after a failure, an interrupt or a kill continues from the last checkpoints.

    Returns the failures, which are none unless `keep_going`: then everything that does not need
    what failed goes on. Otherwise the first failure stops all and is raised.

    Raises ParameterError for a bad `workers` or KLEAR_STOP_GRACE_S, DamagedEntry, StageFailed,
    TaskFailed; MissingAsset without Ray, KlearError for a cluster that does not answer. On
    KeyboardInterrupt the workers save their state first (a second one kills them).
    """
    check_workers(workers)
    stop_grace_s()  # to report a wrong value now, not when something stops
    run = _Run(Path(runs_dir).absolute(), on_done, on_failed, keep_going)
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
            time.sleep(POLL_S)
            run.end_what_has()
    finally:
        unheard = contextlib.suppress(OSError)  # the failure may be a closed pipe
        try:
            if run.running:
                with unheard:
                    progress.say("stopping: stages save their state (Ctrl-C again kills them)")
            stop(run.running)
        finally:
            places.close()
            with unheard:
                progress.show(run.rows(), places.count, last=True)
    return run.failures


class LocalPlaces:
    """Where stages run on this machine: on a GPU each in turn if it has some, else on a core.

    `klearlib.scale.ray_places.RayPlaces` is the same for a Ray cluster. count: how many there are.
    shares_cores: whether a task takes a place too. stages: those to run.
    """

    def __init__(self, workers: int, stages: Sequence[Stage]):
        self._gpus = gpus() if stages else []
        self.count = workers or len(self._gpus) or num_cores()
        self.shares_cores = not self._gpus
        if stages:
            preload.preload(wait=True)  # here a stop can interrupt it

    def start(
        self, slot: int, spec_file: Path, log: BinaryIO, environment: dict, *, spans: bool
    ) -> preload.ForkedWorker | preload.NewProcess:
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`, with
        the GPU of the place `slot`; spans: the stage asks for its GPUs itself."""
        if self._gpus and not spans:
            environment = environment | {preload.CUDA: self._gpus[slot % len(self._gpus)]}
        return preload.start_worker(spec_file, log, environment)

    def close(self) -> None:
        """Nothing: the fork server serves the next call too."""


@dataclass
class _Run:
    """The graph of one call and its state; `jobs` are by the keys of stages, or by tasks, what is
    needed first."""

    runs_dir: Path
    on_done: OnDone | None = None
    on_failed: Callable[[Failure], object] | None = None
    keep_going: bool = False
    jobs: dict[str | Task, Job] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in ("waiting", "elsewhere")]

    @property
    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "running"]

    def plan(self, items: Iterable[Stage | Task]) -> None:
        """Make the jobs; what only finished stages need is left out."""
        for each in items:
            self._add(each)
        needed = {need for job in self.jobs.values() for need in job.needs}
        self.jobs = dict(sorted(self.jobs.items(), key=lambda item: item[1] not in needed))

    def _add(self, item: Stage | Task) -> Job:
        """The item's job, made after the jobs of all that it needs."""
        is_task = isinstance(item, Task)
        key = item if is_task else item.key
        if key not in self.jobs:
            log = item.log if is_task else item.folder(self.runs_dir) / LOG
            row = (item.name, item.title, "waiting", item.estimate_s)
            job = Job(*row, is_task=is_task, item=item, log=log)
            if not is_task and (job.folder / DONE).exists():
                verify_entry(job.folder)
                job.state = "done"
            else:
                needs = item.needs if is_task else item.inputs.values()
                job.needs = tuple(map(self._add, needs))
            self.jobs[key] = job
        return self.jobs[key]

    def start_what_can(self, places) -> None:
        """Start what has all that it needs, tasks first, as places allow."""
        ready = [job for job in self.waiting if all(need.state == "done" for need in job.needs)]
        running = self.running
        for job in sorted(ready, key=lambda job: not job.is_task):
            slot = _free(places, job, running)
            if slot is None and job.state == "waiting":
                continue
            with self._accounted(job):
                job.look_elsewhere()
                if slot is not None and job.state == "waiting":
                    with _stops_later():
                        job.start(slot, places)
                    running.append(job)

    def end_what_has(self) -> None:
        """Account for the processes that have ended."""
        for job in self.running:
            if job.process.poll() is not None:
                with self._accounted(job):
                    job.end()

    @contextlib.contextmanager
    def _accounted(self, job: Job) -> Iterator[None]:
        """Report the job if the block leaves it done or failed."""
        try:
            yield
        except KlearError as error:
            job.state, job.failure = "failed", Failure(job.item, error, [])
            self.failures.append(job.failure)
            self._skip()
            if self.on_failed is not None:
                self.on_failed(job.failure)
            if not self.keep_going:
                raise
        else:
            if job.state == "done" and self.on_done is not None:
                for added in self.on_done(job.item) or ():
                    self._add(added)
                self._skip()  # what was added may need what has failed

    def rows(self) -> list[Job]:
        """What there is to show, as it is now."""
        for job in self.jobs.values():
            job.look()
        return list(self.jobs.values())

    def _skip(self) -> None:
        """Leave out what needs something that has failed or is left out."""
        for job in self.waiting:  # what is needed comes first
            if failure := next((need.failure for need in job.needs if need.failure), None):
                job.state, job.failure = "skipped", failure
                failure.skipped.append(job.item)


def _free(places, job: Job, running: Sequence[Job]) -> int | None:
    """The one of `places` where `job` may start beside those that run; None where there is none."""
    if job.is_task and not places.shares_cores:
        return -1 if sum(each.is_task for each in running) < TASKS_BESIDE else None
    beside = [each for each in running if not (each.is_task or job.is_task)]
    if beside and any(each.spans_gpus for each in (job, *beside)):
        return None
    taken = {each.slot for each in running}
    return next((slot for slot in range(places.count) if slot not in taken), None)


@contextlib.contextmanager
def _stops_later() -> Iterator[None]:
    """Delay requests to stop during the block: a worker must be known before anything may end the
    call."""
    caught: list[int] = []
    with on_stop(lambda number, frame: caught.append(number)):
        yield
    for number in caught:
        signal.raise_signal(number)
