"""A stream in lists of so many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Row = TypeVar("Row")


def chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """The rows in lists of `size`, the last one shorter, as they come.

    >>> list(chunks(iter("abcde"), 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    rows = iter(rows)
    while chunk := list(islice(rows, size)):
        yield chunk
