"""Parquet tables of responses, written row by row and read a row group at a time.

Equal rows give equal bytes: nothing in a file depends on time, place or process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# A row group ends at whichever comes first: the memory of a reader is a few times this text.
ROWS_IN_GROUP = 4096
CHARS_IN_GROUP = 16_000_000

# Columns in which few texts come again and again; in the others a dictionary only costs time.
_REPEATED = {"source", "teacher", "reason"}


@dataclass(frozen=True)
class Sample:
    """One response to one problem, as SFT reads it and as filters choose by.

    `source` is the data set that the response came with, or that its problem is of where a model of
    this suite wrote it. `is_correct` is None where nobody judged it or the judge could not
    (`reason` is ``timeout`` or ``judge_error``). `reason` is the word of `klearlib.records.Verdict`
    where the label is this suite's, "" where it came with the data.
    """

    problem_id: str
    prompt: str
    response: str
    source: str = ""
    teacher: str = ""
    is_correct: bool | None = None
    reason: str = ""


SAMPLES = pa.schema(
    [(name, pa.bool_() if name == "is_correct" else pa.string()) for name in Sample.__annotations__]
)


class SampleWriter:
    """A table of samples that is written row by row, and how many there are."""

    def __init__(self, path: Path | str):
        self.num_rows = 0
        self._samples: list[dict] = []
        self._chars = 0
        self._writer = pq.ParquetWriter(
            path,
            SAMPLES,
            compression="zstd",
            compression_level=3,
            use_dictionary=[name for name in SAMPLES.names if name in _REPEATED],
            write_statistics=False,
        )

    def __enter__(self) -> SampleWriter:
        return self

    def add(self, sample: Sample) -> None:
        """Add one sample."""
        self._samples.append(vars(sample))
        self._chars += sum(len(v) for v in vars(sample).values() if isinstance(v, str))
        self.num_rows += 1
        if len(self._samples) >= ROWS_IN_GROUP or self._chars >= CHARS_IN_GROUP:
            self._flush()

    def __exit__(self, *_: object) -> None:
        with self._writer:
            if self._samples:
                self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._samples, schema=SAMPLES))
        self._samples, self._chars = [], 0


def read_rows(path: Path | str, *, columns: list[str] | None = None) -> Iterator[dict]:
    """The rows of a parquet table in order, one row group in memory at a time; `columns` are those
    that are read from the disk, None for all."""
    with pq.ParquetFile(path) as table:
        for group in range(table.num_row_groups):
            yield from table.read_row_group(group, columns=columns).to_pylist()


def write_samples(samples: Iterable[Sample], path: Path | str) -> int:
    """Write samples as one table; their number."""
    with SampleWriter(path) as table:
        for sample in samples:
            table.add(sample)
    return table.num_rows


def read_samples(path: Path | str) -> Iterator[Sample]:
    """The samples that `write_samples` wrote, in order, streamed."""
    return (Sample(**row) for row in read_rows(path))
