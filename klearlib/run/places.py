"""Where a fan-out's stages run on this machine: how many at once, on which GPU, from what process.

`klearlib.scale.ray_places.RayPlaces` says the same words of a Ray cluster.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from klearlib.run.devices import gpus
from klearlib.run.job import spans_gpus
from klearlib.run.preloaded import (
    CUDA,
    PlainWorker,
    Preloaded,
    Worker,
    interrupt_later,
    preload,
    take_preloaded,
)
from klearlib.run.provenance import num_cores
from klearlib.run.slots import Slots
from klearlib.run.stage import Stage


def num_at_once(workers: int, num_gpus: int) -> int:
    """Stages at a time where `workers` were asked for, 0 for one per GPU, or per core without."""
    return workers or num_gpus or num_cores()


class LocalPlaces:
    """The places of this machine for one fan-out: those of `Slots`, a GPU for each in turn where
    there are some, and what starts workers there.

    count: how many there are. stages: those that are to run.
    """

    def __init__(self, workers: int, runs_dir: Path, stages: Sequence[Stage]):
        self._gpus = gpus() if stages else []
        self.count = num_at_once(workers, len(self._gpus))
        self._slots = Slots(runs_dir, self.count, self._gpus)
        self._server = self._first = None
        try:
            with interrupt_later():
                self._server = take_preloaded() if stages else None
                if self._server is not None or self.count == 1:
                    self._server = self._first = self._server or _server(stages)
                else:  # nobody would gain if the first stage waited for imports beside it
                    self._server = _server(stages)
        except BaseException:
            self.close()
            raise

    def take(self) -> int | None:
        """The lowest place that is free, from now on ours; None where all are taken."""
        return self._slots.take()

    def free(self, slot: int) -> None:
        """Give a place of ours back."""
        self._slots.free(slot)

    def wait_no_more(self) -> None:
        """No stage of ours wants a place now."""
        self._slots.wait_no_more()

    def start(
        self, stage: Stage, slot: int, spec_file: Path, log: BinaryIO, environment: dict[str, str]
    ) -> Worker:
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`, with
        the GPU of its place."""
        if self._gpus and not spans_gpus(stage):
            environment = environment | {CUDA: self._gpus[slot % len(self._gpus)]}
        server, self._first = self._first, self._server
        begin = PlainWorker if server is None else server.start
        return begin(spec_file, log, environment)

    def listen(self, timeout_s: float) -> None:
        """Wait until a worker has ended, or `timeout_s` where nothing tells."""
        if self._server is None:
            time.sleep(timeout_s)
        else:
            self._server.listen(timeout_s)

    def close(self) -> None:
        """Give all places back, when no worker runs any more."""
        self._slots.close()
        if self._server is not None:
            self._server.close()


def _server(stages: Sequence[Stage]) -> Preloaded | None:
    """A fork server where more than one stage can have use of its imports."""
    return preload(stages) if len(stages) > 1 else None
