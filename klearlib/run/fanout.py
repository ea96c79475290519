"""Runs stages and all that they need, several at a time, each in a process of its own.

No process outlives the call, however it ends: they are asked to stop (and save their state) when it
is interrupted or a stage fails, and die with this process when it is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from klearlib.errors import ParameterError
from klearlib.run.entry import DONE, read_progress, verify_entry
from klearlib.run.job import Job, end, look_elsewhere, start, stop, stop_grace_s
from klearlib.run.preloaded import Preloaded, interrupt_later, preload, take_preloaded
from klearlib.run.progress import Progress, StageRow
from klearlib.run.provenance import gpu_names, num_cores
from klearlib.run.slots import Slots
from klearlib.run.stage import Stage


def run_stages(
    stages: Sequence[Stage],
    *,
    runs_dir: Path | str,
    workers: int = 0,
    on_done: Callable[[Stage], None] | None = None,
    progress: Progress | None = None,
    poll_s: float = 0.2,
) -> None:
    """Run those of `stages` that are not done, and before them the upstream stages they need.

    stages: in the order in which they should start; equal ones run once. runs_dir: where the
    results are kept. workers: stages at a time, with those of other calls for the same `runs_dir`
    (see `slots`); 0 for one per GPU, or per core without GPUs. With GPUs each worker sees one of
    them, in turn. on_done: called with each stage that was not done before, when it is. progress:
    where to show progress (default: notebook or standard error). poll_s: seconds between two looks
    at the workers.

    A stage that another process runs at this moment is waited for, not run again, and takes no
    place of a worker meanwhile. Calling again after a failure, an interrupt or a kill goes on from
    the last checkpoints.

    Raises ParameterError for a bad `workers` or KLEAR_STOP_GRACE_S, DamagedEntry for a damaged
    result, StageFailed with the stage, its log and its last lines. KeyboardInterrupt: the workers
    save their state (a second one kills them), then it goes on.
    """
    if type(workers) is not int or workers < 0:
        raise ParameterError(f"workers is {workers!r}: give a whole number, 0 for one per core")
    stop_grace_s()  # a wrong one is said now, not when something stops
    runs_dir = Path(runs_dir).absolute()
    jobs = _plan(stages, runs_dir)
    progress = progress or Progress()
    waiting = [job for job in jobs.values() if not job.finished]
    running: list[Job] = []
    devices = gpus() if waiting else []
    num_workers = num_at_once(workers, len(devices))
    slots = Slots(runs_dir, num_workers, devices)
    server = first_from = None
    try:
        with interrupt_later():
            server = take_preloaded() if waiting else None
            if server is not None or num_workers == 1:
                server = first_from = server or _server(waiting)
            else:  # nobody would gain if the first stage waited for imports that go on beside it
                server = _server(waiting)
        while waiting or running:
            wants = False
            for job in [j for j in waiting if all(jobs[need].finished for need in j.needs)]:
                look_elsewhere(job)
                if job.finished:
                    waiting.remove(job)
                    _tell(on_done, job)
                elif not job.elsewhere:
                    with interrupt_later():
                        if (slot := slots.take()) is None:
                            wants = True
                            continue  # the next may be running elsewhere, which is to be shown
                        start(job, slot=slot, gpus=devices, server=first_from)
                        running.append(job)
                        first_from = server
                    waiting.remove(job)
            if not wants:
                slots.wait_no_more()
            progress.show(_rows(jobs), num_workers)
            if server is None:
                time.sleep(poll_s)
            else:
                server.listen(poll_s)  # returns when one of its workers has ended
            for job in [job for job in running if job.process.poll() is not None]:
                slot = job.slot
                end(job)
                running.remove(job)
                slots.free(slot)
                if job.finished:
                    _tell(on_done, job)
                else:  # another process was quicker to run it
                    keys = {job.key, *(each.key for each in waiting)}
                    waiting = [each for key, each in jobs.items() if key in keys]
    finally:
        try:
            stop(running)
        finally:
            slots.close()
            if server is not None:
                server.close()
        progress.show(_rows(jobs), num_workers, last=True)


def _tell(on_done: Callable[[Stage], None] | None, job: Job) -> None:
    if on_done is not None:
        on_done(job.stage)


def _server(waiting: Sequence[Job]) -> Preloaded | None:
    """A fork server where more than one stage can have use of its imports."""
    return preload([job.stage for job in waiting]) if len(waiting) > 1 else None


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


def gpus() -> list[str]:
    """Names of the GPUs to share out, as CUDA_VISIBLE_DEVICES takes them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return [str(index) for index in range(len(gpu_names()))]


def num_at_once(workers: int, num_gpus: int) -> int:
    """Stages at a time where `workers` were asked for, 0 for one per GPU, or per core without."""
    return workers or num_gpus or num_cores()


def _rows(jobs: dict[str, Job]) -> list[StageRow]:
    position = {key: index for index, key in enumerate(jobs)}
    return [_row(job, tuple(position[need] for need in job.needs)) for job in jobs.values()]


def _row(job: Job, needs: tuple[int, ...]) -> StageRow:
    stage, elapsed_s = job.stage, job.seconds
    runs = job.slot >= 0 or job.elsewhere
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
