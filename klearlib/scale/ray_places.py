"""Where the stages of a call run on a Ray cluster: on a GPU where it has some, else on a core.

Ray only finds the place; `klearlib.run.pool.LocalPlaces` says the same words of this machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError
from klearlib.run.preload import Worker
from klearlib.scale import ray_node
from klearlib.scale.address import in_words, runs_here
from klearlib.scale.ray_cluster import Watch, asking, connected
from klearlib.scale.ray_probe import check_nodes
from klearlib.scale.ray_workers import RayWorker


class RayPlaces:
    """The places of a Ray cluster for one call, with the words of
    `klearlib.run.pool.LocalPlaces`.

    count: GPUs of the cluster, or its cores where it has none. Several calls may hold a place each
    at a time that the cluster has only once: then Ray starts one stage after the other. modules:
    those of the stages. spans: whether one of these asks for its GPUs by itself.

    Raises as `klearlib.scale.ray_cluster.connected` and `check_nodes`.
    """

    shares_cores = False  # those of this machine are not the cluster's

    def __init__(
        self,
        workers: str,
        runs_dir: Path,
        modules: Sequence[str],
        environment: dict[str, str],
        *,
        spans: bool,
    ):
        self._where = in_words(workers)
        self._joins = not runs_here(workers)
        self._context = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            opened.enter_context(connected(workers))
            self._kind, self.count = _count()
            self._watch = Watch(workers)
            if self._joins:
                # One that asks for its GPUs by itself gets a core, which may be on any node.
                kinds = {self._kind} | ({"CPU"} if spans else set())
                check_nodes(runs_dir, kinds, environment, modules)
            self._context = opened.pop_all()

    def start(
        self, slot: int, spec_file: Path, log: BinaryIO, environment: dict, *, spans: bool
    ) -> RayWorker:
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`;
        where it runs is for Ray to say."""
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
        return RayWorker(start, takes, self._where)

    def listen(self, workers: Sequence[Worker], timeout_s: float) -> None:
        """Wait until one of `workers` has something to tell, at most `timeout_s`."""
        mine = [w for w in workers if isinstance(w, RayWorker) and w.returncode is None]
        awaited = [each.awaited for each in mine]
        if not awaited or None in awaited:  # one has ended, and its files are to be seen here
            time.sleep(min(timeout_s, ray_node.POLL_S) if awaited else timeout_s)
            return
        try:
            self._watch.look()
            with asking(self._where) as ray:
                ray.wait(awaited, timeout=timeout_s)
        except KlearError:
            for each in mine:
                each.lose_all()
            raise

    def close(self) -> None:
        """Leave the cluster; a Ray that was started for this call ends."""
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
