"""Places for stages: how many run at once, over all fan-outs that keep results in one folder.

Several notebooks run side by side, each with a fan-out of its own. A place is a file under
``results/runs/.slots`` that the fan-out locks before it starts a worker; the system frees the lock
however the fan-out ends. The number of a place chooses the worker's GPU.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

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

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as runs, Slots(runs, 2) as ours, Slots(runs, 3) as other:
    ...     ours.take(), other.take(), ours.take(), other.take(), ours.take()
    (0, 1, None, 2, None)
    """

    def __init__(self, runs_dir: Path | str, count: int):
        self._folder = Path(runs_dir) / SLOTS
        self._count = count
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> Slots:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give all places of ours back."""
        for slot in list(self._files):
            self.free(slot)

    def take(self) -> int | None:
        """The lowest free place, from now on ours; None where all are taken.

        Raises KlearError where the folder cannot be written.
        """
        with one_line_failures(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for slot in range(self._count):
                if slot not in self._files and self._lock(slot):
                    return slot
        return None

    def free(self, slot: int) -> None:
        """Give a place of ours back."""
        file = self._files.pop(slot)
        _held.discard(file)
        file.close()

    def _lock(self, slot: int) -> bool:
        file = open(self._folder / str(slot), "ab")  # noqa: SIM115 - `free` closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        _held.add(file)
        self._files[slot] = file
        return True
