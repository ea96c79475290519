"""Search for overlap in several processes: ``python -m klearlib.curation.overlap_worker``.

The processes are programs of their own and not forks, so threads, open files and the caller's main
module do not matter to them. One reads an index from standard input, then batches of prompts, and
answers each with the removals found; the end of the input, also of a killed caller, ends it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.errors import KlearError

if TYPE_CHECKING:
    from klearlib.curation.overlap import OverlapIndex, Removal

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


def results_in_order(
    index: OverlapIndex, batches: Iterator[list[str]], num_workers: int
) -> Iterator[Removal | None]:
    """What `index` says of every prompt of `batches`, by `num_workers` processes, each of which has
    one batch at a time. Raises KlearError for a process that ended early."""
    with ExitStack() as stack:
        searchers = [_Searcher() for _ in range(num_workers)]  # all start at once
        for searcher in searchers:
            stack.callback(searcher.close)
        for searcher in searchers:
            searcher.send(index)
        asked: deque[tuple[_Searcher, int]] = deque()
        for batch, searcher in zip(batches, cycle(searchers), strict=False):
            if len(asked) == num_workers:
                yield from _answer(*asked.popleft())
            searcher.send(batch)
            asked.append((searcher, len(batch)))
        for searcher, size in asked:
            yield from _answer(searcher, size)


def _answer(searcher: _Searcher, size: int) -> Iterator[Removal | None]:
    found = searcher.receive()
    return map(found.get, range(size))


class _Searcher:
    """A process that searches."""

    def __init__(self) -> None:
        search_path = [p for p in (os.environ.get("PYTHONPATH"), _PACKAGE_ROOT) if p]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(search_path),
                "PYTHONSAFEPATH": "1",
                "OPENBLAS_NUM_THREADS": "1",  # numpy's buffers for many cores would take memory
            },
            start_new_session=True,  # Ctrl-C is for the caller, which ends them
        )

    def send(self, value: object) -> None:
        try:
            _send(self._process.stdin, value)
        except BrokenPipeError as error:
            raise self._ended() from error

    def receive(self) -> dict[int, Removal]:
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._ended() from error

    def _ended(self) -> KlearError:
        return KlearError(
            f"a process that searches for overlap ended with code {self._process.wait()}: if "
            "memory was short, take fewer workers"
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # what was not sent is not wanted any more
                pipe.close()


def _send(pipe, value: object) -> None:
    pickle.dump(value, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def main() -> None:
    messages, replies = sys.stdin.buffer, sys.stdout.buffer
    index = pickle.load(messages)
    with suppress(EOFError):
        while True:
            removals = index.removals(pickle.load(messages))
            _send(replies, {place: removal for place, removal in enumerate(removals) if removal})


if __name__ == "__main__":
    main()
