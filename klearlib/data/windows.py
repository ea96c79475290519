"""Benchmark windows: the problems of a contest site between two moments, both of them included."""

from __future__ import annotations

from datetime import datetime

from klearlib.errors import KlearError

LIVECODEBENCH_V5 = ("2024-08-01", "2025-02-01")
LIVECODEBENCH_V6 = ("2025-02-01", "2025-05-01")
"""The windows of the paper's LiveCodeBench scores. Both hold 2025-02-01."""


def in_window(day: str, start: str, end: str) -> bool:
    """Whether ``start <= day <= end``, as LiveCodeBench's own filter compares.

    ISO 8601 dates, with or without a time of day; without one midnight is meant. So a contest at
    00:00 of the last day is inside, one in its evening is not. A time zone is not looked at. Raises
    KlearError for a text that is no such date.

    >>> in_window("2025-02-01", "2024-08-01", "2025-02-01")
    True
    >>> in_window("2025-02-01T19:30:00", "2024-08-01", "2025-02-01")
    False
    """
    return _moment(start) <= _moment(day) <= _moment(end)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except (TypeError, ValueError):
        raise KlearError(f"{text!r} is not a date: write it as 2025-02-01") from None
