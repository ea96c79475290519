"""Runs stages and all that they need, several at a time, each in a process of its own.

No process outlives the call, however it ends: they are asked to stop (and save their state) when it
is interrupted or a stage fails, and die with this process when it is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from klearlib.run.entry import DONE, read_progress, verify_entry
from klearlib.run.job import Job, end, look_elsewhere, spans_gpus, start, stop, stop_grace_s
from klearlib.run.places import LocalPlaces
from klearlib.run.preloaded import interrupt_later, worker_environment
from klearlib.run.progress import Progress, StageRow
from klearlib.run.stage import Stage
from klearlib.scale.address import check_workers


def run_stages(
    stages: Sequence[Stage],
    *,
    runs_dir: Path | str,
    workers: int | str = 0,
    on_done: Callable[[Stage], None] | None = None,
    progress: Progress | None = None,
    poll_s: float = 0.2,
) -> None:
    """Run those of `stages` that are not done, and before them the upstream stages they need.

    stages: in the order in which they should start; equal ones run once. runs_dir: where the
    results are kept. workers: stages at a time, with those of other calls for the same `runs_dir`
    (see `slots`); 0 for one per GPU, or per core without GPUs. With GPUs each worker sees one of
    them, in turn. "ray" or "ray://host:port": on the Ray cluster there (`scale.address`), one stage
    per GPU, or per core without; all its nodes have to see `runs_dir`, and the stage of a node that
    is lost goes on elsewhere. on_done: called with each stage that was not done before, when it is.
    progress: where to show progress (default: notebook or standard error). poll_s: seconds between
    two looks at the workers.

    A stage that another process runs at this moment is waited for, not run again, and takes no
    place of a worker meanwhile. Calling again after a failure, an interrupt or a kill goes on from
    the last checkpoints.

    Raises ParameterError for a bad `workers` or KLEAR_STOP_GRACE_S, DamagedEntry for a damaged
    result, StageFailed with the stage, its log and its last lines; MissingAsset without Ray, and
    KlearError for a cluster that does not answer or does not fit. KeyboardInterrupt: the workers
    save their state (a second one kills them), then it goes on.
    """
    check_workers(workers)
    stop_grace_s()  # a wrong one is said now, not when something stops
    runs_dir = Path(runs_dir).absolute()
    jobs = _plan(stages, runs_dir)
    progress = progress or Progress()
    waiting = [job for job in jobs.values() if not job.finished]
    running: list[Job] = []
    places = _places(workers, runs_dir, [job.stage for job in waiting])
    try:
        while waiting or running:
            wants = False
            for job in [j for j in waiting if all(jobs[need].finished for need in j.needs)]:
                look_elsewhere(job)
                if job.finished:
                    waiting.remove(job)
                    _tell(on_done, job)
                elif not job.elsewhere and _may_join(running, job):
                    with interrupt_later():
                        if (slot := places.take()) is None:
                            wants = True
                            continue  # the next may be running elsewhere, which is to be shown
                        start(job, slot=slot, begin=places.start)
                        running.append(job)
                    waiting.remove(job)
            if not wants:
                places.wait_no_more()
            progress.show(_rows(jobs), places.count)
            places.listen(poll_s)
            for job in running:
                if job.process.is_queued:
                    job.began = time.time()
            for job in [job for job in running if job.process.poll() is not None]:
                slot = job.slot
                end(job)
                running.remove(job)
                places.free(slot)
                if job.finished:
                    _tell(on_done, job)
                else:  # another process was quicker to run it
                    keys = {job.key, *(each.key for each in waiting)}
                    waiting = [each for key, each in jobs.items() if key in keys]
    finally:
        try:
            stop(running)
        finally:
            places.close()
        progress.show(_rows(jobs), places.count, last=True)


def _places(workers: int | str, runs_dir: Path, stages: Sequence[Stage]):
    """Where the `stages` that are not done yet are to run."""
    if isinstance(workers, int) or not stages:
        return LocalPlaces(workers if isinstance(workers, int) else 0, runs_dir, stages)
    from klearlib.scale.ray_places import RayPlaces

    return RayPlaces(workers, runs_dir, stages, worker_environment())


def _may_join(running: Sequence[Job], job: Job) -> bool:
    """Whether `job` may run beside those that do: one that takes what GPUs it wants runs alone."""
    return not running or not any(spans_gpus(each.stage) for each in (job, *running))


def _tell(on_done: Callable[[Stage], None] | None, job: Job) -> None:
    if on_done is not None:
        on_done(job.stage)


def _plan(stages: Sequence[Stage], runs_dir: Path) -> dict[str, Job]:
    """The jobs by key, upstream first; what only done stages would need is left out."""
    jobs: dict[str, Job] = {}

    def add(stage: Stage) -> str:
        key = stage.key
        if key in jobs:
            return key
        folder = runs_dir / stage.name / key
        cached = (folder / DONE).exists()
        if cached:
            verify_entry(folder)
        needs = () if cached else tuple(add(upstream) for upstream in stage.inputs.values())
        jobs[key] = Job(stage, key, folder, stage.code, needs, cached)
        return key

    for stage in stages:
        add(stage)
    upstream = {need for job in jobs.values() for need in job.needs}
    return dict(sorted(jobs.items(), key=lambda item: item[0] not in upstream))  # stable


def _rows(jobs: dict[str, Job]) -> list[StageRow]:
    position = {key: index for index, key in enumerate(jobs)}
    return [_row(job, tuple(position[need] for need in job.needs)) for job in jobs.values()]


def _row(job: Job, needs: tuple[int, ...]) -> StageRow:
    stage, elapsed_s = job.stage, job.seconds
    runs = job.elsewhere or (job.slot >= 0 and not job.process.is_queued)
    state = "done" if job.finished else "running" if runs else "waiting"
    row = StageRow(stage.name, stage.title, state, stage.estimate_s, elapsed_s, needs=needs)
    if state != "running":
        return row
    now = time.time()
    row = replace(row, elapsed_s=now - job.began)
    told = read_progress(job.folder)
    if told is None or told["updated"] < job.began:  # of an earlier process
        return row
    row = replace(row, done=told["done"], total=told["total"], note=told["note"])
    steps = told["done"] - told["began_done"]
    if steps <= 0:
        return row
    step_s = (told["updated"] - told["began"]) / steps
    left = (told["total"] - told["done"]) * step_s - (now - told["updated"])
    return replace(row, remaining_s=max(left, 0.0))
