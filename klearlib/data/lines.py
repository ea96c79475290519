"""Files of JSON lines: those that stages hand to each other, each of which appears under its name
when it is whole, and those of a user, read within limits."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from klearlib.errors import KlearError
from klearlib.run.files import one_line_failures, sync_folder

MAX_BLANK_LINES = 10_000
"""One after the other: some kilobytes of a packed file may hold a thousand million."""


class LineWriter:
    """A file of JSON lines that grows row by row and is there, under `path`, when the block ends
    without error."""

    def __init__(self, path: Path | str):
        self.path, self.num_rows = Path(path), 0
        # Half-written files of this name are swept by the run folder at the next start.
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> LineWriter:
        with one_line_failures(self.path):
            self._file = open(self._temporary, "wb")
        return self

    def add(self, row: Mapping) -> None:
        """Add one row."""
        self.add_line(json_line(row))

    def add_line(self, line: str) -> None:
        """Add one row that is text already, see `json_line`."""
        self.num_rows += 1
        with one_line_failures(self.path):
            self._file.write(line.encode())

    def __exit__(self, kind: type | None, *_: object) -> None:
        try:
            with one_line_failures(self.path), self._file:
                self._close(is_whole=kind is None)
                self._file.flush()
                os.fsync(self._file.fileno())
            if kind is None:
                with one_line_failures(self.path):
                    os.replace(self._temporary, self.path)
                    sync_folder(self.path.parent)
        finally:
            self._temporary.unlink(missing_ok=True)

    def _close(self, *, is_whole: bool) -> None:
        """What is still to be written before the file is closed."""


def json_line(row: Mapping) -> str:
    """A row as a line of JSON."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def read_lines(path: Path | str) -> Iterator[dict]:
    """The rows of a file of JSON lines that a stage of this suite wrote."""
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from map(json.loads, file)


def bounded_lines(
    file: IO[bytes], name: str, *, max_line_bytes: int, max_bytes: int
) -> Iterator[bytes]:
    """The lines of a file of somebody's, cut at line feeds alone: text also ends at U+2028, which
    JSON leaves inside. At most one line is held.

    file: open, and unpacked where it is packed. name: of it, for messages. max_line_bytes: limit of
    a line. max_bytes: limit of all of them together. Raises KlearError where one is passed, or that
    of blank lines.
    """
    num_bytes = num_blank = number = 0
    while line := file.readline(max_line_bytes + 1):
        number += 1
        num_bytes += len(line)
        num_blank = num_blank + 1 if line.isspace() else 0
        if len(line) > max_line_bytes:
            raise KlearError(
                f"{name} has more than {max_line_bytes:,} bytes in line {number}, the limit: write "
                "one row a line"
            )
        if num_bytes > max_bytes:
            raise KlearError(
                f"{name} has more than {max_bytes:,} bytes in all, unpacked, the limit: split it"
            )
        if num_blank > MAX_BLANK_LINES:
            raise KlearError(
                f"{name} has more than {MAX_BLANK_LINES:,} blank lines before line {number}, the "
                "limit: remove them"
            )
        yield line


def parse_row(text: str) -> object:
    """What a line of JSON says.

    Raises ValueError for no JSON, nesting too deep for Python, or a key that is written twice.
    """
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class DoubledKey(ValueError):
    """A key that an object of JSON has twice, of which Python would take the last."""


def unique_keys(pairs: list[tuple[str, object]]) -> dict:
    """The `object_pairs_hook` that raises `DoubledKey`."""
    row = dict(pairs)
    if len(row) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise DoubledKey(f"{twice!r:.100} is written twice")
    return row
