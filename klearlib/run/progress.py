"""What a run of many stages shows while it goes on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

PROGRESS_LOG = "KLEAR_PROGRESS_LOG"
REDRAW_EVERY_S = 1.0
LINE_EVERY_S = 30.0


@dataclass(frozen=True)
class ProgressRow:
    """One stage or task at one moment."""

    name: str
    title: str
    state: str  # as of `klearlib.run.job.Job`
    estimate_s: float = 0.0
    elapsed_s: float = 0.0  # in this process (running) or in all (done, 0 where it was cached)
    remaining_s: float | None = None  # of a running stage whose speed is known
    done: int = 0
    total: int = 0
    note: str = ""  # what is learnt, the most telling first, with commas between
    needs: tuple[int, ...] = ()  # positions of the rows of what comes before it
    is_task: bool = False
    doing: str = ""  # what goes on within a step
    warning: str = ""  # what its user has to know

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "waiting")

    @property
    def cells(self) -> list[str]:
        """Title, steps done, time left (else elapsed), and what is learnt."""
        if self.remaining_s is None:
            left = f"{clock(self.elapsed_s)} elapsed"
        else:
            left = f"about {clock(self.remaining_s)} left"
        steps = f"{self.done}/{self.total}" if self.total else ""
        return [self.title, steps, left, ", ".join(filter(None, [self.note, self.doing]))]


def eta_s(rows: Sequence[ProgressRow], num_workers: int) -> float | None:
    """Seconds until the last one ends; None where a stage gives nothing to tell it from.

    The larger of the work left divided by the workers and of the longest chain of stages. A
    waiting stage takes the mean time of the stages of its name that ran or whose speed is known,
    or else its own estimate. A task takes its estimate, and without one no time.

    >>> eta_s([ProgressRow("rl", "a", "done", elapsed_s=4.0), ProgressRow("rl", "b", "waiting")], 2)
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


def _remaining_s(row: ProgressRow, lengths: list[float] | None) -> float | None:
    if row.is_over:
        return 0.0
    if row.remaining_s is not None:
        return row.remaining_s
    expected = sum(lengths) / len(lengths) if lengths else row.estimate_s
    if expected <= 0 and not row.is_task:
        return None
    return max(expected - row.elapsed_s, 0.0)


def summary(rows: Sequence[ProgressRow], num_workers: int, elapsed_s: float) -> str:
    """One line on the whole run."""
    stages = [row for row in rows if not row.is_task]
    tasks = [row for row in rows if row.is_task]
    counted = [(stages, "stages")] if stages or not tasks else []
    counted += [(tasks, "tasks")] if tasks else []
    head = " and ".join(f"{_count(each, 'done')} of {len(each)} {word}" for each, word in counted)
    head += " done"
    if failed := _count(rows, "failed"):
        head += f", {failed} failed"
    if all(row.state == "done" and not row.elapsed_s for row in rows):
        return f"{head} (cached)"  # without times: the same text in each re-run
    head += f", {clock(elapsed_s)} elapsed"
    if all(row.is_over for row in rows):
        return head
    left = eta_s(rows, num_workers)
    return f"{head}, time left unknown" if left is None else f"{head}, about {clock(left)} left"


def _count(rows: Sequence[ProgressRow], state: str) -> int:
    return sum(row.state == state for row in rows)


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
    notebook holds the last state), in a terminal a table that rich redraws below all that is
    printed meanwhile, elsewhere lines with the time of day on `stream` (default: standard error).

    Such lines come at the start, at the end and every `LINE_EVERY_S` seconds; they go to the file
    named by the environment variable KLEAR_PROGRESS_LOG as well. A stage's warning is shown once,
    at once. listener: called at each look, such as `klearlib.suite.tensorboard.Mirror`.
    """

    def __init__(
        self, stream: TextIO | None = None, *, listener: Callable[[bool], object] | None = None
    ):
        self._in_notebook = stream is None and in_notebook()
        self._stream = None if self._in_notebook else stream or sys.stderr
        self._live = _live(self._stream) if redraws(self._stream) else None
        self._listener = listener
        self._handle = None
        self._began = time.monotonic()
        self._shown = self._lined = float("-inf")
        self._num_over: int | None = None
        self._warnings: dict[str, None] = {}

    def show(self, rows: Sequence[ProgressRow], num_workers: int, *, last: bool = False) -> None:
        """Show `rows` if it is time to; `last` shows them in any case, and nothing after them."""
        now = time.monotonic()
        num_over = sum(row.is_over for row in rows)
        due = last or num_over != self._num_over or now - self._shown >= REDRAW_EVERY_S
        self._num_over = num_over
        head = summary(rows, num_workers, now - self._began)
        running = [row for row in rows if row.state == "running"]
        for row in rows:
            if (
                row.warning
                and (text := f"WARNING: {row.title}: {row.warning}") not in self._warnings
            ):
                self._warnings[text] = None
                self.say(text)
        if self._listener is not None:
            self._listener(last)
        if due:
            self._shown = now
            if self._in_notebook:
                self._display([head, *map(_line, running), *self._warnings])
            elif self._live is not None:
                self._live.update(head if last else _table(head, running), refresh=True)
        if last and self._live is not None:
            self._live.stop()
        if last or now - self._lined >= LINE_EVERY_S:
            self._lined = now
            self._write([head, *(f"  {_line(row)}" for row in running)])

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


def _line(row: ProgressRow) -> str:
    return ", ".join(filter(None, row.cells))


def _table(head: str, running: Sequence[ProgressRow]):
    """The summary and a row with a bar for each running stage, fitted to the terminal by rich."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for justify in ("left", "left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True, overflow="ellipsis", max_width=30)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)  # what room is left
    for row in running:
        title, *numbers, learnt = map(Text, row.cells)
        bar = ProgressBar(total=row.total or None, completed=row.done, width=12)
        table.add_row(title, bar if row.total else "", *numbers, learnt)
    return Group(Text(head), table)


def _live(stream: TextIO):
    from rich.console import Console
    from rich.live import Live

    # A standard stream that goes elsewhere, as to a file, is left alone.
    live = Live(
        console=Console(file=stream, soft_wrap=True, highlight=False),
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    live.start()
    return live


def redraws(stream: TextIO | None) -> bool:
    """Whether lines can be redrawn in place on `stream`: a terminal that moves its cursor."""
    is_terminal = stream is not None and stream.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
