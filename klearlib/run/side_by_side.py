"""Several notebooks at a time, each in a process of its own, with one log and one account of time.

After a failure no further notebook starts, unless asked to keep going; those that run are finished,
as their results are wanted anyway. A stop (Ctrl-C, SIGTERM) is passed on: each kernel saves its
state and ends; a second one kills the kernels, a third the processes that execute the notebooks.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from klearlib.errors import KlearError
from klearlib.run.executor import Executor
from klearlib.run.files import write_failure
from klearlib.run.kernel import EXIT_CTRL_C
from klearlib.run.progress import rough

POLL_S = 0.2


@dataclass(frozen=True)
class Task:
    """One notebook to execute.

    prefix: of its lines. log: the file whose lines are shown while it runs. alone: it starts when
    no other runs, and none starts beside it. begin: called when it starts, gives what
    `Executor.ask` takes. end: called with its seconds when it is done, gives a line about it. Both
    may raise KlearError and OSError. after_failure: the last lines of a failure. estimate_s: None
    where unknown.
    """

    prefix: str
    log: Path
    begin: Callable[[], dict]
    end: Callable[[float], str]
    after_failure: Sequence[str] = ()
    alone: bool = False
    estimate_s: float | None = None


class Stops:
    """Counts SIGTERM and SIGINT inside the block; `exit_code` is that of the first.

    Nothing is raised: a stop that comes between any two lines could lose a process. Use it in the
    main thread (elsewhere it counts nothing).
    """

    def __init__(self) -> None:
        self.count = 0
        self.exit_code = EXIT_CTRL_C
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Stops:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _count(self, number: int, _frame: object) -> None:
        if not self.count:
            self.exit_code = 128 + number
        self.count += 1


def run_side_by_side(
    tasks: Sequence[Task],
    *,
    jobs: int,
    keep_going: bool,
    stops: Stops,
    num_cached: int = 0,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Execute `tasks`, at most `jobs` at a time and started in their order.

    num_cached: notebooks that count as done before. variables: of the kernels' environment.
    Returns the exit code: that of the first that failed, or of the stop that `stops` counted. No
    process is left when this ends.
    """
    waiting, running, code = deque(tasks), [], 0
    idle: list[Executor] = []
    account = _Account(tasks, num_cached)
    try:
        while not stops.count:
            while waiting and len(running) < jobs and (keep_going or not code):
                if running and (waiting[0].alone or running[0].task.alone):
                    break
                running.append(_Running(waiting.popleft(), _executor(idle, variables)))
                running[-1].begin()
            if not running:
                break
            select.select([each.executor for each in running], [], [], POLL_S)
            for each in [each for each in running if each.has_ended()]:
                running.remove(each)
                idle.append(each.executor)
                code = code or each.code
                account.tell(each, running)
    finally:
        _end(running, idle, stops)
    return stops.exit_code if stops.count else code


def _executor(idle: list[Executor], variables: Mapping[str, str]) -> Executor:
    """One of `idle` that lives, or a new one."""
    while idle:
        executor = idle.pop()
        if not executor.has_ended:
            return executor
        executor.close()
    return Executor(variables)


def _end(running: Sequence[_Running], idle: Sequence[Executor], stops: Stops) -> None:
    """End all processes: kernels save their state first, and a notebook that ends now counts."""
    executors = [*idle, *(each.executor for each in running)]
    num_asked, first = 0, min(stops.count, 1)
    if stops.count and running:
        with contextlib.suppress(OSError):
            print("klear: stopping: what runs saves its state; once more ends it now", flush=True)
    while alive := [executor for executor in executors if not executor.has_ended]:
        if num_asked <= stops.count - first:
            num_asked += 1
            for executor in alive:
                executor.stop() if num_asked < 3 else executor.kill()
        time.sleep(0.05)
    for each in running:
        with contextlib.suppress(OSError):  # a closed terminal must not keep the next from its end
            each.has_ended(stopping=True)
    for executor in executors:
        executor.close()


class _Running:
    """A notebook that an executor works on; `code` is its exit code when it has ended."""

    def __init__(self, task: Task, executor: Executor):
        self.task = task
        self.executor = executor
        self.began = time.monotonic()
        self.code = 0
        self._tail: _Tail | None = None
        self._refused: dict | None = None  # the answer where it could not begin

    def begin(self) -> None:
        """Have it executed."""
        try:
            request = self.task.begin()
            self._tail = _Tail(self.task.log)
        except (KlearError, OSError) as error:
            code, lines = _told(error, self.task.log)
            self._refused = {"code": code, "lines": lines, "seconds": 0.0}
            return
        self.executor.ask(request)

    def has_ended(self, *, stopping: bool = False) -> bool:
        """Show what it logged; whether it has ended, which is then said and accounted for.

        stopping: only success is worth a word.
        """
        answer = self._refused or self.executor.answer()
        self._say(self._tail.lines(last=answer is not None) if self._tail else ())
        if answer is None:
            return False
        self.code, lines = answer["code"], answer["lines"]
        if not self.code:
            try:
                lines = [self.task.end(answer["seconds"])]
            except (KlearError, OSError) as error:
                self.code, lines = _told(error, self.task.log)
        if not self.code or not stopping:
            self._say([*lines, *(self.task.after_failure if self.code else ())])
        return True

    def _say(self, lines: Sequence[str]) -> None:
        if lines:
            text = "".join(f"{self.task.prefix} {line}\n" for line in lines)
            print(text, end="", file=sys.stdout, flush=True)


def _told(error: KlearError | OSError, path: Path) -> tuple[int, list[str]]:
    if isinstance(error, OSError):
        error = write_failure(error, error.filename or path)
    return error.exit_code, [str(error)]


class _Tail:
    """The lines that are added to a file from now on."""

    def __init__(self, path: Path):
        self._file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115
        self._file.seek(0, os.SEEK_END)
        self._unfinished = ""

    def lines(self, *, last: bool = False) -> list[str]:
        """Those that are new; with `last` also one without its end, and no more after it."""
        if self._file.closed:
            return []
        *lines, self._unfinished = (self._unfinished + self._file.read()).split("\n")
        if last:
            self._file.close()
            lines += [self._unfinished] if self._unfinished else []
        return lines


class _Account:
    """How many notebooks are done and how long the others will take.

    A notebook counts as many seconds as it is expected to take alone; how many of these pass in a
    second of this run is measured.
    """

    def __init__(self, tasks: Sequence[Task], num_cached: int):
        known = [task.estimate_s for task in tasks if (task.estimate_s or 0) > 0]
        usual = sum(known) / len(known) if known else 1.0
        self._expected = {
            id(task): task.estimate_s if (task.estimate_s or 0) > 0 else usual for task in tasks
        }
        self._num_done, self._num_failed = num_cached, 0
        self._total = num_cached + len(tasks)
        self._ended_s = 0.0
        self._began = time.monotonic()

    def tell(self, ended: _Running, running: Sequence[_Running]) -> None:
        """Print the account after `ended`, while the others are `running`."""
        self._num_done += not ended.code
        self._num_failed += bool(ended.code)
        self._ended_s += self._expected[id(ended.task)]
        now = time.monotonic()
        done_s = self._ended_s
        for each in running:
            expected = self._expected[id(each.task)]
            done_s += min((now - each.began) / (len(running) + 1), 0.9 * expected)
        left = (sum(self._expected.values()) - done_s) * (now - self._began) / done_s
        failed = f", {self._num_failed} failed" if self._num_failed else ""
        time_left = f", {rough(left)} left" if left > 0 else ""
        print(
            f"klear: {self._num_done} of {self._total} notebooks done{failed}{time_left}",
            flush=True,
        )
