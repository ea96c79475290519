"""Search for overlap in several processes: ``python -m klearlib.curation.overlap_worker``.

The processes are programs of their own and not forks, so threads, open files and the caller's main
module do not matter to them. One reads an index from standard input, then batches of prompts, and
answers each with the removals found; the end of the input ends it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from klearlib.errors import KlearError

if TYPE_CHECKING:
    from klearlib.curation.overlap import OverlapIndex, Removal

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_WAITING = 2  # batches for each process that are read ahead


def results_in_order(
    index: OverlapIndex, batches: Iterator[list[str]], num_workers: int
) -> Iterator[Removal | None]:
    """What `index` says of every prompt of `batches`, by `num_workers` processes.

    Raises KlearError for a prompt that is no text, or a process that ended early.
    """
    message = pickle.dumps(index, protocol=pickle.HIGHEST_PROTOCOL)
    idle: SimpleQueue[Callable] = SimpleQueue()
    waiting: deque[Future] = deque()

    def ask(batch: list[str]) -> list[Removal | None]:
        searcher = idle.get()
        try:
            return searcher(batch)
        finally:
            idle.put(searcher)

    with ExitStack() as stack:
        executor = ThreadPoolExecutor(num_workers, thread_name_prefix="klear-overlap")
        stack.callback(executor.shutdown, cancel_futures=True)
        for _ in range(num_workers):
            idle.put(stack.enter_context(_searcher(message)))
        for batch in batches:
            for prompt in batch:
                if not isinstance(prompt, str):
                    raise KlearError(f"a prompt must be a text, got {type(prompt).__name__}")
            waiting.append(executor.submit(ask, batch))
            while len(waiting) > num_workers * _WAITING:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


@contextlib.contextmanager
def _searcher(index: bytes) -> Iterator[Callable[[list[str]], list[Removal | None]]]:
    """A process that searches, as a function of a batch."""
    search_path = [p for p in (os.environ.get("PYTHONPATH"), _PACKAGE_ROOT) if p]
    process = subprocess.Popen(
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

    unsent = [index]  # by the thread that asks first, so that all processes read theirs at once

    def ask(batch: list[str]) -> list[Removal | None]:
        try:
            while unsent:
                process.stdin.write(unsent.pop())
            _send(process.stdin, batch)
            found = pickle.load(process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            raise KlearError(
                f"a process that searches for overlap ended with code {process.wait()}: if memory "
                "was short, take fewer workers"
            ) from error
        removals: list[Removal | None] = [None] * len(batch)
        for position, removal in found:
            removals[position] = removal
        return removals

    try:
        yield ask
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):  # what was not sent is not wanted any more
                pipe.close()


def _send(pipe, value: object) -> None:
    pickle.dump(value, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def main() -> None:
    messages, replies = sys.stdin.buffer, sys.stdout.buffer
    index = pickle.load(messages)
    while True:
        try:
            batch = pickle.load(messages)
        except EOFError:
            return
        removals = index.removals(batch)
        _send(replies, [(place, removal) for place, removal in enumerate(removals) if removal])


if __name__ == "__main__":
    main()
