"""What a run of many stages shows while it goes on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TextIO

PROGRESS_LOG = "KLEAR_PROGRESS_LOG"
REDRAW_EVERY_S = 1.0
LINE_EVERY_S = 30.0


@dataclass(eq=False)
class ProgressRow:
    """What is shown of one stage or task; `klearlib.run.job.Job` is one."""

    name: str
    title: str
    state: str  # "waiting", "running", "elsewhere", "done", "failed" or "skipped"
    estimate_s: float = 0.0
    elapsed_s: float = 0.0  # in this process (running) or in all (done, 0 if it was cached)
    remaining_s: float | None = None  # of a running stage with a known speed
    done: int = 0
    total: int = 0
    note: str = ""  # what is learnt, the most informative first, separated by commas
    needs: tuple[ProgressRow, ...] = ()  # what comes before it
    is_task: bool = False
    doing: str = ""  # what goes on within a step
    warning: str = ""  # what its user has to know

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "elsewhere")

    @property
    def is_over(self) -> bool:
        return self.state != "waiting" and not self.is_running

    @property
    def line(self) -> str:
        """Title, steps done, time left (else elapsed), and what is learnt."""
        left = f"{clock(self.elapsed_s)} elapsed"
        if self.remaining_s is not None:
            left = f"about {clock(self.remaining_s)} left"
        steps = f"{self.done}/{self.total}" if self.total else ""
        return ", ".join(filter(None, [self.title, steps, left, self.note, self.doing]))


def eta_s(rows: Sequence[ProgressRow], num_workers: int) -> float | None:
    """Seconds until the last one ends; None if a stage gives nothing to estimate it from.

    The larger of the remaining work divided by the workers and the longest chain of stages. A
    waiting stage counts the mean time of the stages of its name that ran or have a known speed, or
    else its own estimate. A task counts its estimate, or no time without one.

    >>> eta_s([ProgressRow("rl", "a", "done", elapsed_s=4.0), ProgressRow("rl", "b", "waiting")], 2)
    4.0
    """
    lengths: dict[str, list[float]] = {}
    for row in rows:
        if row.remaining_s is not None or (row.state == "done" and row.elapsed_s):
            lengths.setdefault(row.name, []).append(row.elapsed_s + (row.remaining_s or 0.0))
    work, ends = 0.0, {}
    for row in rows:
        left = 0.0 if row.is_over else row.remaining_s
        if left is None:
            expected = fmean(lengths.get(row.name, [row.estimate_s]))
            if expected <= 0 and not row.is_task:
                return None
            left = max(expected - row.elapsed_s, 0.0)
        work += left
        ends[row] = left + max((ends[need] for need in row.needs), default=0.0)
    return max([work / num_workers, *ends.values()])


def summary(rows: Sequence[ProgressRow], num_workers: int, elapsed_s: float) -> str:
    """One line on the whole run."""
    counts = []
    for word, is_task in (("stages", False), ("tasks", True)):
        kind = [row.state for row in rows if row.is_task == is_task]
        if kind or not (rows or is_task):
            counts.append(f"{kind.count('done')} of {len(kind)} {word}")
    head = " and ".join(counts) + " done"
    if failed := [row.state for row in rows].count("failed"):
        head += f", {failed} failed"
    if all(row.state == "done" and not row.elapsed_s for row in rows):
        return f"{head} (cached)"  # without times: the same text in every rerun
    head += f", {clock(elapsed_s)} elapsed"
    if all(row.is_over for row in rows):
        return head
    left = eta_s(rows, num_workers)
    return f"{head}, time left unknown" if left is None else f"{head}, about {clock(left)} left"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Shows the rows of a run: in a notebook one output that is updated in place (so that the saved
    notebook holds the last state), in a terminal lines that rich redraws below all that is
    printed meanwhile, elsewhere lines with the time of day on `stream` (default: standard error).

    Such lines come at the start, at the end and every `LINE_EVERY_S` seconds; they also go to the
    file named by the environment variable KLEAR_PROGRESS_LOG. A stage's warning is shown once,
    within a second. listener: also called each time, such as `klearlib.suite.tensorboard.Mirror`.
    """

    def __init__(
        self, stream: TextIO | None = None, *, listener: Callable[[bool], object] | None = None
    ):
        self._in_notebook = stream is None and in_notebook()
        self._stream = None if self._in_notebook else stream or sys.stderr
        self._live = _live(self._stream)
        self._listener = listener
        self._handle = None
        self._began = time.monotonic()
        self._shown = self._lined = float("-inf")
        self._num_over = -1
        self._warnings: list[str] = []

    def show(self, rows: Sequence[ProgressRow], num_workers: int, *, last: bool = False) -> None:
        """Show `rows` if it is time to; `last` shows them in any case, and nothing after them."""
        now, num_over = time.monotonic(), sum(row.is_over for row in rows)
        if not last and num_over == self._num_over and now - self._shown < REDRAW_EVERY_S:
            return
        self._shown, self._num_over = now, num_over
        head = summary(rows, num_workers, now - self._began)
        lines = [row.line for row in rows if row.is_running]
        for row in rows:
            text = f"WARNING: {row.title}: {row.warning}"
            if row.warning and text not in self._warnings:
                self._warnings.append(text)
                self.say(text)
        if self._listener is not None:
            self._listener(last)
        if self._in_notebook:
            self._display([head, *lines, *self._warnings])
        elif self._live is not None:
            from rich.text import Text

            text = "\n".join([head, *([] if last else lines)])
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            if last:
                self._live.stop()
        if last or now - self._lined >= LINE_EVERY_S:
            self._lined = now
            self._write([head, *(f"  {line}" for line in lines)])

    def say(self, text: str) -> None:
        """Say something at once, above what is redrawn."""
        if self._live is not None:
            self._live.console.print(text, style="bold yellow", markup=False, highlight=False)
        self._write([text])

    def _display(self, lines: Sequence[str]) -> None:
        content = {"text/plain": "\n".join(lines)}
        if self._handle is None:
            from IPython.display import display

            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def _write(self, lines: Sequence[str]) -> None:
        text = "".join(f"{time.strftime('%H:%M:%S')} {line}\n" for line in lines)
        if self._stream is not None and self._live is None:
            self._stream.write(text)
            self._stream.flush()
        if log := os.environ.get(PROGRESS_LOG):
            with open(log, "a", encoding="utf-8") as file:
                file.write(text)


def _live(stream: TextIO | None):
    """What redraws on `stream`; None unless it is a terminal that can move its cursor."""
    if stream is None or not stream.isatty():
        return None
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, soft_wrap=True, highlight=False)
    if console.is_dumb_terminal:
        return None
    # A standard stream that goes elsewhere, as to a file, is left alone.
    live = Live(
        console=console,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    live.start()
    return live


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
