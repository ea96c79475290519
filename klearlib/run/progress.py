"""What a run of many stages shows while it goes on: one block of text, kept up to date."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from klearlib.run.rows import Row, fitted_lines, plain_line, whole_line

PROGRESS_LOG = "KLEAR_PROGRESS_LOG"
REDRAW_EVERY_S = 0.5
SHOW_EVERY_S = 1.0
LINE_EVERY_S = 30.0
NOTEBOOK_COLUMNS = 110


class Progress:
    """Shows the rows of a run: in a notebook one output that is updated in place (so that the saved
    notebook holds the last state), in a terminal a block of lines that is redrawn in place below
    all that is printed meanwhile, elsewhere lines with the time of day on `stream` (default:
    standard error).

    Such lines come at the start, at the end and else each `LINE_EVERY_S` seconds; they go to the
    file named by the environment variable KLEAR_PROGRESS_LOG as well. What a stage warns of is said
    once, at once. listener: called at each look, such as `klearlib.suite.tensorboard.Mirror`.
    """

    def __init__(
        self, stream: TextIO | None = None, *, listener: Callable[[bool], object] | None = None
    ):
        self._in_notebook = stream is None and in_notebook()
        self._stream = None if self._in_notebook else stream or sys.stderr
        self._block = Block(self._stream) if redraws(self._stream) else None
        self._listener = listener
        self._handle = None
        self._began = time.monotonic()
        self._shown = self._lined = float("-inf")
        self._num_over: int | None = None
        self._warned: dict[str, None] = {}
        self._text = ""

    def show(self, rows: Sequence[Row], num_workers: int, *, last: bool = False) -> None:
        """Show `rows` if it is time to; `last` shows them in any case, and nothing after them."""
        now = time.monotonic()
        elapsed_s = now - self._began
        num_over = sum(row.is_over for row in rows)
        ended = num_over != self._num_over
        self._num_over = num_over
        head = whole_line(rows, num_workers, elapsed_s)
        for row in rows:
            if row.warning:
                self._warn(f"{row.title}: {row.warning}")
        if self._listener is not None:
            self._listener(last)
        if self._in_notebook and (ended or last or now - self._shown >= SHOW_EVERY_S):
            self._shown = now
            lines = fitted_lines(rows, num_workers, elapsed_s, NOTEBOOK_COLUMNS)
            self._display("\n".join([*lines, *(f"WARNING: {text}" for text in self._warned)]))
        if self._block is not None and last:
            self._block.close(head)
        elif self._block is not None and (ended or now - self._shown >= REDRAW_EVERY_S):
            self._shown = now
            self._block.show(lambda width: fitted_lines(rows, num_workers, elapsed_s, width))
        if last or now - self._lined >= LINE_EVERY_S:
            self._lined = now
            self._lines(head, *(plain_line(row) for row in rows if row.state == "running"))

    def say(self, text: str) -> None:
        """Say something at once, above what is redrawn."""
        if self._block is not None:
            self._block.say(text)
        self._lines(text)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned[text] = None
            self.say(f"WARNING: {text}")

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

    def _lines(self, first: str, *more: str) -> None:
        now = time.strftime("%H:%M:%S")
        text = "".join(f"{now} {line}\n" for line in (first, *(f"  {line}" for line in more)))
        if self._stream is not None and self._block is None:
            self._stream.write(text)
            self._stream.flush()
        if log := os.environ.get(PROGRESS_LOG):
            with open(log, "a", encoding="utf-8") as file:
                file.write(text)


class Block:
    """Lines of a terminal that are redrawn in place, by rich; what is printed to standard output
    and error meanwhile appears above them, unwrapped."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._live = None
        self._lines: list[str] = []
        self._width = 0

    def show(self, lines_of: Callable[[int], list[str]]) -> None:
        """Redraw; lines_of: width -> the lines, as many of which are shown as there is room for."""
        from rich.text import Text

        live = self._live = self._live or _live(self._stream)
        width, height = live.console.size
        if width < self._width:  # the lines that no longer fit have been wrapped by the terminal
            _unwrap(live.console, sum((len(line) - 1) // width for line in self._lines if line))
        # The last column stays free: a full line may wrap.
        lines, self._width = lines_of(width - 1), width
        if len(lines) > (room := max(2, height - 2)):
            lines = [*lines[: room - 1], f"  ... and {len(lines) - room + 1} more"]
        self._lines = lines
        text = Text("\n".join(lines), no_wrap=True, overflow="crop", end="")
        text.highlight_regex("━+", "cyan")
        text.highlight_regex("─+", "bright_black")
        live.update(text, refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the block, so that it stays."""
        if self._live is None:
            print(text, file=self._stream, flush=True)
        else:
            self._live.console.print(text, style="bold yellow", markup=False, highlight=False)

    def keep(self) -> None:
        """Leave what is shown where it is."""
        if self._live is not None:
            self._live.transient = False

    def close(self, text: str = "") -> None:
        """Remove the block, and leave the line `text` in its place."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if text:
            print(text, file=self._stream, flush=True)


def _live(stream: TextIO):
    from rich.console import Console
    from rich.live import Live

    # A standard stream that goes elsewhere, as to a file, is left alone.
    live = Live(
        console=Console(file=stream, soft_wrap=True, highlight=False),
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    live.start()
    return live


def _unwrap(console, num_lines: int) -> None:
    """Erase so many lines from the cursor's upwards."""
    from rich.control import Control
    from rich.segment import ControlType

    console.control(
        Control(*[(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)] * num_lines)
    )


def redraws(stream: TextIO | None) -> bool:
    """Whether lines can be redrawn in place on `stream`: a terminal that moves its cursor."""
    is_terminal = stream is not None and stream.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
