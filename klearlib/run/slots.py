"""Places for stages: how many run at once, over all fan-outs that keep results in one folder.

Several notebooks run side by side, each with a fan-out of its own. A place is a file under
``results/runs/.slots`` that the fan-out locks before it starts a worker; the system frees the lock
however the fan-out ends. The number of a place chooses the worker's GPU. A fan-out that has none
stands in a queue of one: the next place that is free is its, before those who have some take more.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError
from klearlib.run.files import one_line_failures

SLOTS = ".slots"

_held: set[BinaryIO] = set()


def _forget() -> None:
    """A forked child would keep the places for as long as it outlives its parent."""
    for file in _held:
        file.close()


os.register_at_fork(after_in_child=_forget)


class Slots:
    """The first `count` places of `runs_dir`; those who count less share the first ones.

    Each machine has places of its own, where several see `runs_dir`. devices: names of the GPUs
    that the places stand for in turn, so that who is given other GPUs has other places.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as runs, Slots(runs, 2) as ours, Slots(runs, 3) as other:
    ...     ours.take(), other.take(), ours.take(), other.take(), ours.take()
    (0, 1, None, 2, None)
    """

    def __init__(self, runs_dir: Path | str, count: int, devices: Sequence[str] = ()):
        self._folder = Path(runs_dir) / SLOTS / (platform.node() or "here")
        self._count = count
        self._devices = devices
        self._queue: BinaryIO | None = None
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> Slots:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give all places of ours back."""
        for slot in list(self._files):
            self.free(slot)
        self.wait_no_more()

    def take(self) -> int | None:
        """The lowest free place, from now on ours; None where all are taken.

        Raises KlearError where the folder cannot be written.
        """
        with one_line_failures(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._queue is None and not self._is_free("queue"):
                return None  # another one came first
            for slot in range(self._count):
                if slot not in self._files and (file := self._lock(self._name(slot))):
                    self._files[slot] = file
                    self.wait_no_more()
                    return slot
            if not self._files and self._queue is None:
                self._queue = self._lock("queue")
        return None

    def free(self, slot: int) -> None:
        """Give a place of ours back."""
        file = self._files.pop(slot)
        _held.discard(file)
        file.close()

    def _name(self, slot: int) -> str:
        if not self._devices:
            return str(slot)
        turn, device = divmod(slot, len(self._devices))
        return f"gpu{self._devices[device]}-{turn}".replace("/", "_")

    def _is_free(self, name: str) -> bool:
        if (file := self._lock(name)) is None:
            return False
        _held.discard(file)
        file.close()
        return True

    def wait_no_more(self) -> None:
        """Leave the queue: no stage of ours wants a place now."""
        if self._queue is not None:
            _held.discard(self._queue)
            self._queue.close()
            self._queue = None

    def _lock(self, name: str) -> BinaryIO | None:
        file = open(self._folder / name, "ab")  # noqa: SIM115 - `free` closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError as error:
            file.close()
            raise KlearError(
                f"cannot lock {file.name} ({error.strerror or error}): keep the results on a file "
                "system that has locks"
            ) from error
        _held.add(file)
        return file
