"""Search for overlap in several processes: ``python -m klearlib.curation.overlap_worker``.

They are programs of their own and not forks, so threads, open files and the caller's main module do
not matter to them. One reads an index from standard input, then batches of prompts, and answers
each with its removals; the end of the input, also of a killed caller, ends it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
        searchers = [stack.enter_context(_searcher()) for _ in range(num_workers)]
        for searcher in searchers:
            _exchange(searcher, index)
        busy: deque[subprocess.Popen] = deque()
        for batch, searcher in zip(batches, cycle(searchers), strict=False):
            if len(busy) == num_workers:
                yield from _exchange(busy.popleft())
            _exchange(searcher, batch)
            busy.append(searcher)
        for searcher in busy:
            yield from _exchange(searcher)


@contextmanager
def _searcher() -> Iterator[subprocess.Popen]:
    search_path = [p for p in (os.environ.get("PYTHONPATH"), _PACKAGE_ROOT) if p]
    # One thread for OpenBLAS: numpy's buffers for many cores would take memory.
    settings = {"PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | settings | {"PYTHONPATH": os.pathsep.join(search_path)},
        start_new_session=True,  # Ctrl-C is for the caller, which ends them
    )
    try:
        yield process
    finally:
        process.kill()
        # What was not sent is not wanted any more.
        with suppress(BrokenPipeError), process:
            pass


def _exchange(process: subprocess.Popen, message: object = None) -> list | None:
    """Send a message to a searcher or, without one, receive its answer."""
    try:
        if message is None:
            return pickle.load(process.stdout)
        return _send(process.stdin, message)
    except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
        raise KlearError(
            f"a process that searches for overlap ended with code {process.wait()}: if memory was "
            "short, take fewer workers"
        ) from error


def _send(pipe, message: object) -> None:
    pickle.dump(message, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def main() -> None:
    index = pickle.load(sys.stdin.buffer)
    with suppress(EOFError):
        while True:
            _send(sys.stdout.buffer, index.removals(pickle.load(sys.stdin.buffer)))


if __name__ == "__main__":
    main()
