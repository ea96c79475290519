"""A stage's worker on a Ray cluster: the very process it would have here, on a node.

What the process computes, its cache, locks, checkpoints and exit codes are those of a process of
this machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.run import worker
from klearlib.run.entry import DONE
from klearlib.run.files import one_line_failures
from klearlib.scale import ray_node
from klearlib.scale.ray_cluster import asking

MAX_LOST = 3
"""How often a stage whose node or actor is lost is started again."""
KILL_S = 5.0
_SHORT = 200


class RayWorker:
    """The worker of one stage, as `klearlib.run.preload.Worker` says, on a node that Ray chooses.

    Where Ray loses its node or its actor, it is started again and goes on from its last checkpoint,
    `MAX_LOST` times at most; the stage's log says so. pid: on its node; None while it waits for a
    place. returncode: as that of subprocess.Popen.
    """

    def __init__(self, start: dict, options: dict, where: str):
        self._arguments, self._options, self._where = start, options, where
        self._folder, self._log = Path(start["spec_file"]).parent, Path(start["log"])
        self._num_lost = 0
        self._is_stopping = False
        self.pid: int | None = None
        self.returncode: int | None = None
        self._submit()

    @property
    def is_queued(self) -> bool:
        """Whether it still waits for a place on the cluster."""
        return self.pid is None and self.returncode is None

    @property
    def awaited(self):
        """What Ray tells next about it; None where nothing is to come."""
        return self._next if self.returncode is None and self._code is None else None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        try:
            with asking(self._where) as ray:
                self._listen(ray)
        except KlearError:
            if not self._is_stopping:
                raise
            self.returncode = -signal.SIGKILL
        return self.returncode

    def terminate(self) -> None:
        """Ask it to save its state and end."""
        self._is_stopping = True
        if self.poll() is not None:
            return
        if self.pid is None:  # it has nothing to save yet
            self._give_up()
            self.returncode = -signal.SIGTERM
            return
        with contextlib.suppress(KlearError), asking(self._where):
            self._actor.stop.remote()

    def kill_group(self) -> None:
        """SIGKILL to it and to all that it started, and its place is free again."""
        if self.returncode is None and self.pid is not None:
            with contextlib.suppress(KlearError), asking(self._where) as ray:
                ray.wait([self._actor.kill.remote()], timeout=KILL_S)
        self._give_up()
        if self.returncode is None:
            self.returncode = -signal.SIGKILL

    def lose_all(self) -> None:
        """The cluster is gone, and the worker with it."""
        if self.returncode is None:
            self.returncode = -signal.SIGKILL

    def _submit(self) -> None:
        self.pid, self._code, self._visible_by = None, None, 0.0
        with asking(self._where) as ray:
            ray.cloudpickle.register_pickle_by_value(ray_node)
            self._actor = ray.remote(**self._options)(ray_node.StageProcess).remote()
            self._next = self._actor.begin.remote(**self._arguments)

    def _listen(self, ray) -> None:
        while self.awaited is not None and ray.wait([self._next], timeout=0)[0]:
            try:
                self._hear(ray.get(self._next))
            except ray.exceptions.RayTaskError as error:
                self._refuse(f"on a node of {self._where}: {error.cause}")
            except ray.exceptions.RaySystemError:
                raise
            except ray.exceptions.RayError as error:
                self._lose(error)
        if self._code is not None and self.returncode is None and self._is_visible():
            self.returncode = self._code

    def _give_up(self) -> None:
        """End the actor, and with it what it started."""
        with (
            contextlib.suppress(KlearError),
            asking(self._where) as ray,
            contextlib.suppress(ray.exceptions.RayError, ValueError),
        ):
            ray.kill(self._actor)

    def _hear(self, answer: dict | int) -> None:
        if isinstance(answer, int):
            self._code = answer
            self._visible_by = time.monotonic() + ray_node.SEEN_S
        elif "refused" in answer:
            self._refuse(answer["refused"])
        else:
            self.pid = answer["pid"]
            self._next = self._actor.end.remote()

    def _is_visible(self) -> bool:
        """Whether what the node has written is seen here; file systems of many machines take a
        moment."""
        if self._code != 0 or time.monotonic() > self._visible_by:
            return True
        os.listdir(self._folder)  # makes the file system look again
        return (self._folder / DONE).exists()

    def _refuse(self, why: str) -> None:
        self._say(f"{worker.ERROR_PREFIX}the stage could not start: {why}")
        self.returncode = 1

    def _lose(self, error: Exception) -> None:
        """The node or the actor is gone, and the stage's process with it."""
        if self._is_stopping:
            self.returncode = -signal.SIGKILL
            return
        self._give_up()  # it may only be out of reach
        self._num_lost += 1
        why = next(iter(str(error).strip().splitlines()), "")[:_SHORT] or type(error).__name__
        if self._num_lost > MAX_LOST:
            self._say(
                f"{worker.ERROR_PREFIX}{self._where} lost the stage's node or actor "
                f"{self._num_lost} times, at last: {why}"
            )
            self.returncode = 1
            return
        self._say(
            f"{self._where} lost the stage's node or actor ({why}): started again, "
            f"{self._num_lost} of {MAX_LOST}"
        )
        self._submit()

    def _say(self, line: str) -> None:
        with one_line_failures(self._log), open(self._log, "a", encoding="utf-8") as log:
            log.write(" ".join(line.split()) + "\n")
