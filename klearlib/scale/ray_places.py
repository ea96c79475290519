"""Where a fan-out's stages run on a Ray cluster: on a GPU where it has some, else on a core.

Ray only finds the place; `klearlib.run.places.LocalPlaces` says the same words of this machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError
from klearlib.run.job import spans_gpus
from klearlib.run.stage import Stage
from klearlib.scale import ray_node
from klearlib.scale.address import in_words, runs_here
from klearlib.scale.ray_cluster import Watch, asking, connected
from klearlib.scale.ray_probe import check_nodes
from klearlib.scale.ray_workers import RayWorker


class RayPlaces:
    """The places of a Ray cluster for one fan-out, with the words of
    `klearlib.run.places.LocalPlaces`.

    count: GPUs of the cluster, or its cores where it has none. Several fan-outs may hold a place
    each at a time that the cluster has only once: then Ray starts one stage after the other.

    Raises as `klearlib.scale.ray_cluster.connected` and `check_nodes`.
    """

    def __init__(self, workers: str, runs_dir: Path, stages: Sequence[Stage], environment: dict):
        self._where = in_words(workers)
        self._joins = not runs_here(workers)
        self._workers: list[RayWorker] = []
        self._taken: set[int] = set()
        self._context = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            opened.enter_context(connected(workers))
            self._kind, self.count = _count()
            self._watch = Watch(workers)
            if self._joins:
                modules = sorted({stage.target.partition(":")[0] for stage in stages})
                # One that asks for its GPUs by itself gets a core, which may be on any node.
                kinds = {self._kind} | {"CPU" for each in stages if spans_gpus(each)}
                check_nodes(runs_dir, kinds, environment, modules)
            self._context = opened.pop_all()

    def take(self) -> int | None:
        """The lowest place that is free; None where all are taken."""
        free = next((i for i in range(self.count) if i not in self._taken), None)
        if free is not None:
            self._taken.add(free)
        return free

    def free(self, slot: int) -> None:
        """Give a place back."""
        self._taken.discard(slot)

    def wait_no_more(self) -> None:
        """Nothing: Ray has the queue."""

    def start(
        self, stage: Stage, slot: int, spec_file: Path, log: BinaryIO, environment: dict[str, str]
    ) -> RayWorker:
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`."""
        spans = spans_gpus(stage)
        mask = os.umask(0)
        os.umask(mask)
        start = {
            "spec_file": str(spec_file),
            "log": log.name,
            "environment": environment,
            "folder": os.getcwd(),
            "umask": mask,
            "spans": spans and self._joins,
        }
        takes = {"num_cpus": 1} if spans or self._kind == "CPU" else {"num_cpus": 0, "num_gpus": 1}
        self._workers.append(RayWorker(start, takes, self._where))
        return self._workers[-1]

    def listen(self, timeout_s: float) -> None:
        """Wait until one of the workers has something to tell, at most `timeout_s`."""
        self._workers = [each for each in self._workers if each.returncode is None]
        awaited = [each.awaited for each in self._workers]
        if not awaited or None in awaited:  # one has ended, and its files are to be seen here
            time.sleep(min(timeout_s, ray_node.POLL_S) if awaited else timeout_s)
            return
        try:
            self._watch.look()
            with asking(self._where) as ray:
                ray.wait(awaited, timeout=timeout_s)
        except KlearError:
            for each in self._workers:
                each.lose_all()
            raise

    def close(self) -> None:
        """Leave the cluster; a Ray that was started for this fan-out ends."""
        self._context.close()


def _count() -> tuple[str, int]:
    """What a stage takes of the cluster, "GPU" or, where there is none, "CPU", and how many there
    are.

    Raises KlearError where there is neither.
    """
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for kind in ("GPU", "CPU"):
        if count := sum(int(each.get(kind, 0)) for each in nodes):
            return kind, count
    raise KlearError("the Ray cluster has neither GPUs nor CPUs for tasks: add a node that has")
