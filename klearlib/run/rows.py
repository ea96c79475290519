"""The rows of a run that goes on, the time they say is left, and their text for any width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NARROW = 80
"""Columns below which words are left out before numbers are."""
_BAR = (6, 24)
_FULL, _EMPTY = "━", "─"


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
    note: str = ""  # what is learnt, the most telling first, with commas between
    needs: tuple[int, ...] = ()  # positions of the rows of what comes before it
    is_task: bool = False
    step_s: float | None = None  # seconds of one of `total`, where they are known
    doing: str = ""  # what goes on within a step
    warning: str = ""  # what its user has to know

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


def whole_line(rows: Sequence[Row], num_workers: int, elapsed_s: float) -> str:
    """One line on the whole run."""
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
    head += f", {clock(elapsed_s)} elapsed"
    if all(row.is_over for row in rows):
        return head
    left = eta_s(rows, num_workers)
    return f"{head}, time left unknown" if left is None else f"{head}, about {clock(left)} left"


def _num(rows: Sequence[Row], state: str) -> int:
    return sum(row.state == state for row in rows)


def plain_line(row: Row) -> str:
    """One line on a running stage or task, of any width."""
    parts = [row.title]
    if row.total:
        parts.append(f"{row.done}/{row.total}")
    parts.append(f"{clock(row.elapsed_s)} elapsed")
    if row.remaining_s is not None:
        parts.append(f"about {clock(row.remaining_s)} left")
    return ", ".join(filter(None, [*parts, row.note, row.doing]))


def fitted_lines(rows: Sequence[Row], num_workers: int, elapsed_s: float, width: int) -> list[str]:
    """The whole run, then each running stage, in lines of at most `width` columns: name, bar,
    count, seconds of a step, time left, what is learnt, and what goes on within the step."""
    head = whole_line(rows, num_workers, elapsed_s)
    if len(head) > width:
        for word, shorter in ((" and ", ", "), (" done", ""), ("about ", ""), (" elapsed", "")):
            head = head.replace(word, shorter)
    running = [row for row in rows if row.state == "running"]
    cells = [(row.title, _count(row), _step(row), _left(row, width)) for row in running]
    sizes = [max(map(len, column), default=0) for column in zip(*cells, strict=True)]
    lines = [cut(head, width)]
    for row, (title, *numbers) in zip(running, cells, strict=True):
        title_size = min(sizes[0], max(14, width // 4))
        taken = title_size + sum(size + 2 for size in sizes[1:] if size)
        learnt = max(len(_learnt(each)) for each in running)
        bar_size = min(_BAR[1], max(_BAR[0], width - taken - learnt - 4))
        parts = [cut(title, title_size).ljust(title_size), _bar(row, bar_size)]
        parts += [text.rjust(size) for text, size in zip(numbers, sizes[1:], strict=True) if size]
        lines.append("  ".join([*parts, _fitting(row, width - taken - bar_size - 4)]).rstrip())
    return [cut(line, width) for line in lines]


def _count(row: Row) -> str:
    return f"{row.done}/{row.total}" if row.total else ""


def _step(row: Row) -> str:
    """
    >>> [_step(Row("rl", "a", "running", step_s=s)) for s in (None, 2.14, 0.02)]
    ['', '2.1 s', '50/s']
    """
    if row.step_s is None:
        return ""
    if row.step_s >= 0.5:
        return f"{row.step_s:.1f} s" if row.step_s < 100 else clock(row.step_s)
    return f"{1 / row.step_s:.0f}/s" if row.step_s else ""


def _left(row: Row, width: int) -> str:
    if row.remaining_s is None:
        return clock(row.elapsed_s) + ("" if width < NARROW else " so far")
    return clock(row.remaining_s) + ("" if width < NARROW else " left")


def _bar(row: Row, size: int) -> str:
    full = size * row.done // row.total if row.total else 0
    return _FULL * full + _EMPTY * (size - full)


def _learnt(row: Row) -> str:
    return ", ".join(filter(None, [row.note, row.doing]))


def _fitting(row: Row, room: int) -> str:
    """As many of the parts of what is learnt as fit into `room`; of a single one its start."""
    parts = _learnt(row).split(", ")
    while len(parts) > 1 and len(", ".join(parts)) > room:
        parts.pop()
    return cut(", ".join(parts), room)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns.

    >>> cut("GPPO, seed 0", 7)
    'GPPO, …'
    """
    return text if len(text) <= width else text[: max(0, width - 1)] + "…" * (width > 0)


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
