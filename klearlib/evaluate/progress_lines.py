"""Lines on standard error that say how far a long measurement is and when it ends."""

from __future__ import annotations

import sys
import time

LINE_EVERY_S = 5.0


class ProgressLines:
    """Says ``<verb> 640 of 1920 <noun>, about 2 min left``, at most each `LINE_EVERY_S` seconds.

    kept: how many were done before this process; they say nothing about its speed.
    """

    def __init__(self, verb: str, total: int, *, noun: str = "responses", kept: int = 0) -> None:
        self._words, self._total, self._kept = (verb, noun), total, kept
        self._began = self._lined = time.monotonic()

    def __call__(self, done: int) -> None:
        """`done` of the total, those kept included, are done."""
        now = time.monotonic()
        if now - self._lined < LINE_EVERY_S or done >= self._total:
            return
        self._lined = now
        verb, noun = self._words
        line = f"{verb} {done} of {self._total} {noun}"
        if done > self._kept:
            left_s = (now - self._began) * (self._total - done) / (done - self._kept)
            line += f", about {_length(left_s)} left"
        print(line, file=sys.stderr, flush=True)


def _length(seconds: float) -> str:
    """
    >>> _length(59), _length(600), _length(7300)
    ('59 s', '10 min', '2 h 2 min')
    """
    if seconds < 90:
        return f"{round(seconds)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
