"""Files of JSON lines that stages hand to each other. A run folder that is not finished counts for
nothing, so a file may be half written there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


class LineWriter:
    """A file of JSON lines that is written row by row, and how many there are."""

    def __init__(self, path: Path | str):
        self.num_rows = 0
        self._file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115

    def __enter__(self) -> LineWriter:
        return self

    def add(self, row: Mapping) -> None:
        """Add one row."""
        self.num_rows += 1
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write_lines(rows: Iterable[Mapping], path: Path | str) -> int:
    """One line for each row; their number."""
    with LineWriter(path) as file:
        for row in rows:
            file.add(row)
    return file.num_rows


def read_lines(path: Path | str) -> Iterator[dict]:
    """The rows of a file of JSON lines that a stage of this suite wrote."""
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from map(json.loads, file)
