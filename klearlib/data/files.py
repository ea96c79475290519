"""Rows of a data set from files of this machine or from the hub, one at a time.

A location is a file (``.parquet``, ``.jsonl``, ``.json``; the last two also ``.gz``) or a folder of
such files. Of JSON lines and parquet some rows are held, an array of JSON is read whole.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from klearlib.data.rows import UnusableRow, parsed
from klearlib.errors import KlearError, MissingAsset, one_line

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
ROWS_AT_ONCE = 64
"""Rows of a parquet file that are decoded together: a row of tests may have megabytes."""


@dataclass(frozen=True)
class Table:
    """Rows to come: `columns` holds their names, None where the first row cannot be read, and
    `rows` starts a new pass. A row that cannot be read is an `UnusableRow` in its place."""

    columns: tuple[str, ...] | None
    rows: Callable[[], Iterator[Mapping | UnusableRow]]

    @classmethod
    def of(cls, rows: Callable[[], Iterator[Mapping | UnusableRow]]) -> Table:
        """The table of rows whose columns are those of the first one."""
        first = next(iter(rows()), None)
        return cls(tuple(map(str, first)) if isinstance(first, Mapping) else None, rows)


def open_location(
    location: Path | str,
    *,
    wanted: Sequence[str],
    split: str | None,
    config: str | None,
    must_match: Sequence[str | None] = (),
) -> list[Table]:
    """The tables at a location, one for each file, in the order of their names.

    Args:
        wanted: columns to read, where a file's format lets the others be skipped.
        config: of a folder, only files below a folder of that name; all where there is none.
        split: likewise, or files whose own name it is but for numbers (``test3.jsonl``,
            ``train-00000-of-00002.parquet``), or else starts with it (``train_math.jsonl``).
        must_match: those of split and config that were asked for, which must be there.

    Raises:
        MissingAsset: nothing there. KlearError: a file of another kind, files of several kinds or
            in several folders, a split that is not there.
    """
    path = Path(location).expanduser()
    if path.is_file():
        if any(must_match):
            raise KlearError(f"{path} is one file: omit split and config, or name its folder")
        return [_file_table(path, wanted)]
    if not path.is_dir():
        raise MissingAsset(
            f"no file or folder at {path}: download the data set or correct the path"
        )
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise KlearError(f"{path} was written by save_to_disk: export it with to_parquet")
    files = sorted(f for f in path.rglob("*") if f.is_file() and _suffix(f))
    files = [f for f in files if not is_hidden(f.relative_to(path))]
    if not files:
        raise MissingAsset(f"{path} has no {', '.join(SUFFIXES)} files: name the folder of files")
    for word in filter(None, (config, split)):
        exact, alike = [f for f in files if word in f.relative_to(path).parts[:-1]], []
        if word == split:
            # LiveCodeBench's parts are test.jsonl to test6.jsonl.
            numbered = re.compile(re.escape(word) + r"\d*(-\d[\w-]*)?\.\D*")
            exact = exact or [f for f in files if numbered.fullmatch(f.name)]
            alike = [f for f in files if re.match(f"{re.escape(word)}[-._]", f.name)]
        if word in must_match and not exact:
            raise KlearError(f"{path} has no file or folder named after {word!r}: leave it out")
        files = exact or alike or files
    # Folders are configs, and some hold the rows of others again.
    kinds = {f"{f.parent.relative_to(path) / '*'}{_suffix(f).removesuffix('.gz')}" for f in files}
    if len(kinds) > 1:
        words = ", ".join(sorted(kinds)[:4])
        raise KlearError(f"{path} mixes kinds of files or folders ({words}): name one")
    return [_file_table(f, wanted) for f in files]


def open_hub(
    hub_id: str,
    *,
    config: str | None,
    split: str,
    hub_file: str | None,
) -> Table:
    """The rows of a split on the hub, streamed by `datasets.load_dataset`.

    hub_file: a JSON file of the repository to read by itself, for repositories whose loading script
    `datasets` >= 4 refuses to run. Raises MissingAsset where the hub is out of reach or has no such
    data set, KlearError where it has no such config or split.
    """
    import datasets

    what, how = (hub_id, config), {}
    if hub_file is not None:
        file = f"hf://datasets/{hub_id}/{hub_file.format(split=split)}"
        what, how = ("json",), {"data_files": {split: file}}

    try:
        found = datasets.load_dataset(*what, split=split, streaming=True, **how)
    except OSError as error:
        raise MissingAsset(
            f"cannot read {hub_id} from the hub ({one_line(error)}): connect, or download it "
            "elsewhere and name its file or folder as location"
        ) from error
    except (ValueError, RuntimeError) as error:
        raise KlearError(
            f"{hub_id} has no config {config!r} with a split {split!r} that can be read: "
            f"{one_line(error)}"
        ) from error
    rows = partial(iter, found)
    return Table.of(rows) if found.features is None else Table(tuple(found.features), rows)


def _suffix(path: Path) -> str:
    return next((s for s in reversed(SUFFIXES) if path.name.lower().endswith(s)), "")


def is_hidden(inside: Path) -> bool:
    """Whether a file, by its path in a data set's folder, is what a download leaves beside the
    files; and dataset_infos.json describes and holds no rows."""
    return inside.stem == "dataset_infos" or any(part.startswith(".") for part in inside.parts)


def _file_table(path: Path, wanted: Sequence[str]) -> Table:
    suffix = _suffix(path)
    if not suffix:
        raise KlearError(f"{path} is not one of {', '.join(SUFFIXES)}: convert it, or name another")
    if suffix != ".parquet":
        return Table.of(lambda: _json_rows(path))
    import pyarrow
    from pyarrow import parquet

    def rows() -> Iterator[Mapping]:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            read = [name for name in columns if name in wanted]
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=read, use_threads=False):
                yield from batch.to_pylist()

    try:
        columns = tuple(parquet.read_schema(path).names)
    except (OSError, pyarrow.ArrowException) as error:
        raise KlearError(
            f"{path} cannot be read as parquet ({one_line(error)}): download it again"
        ) from None
    return Table(columns, rows)


def _json_rows(path: Path) -> Iterator[Mapping | UnusableRow]:
    """The rows of a file of JSON lines or, in a ``.json``, of one JSON array; ``.gz`` or not.

    A line that is no row is an `UnusableRow` in its place; blank lines are none. Raises KlearError
    for a packed file that ends too early, and for an array that is no JSON.
    """
    with gzip.open(path) if _suffix(path).endswith(".gz") else path.open("rb") as file:
        try:
            start = file.peek(64)[:64].removeprefix(codecs.BOM_UTF8).lstrip()
            if ".jsonl" not in _suffix(path) and start.startswith(b"["):
                for number, item in enumerate(parsed(file.read(), str(path))):
                    yield _row(item, f"{path.name} item {number}")
                return
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _row(line, f"{path.name} line {number}")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise KlearError(
                f"{path} is not a whole gzip file ({one_line(error)}): download it again"
            ) from None


def _row(item: object, row_id: str) -> Mapping | UnusableRow:
    try:
        row = parsed(item, "the row")
    except UnusableRow as error:
        return UnusableRow(error.reason, str(error), row_id)
    if isinstance(row, Mapping):
        return row
    message = f"must be a mapping of columns, got {type(row).__name__}"
    return UnusableRow("unknown_format", message, row_id)
