"""What a run of many stages shows while it goes on: one block of text, kept up to date."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

PROGRESS_LOG = "KLEAR_PROGRESS_LOG"
SHOW_EVERY_S = 1.0
LINE_EVERY_S = 5.0


@dataclass(frozen=True)
class Row:
    """One stage or task at one moment."""

    name: str
    title: str
    state: str  # as of `klearlib.run.job.Job`
    estimate_s: float = 0.0
    elapsed_s: float = 0.0  # in this process (running) or in all (done, 0 where it was cached)
    remaining_s: float | None = None  # of a running stage whose speed is known
    done: int = 0
    total: int = 0
    note: str = ""
    needs: tuple[int, ...] = ()  # positions of the rows of what comes before it
    is_task: bool = False

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "waiting")


def eta_s(rows: Sequence[Row], num_workers: int) -> float | None:
    """Seconds until the last one ends; None where a stage gives nothing to tell it from.

    The larger of the work left divided by the workers and of the longest chain of stages. A
    waiting stage takes the mean time of the stages of its name that ran or whose speed is known,
    or else its own estimate. A task takes its estimate, and without one no time.

    >>> eta_s([Row("rl", "a", "done", elapsed_s=4.0), Row("rl", "b", "waiting")], 2)
    4.0
    """
    lengths: dict[str, list[float]] = {}
    for row in rows:
        if row.state == "done" and row.elapsed_s:
            lengths.setdefault(row.name, []).append(row.elapsed_s)
        elif row.remaining_s is not None:
            lengths.setdefault(row.name, []).append(row.elapsed_s + row.remaining_s)
    work, ends = 0.0, []
    for row in rows:
        left = _remaining_s(row, lengths.get(row.name))
        if left is None:
            return None
        work += left
        ends.append(left + max((ends[i] for i in row.needs), default=0.0))
    return max([work / num_workers, *ends])


def _remaining_s(row: Row, lengths: list[float] | None) -> float | None:
    if row.is_over:
        return 0.0
    if row.remaining_s is not None:
        return row.remaining_s
    expected = sum(lengths) / len(lengths) if lengths else row.estimate_s
    if expected <= 0 and not row.is_task:
        return None
    return max(expected - row.elapsed_s, 0.0)


class Progress:
    """Shows the rows of a run: in a notebook one output that is updated in place (so that the saved
    notebook holds the last state), elsewhere lines on `stream` (default: standard error).

    A line goes to the stream, and to the file named by the environment variable
    KLEAR_PROGRESS_LOG, when a stage ended and else at most each `LINE_EVERY_S` seconds.
    """

    def __init__(self, stream: TextIO | None = None):
        self._in_notebook = stream is None and in_notebook()
        self._stream = None if self._in_notebook else stream or sys.stderr
        self._handle = None
        self._began = time.monotonic()
        self._shown = self._lined = float("-inf")
        self._num_over: int | None = None
        self._text = ""

    def show(self, rows: Sequence[Row], num_workers: int, *, last: bool = False) -> None:
        """Show `rows` if it is time to; `last` shows them in any case."""
        now = time.monotonic()
        num_over = sum(row.is_over for row in rows)
        ended = num_over != self._num_over
        self._num_over = num_over
        head = _head(rows, num_workers, now - self._began)
        running = [_describe(row) for row in rows if row.state == "running"]
        if self._in_notebook and (ended or last or now - self._shown >= SHOW_EVERY_S):
            self._shown = now
            self._display("\n".join([head, *(f"  {line}" for line in running)]))
        if ended or now - self._lined >= LINE_EVERY_S:
            self._lined = now
            self._line("; ".join([head, *running]))

    def _display(self, text: str) -> None:
        if text == self._text:
            return
        self._text = text
        content = {"text/plain": text}
        if self._handle is None:
            from IPython.display import display

            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def _line(self, line: str) -> None:
        if self._stream is not None:
            print(line, file=self._stream, flush=True)
        if log := os.environ.get(PROGRESS_LOG):
            with open(log, "a", encoding="utf-8") as file:
                file.write(line + "\n")


def _head(rows: Sequence[Row], num_workers: int, elapsed_s: float) -> str:
    stages = [row for row in rows if not row.is_task]
    tasks = [row for row in rows if row.is_task]
    counted = [(stages, "stages")] if stages or not tasks else []
    counted += [(tasks, "tasks")] if tasks else []
    head = " and ".join(f"{_num(each, 'done')} of {len(each)} {word}" for each, word in counted)
    head += " done"
    if failed := _num(rows, "failed"):
        head += f", {failed} failed"
    if all(row.state == "done" and not row.elapsed_s for row in rows):
        return f"{head} (kept from before)"  # without times: the same text in each re-run
    head += f", {_clock(elapsed_s)} elapsed"
    if all(row.is_over for row in rows):
        return head
    left = eta_s(rows, num_workers)
    return f"{head}, time left unknown" if left is None else f"{head}, about {_clock(left)} left"


def _num(rows: Sequence[Row], state: str) -> int:
    return sum(row.state == state for row in rows)


def _describe(row: Row) -> str:
    parts = [row.title]
    if row.total:
        parts.append(f"{row.done}/{row.total}")
    parts.append(f"{_clock(row.elapsed_s)} elapsed")
    if row.remaining_s is not None:
        parts.append(f"about {_clock(row.remaining_s)} left")
    return ", ".join([*parts, *([row.note] if row.note else [])])


def _clock(seconds: float) -> str:
    """
    >>> _clock(75), _clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rough(seconds: float | None) -> str:
    """A rough time for people.

    >>> rough(90.0), rough(None)
    ('about 2 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
