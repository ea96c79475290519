"""Files of JSON lines that stages hand to each other: each appears under its name when it is
whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from klearlib.run.files import one_line_failures, sync_folder


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
        self.num_rows += 1
        with one_line_failures(self.path):
            self._file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    def __exit__(self, kind: type | None, *_: object) -> None:
        try:
            with one_line_failures(self.path), self._file:
                self._close()
                self._file.flush()
                os.fsync(self._file.fileno())
            if kind is None:
                with one_line_failures(self.path):
                    os.replace(self._temporary, self.path)
                    sync_folder(self.path.parent)
        finally:
            self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        """What is still to be written before the file is closed."""


def read_lines(path: Path | str) -> Iterator[dict]:
    """The rows of a file of JSON lines that a stage of this suite wrote."""
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from map(json.loads, file)
