"""Rows of a data set from files of this machine or from the hub, one at a time.

A location is a file (``.parquet``, ``.jsonl``, ``.json``; the last two also ``.gz``), a folder that
`datasets` saved, or a folder of such files. Nothing is unpickled, and at most some rows are held.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from klearlib.data.lines import bounded_lines, unique_keys
from klearlib.data.rows import UnusableRow, parsed, with_long_integers
from klearlib.errors import KlearError, MissingAsset

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
ROWS_AT_ONCE = 64
"""Rows of a parquet file that are decoded together: a row of tests may have megabytes."""

MAX_ROW = 2**30
"""Bytes of a line, or characters of an item of an array."""
MAX_FILE = 2**37
"""Bytes of lines when unpacked."""
_CHUNK_CHARS = 2**20
_BLANKS = re.compile(r"\s*")


@dataclass(frozen=True)
class Table:
    """Rows to come: `columns` holds their names where they are known before the first row, and
    `rows` starts a new pass. A row that cannot be read is an `UnusableRow` in its place."""

    columns: tuple[str, ...] | None
    rows: Callable[[], Iterator[Mapping | UnusableRow]]


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
        split, config: of a folder, only files below a folder of that name, or whose own name is it,
            but for numbers (``train-00000-of-00002.parquet``, ``test3.jsonl``); where there are
            none, files whose name starts with it (``train_math.jsonl``), or else all files. A
            folder that `datasets` saved with several splits must have the one named.
        must_match: those of split and config that were asked for, which must be there.

    Raises:
        MissingAsset: nothing there. KlearError: a file of another kind, files of several kinds or
            in several folders, a split that is not there.
    """
    path = Path(location).expanduser()
    if path.is_file():
        if any(must_match):
            raise KlearError(f"{path} is one file: leave split and config out, or name its folder")
        return [_file_table(path, wanted)]
    if not path.is_dir():
        raise MissingAsset(
            f"no file or folder at {path}: download the data set or correct the path"
        )
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return [_saved_table(path, split, config, must_match)]
    files = sorted(
        f
        for f in path.rglob("*")
        if f.is_file() and _suffix(f) and not is_hidden(f.relative_to(path))
    )
    for word in (config, split):
        if not word or not files:
            continue
        if word == "default" and not any(word in f.relative_to(path).parts[:-1] for f in files):
            continue  # the hub's name for files of no config; some sets have files named so too
        exact = [f for f in files if _names(f.relative_to(path), word)]
        if word in must_match and not exact:
            raise KlearError(f"{path} holds no file or folder named after {word!r}: leave it out")
        starts = re.compile(re.escape(word) + "[-._]")
        files = exact or [f for f in files if starts.match(f.name)] or files
    if not files:
        raise MissingAsset(f"{path} holds none of {', '.join(SUFFIXES)}: name the folder of files")
    kinds = sorted({_suffix(f).removesuffix(".gz") for f in files})
    if len(kinds) > 1:
        raise KlearError(f"{path} holds files of several kinds ({', '.join(kinds)}): name one file")
    folders = sorted({f.parent.relative_to(path).as_posix() for f in files})
    if len(folders) > 1:
        # Folders are configs, and some hold the rows of others again.
        words = ", ".join(folders[:4])
        raise KlearError(f"{path} holds such files in several folders ({words}): name one of them")
    return [_file_table(f, wanted) for f in files]


def open_hub(
    hub_id: str,
    *,
    config: str | None,
    split: str,
    revision: str | None,
    hub_file: str | None,
    streaming: bool,
) -> Table:
    """The rows of a split on the hub, by `datasets.load_dataset`.

    hub_file: a JSON file of the repository to read by itself, for repositories whose loading script
    `datasets` >= 4 refuses to run. Raises MissingAsset where the hub is out of reach or has no such
    data set, KlearError where it has no such config or split.
    """
    import datasets

    what, how = (hub_id, config), {"revision": revision}
    if hub_file is not None:
        at = f"@{revision}" if revision else ""
        file = f"hf://datasets/{hub_id}{at}/{hub_file.format(split=split)}"
        what, how = ("json",), {"data_files": {split: file}}

    def out_of_reach(error: OSError) -> MissingAsset:
        return MissingAsset(
            f"cannot read {hub_id} from the hub ({one_line(error)}): connect, or download it "
            "elsewhere and name its file or folder as location"
        )

    try:
        found = datasets.load_dataset(*what, split=split, streaming=streaming, **how)
    except OSError as error:
        raise out_of_reach(error) from error
    except (ValueError, RuntimeError) as error:
        raise KlearError(
            f"{hub_id} has no config {config!r} with a split {split!r} that can be read: "
            f"{one_line(error)}"
        ) from error

    def rows() -> Iterator[Mapping]:
        try:
            yield from found
        except OSError as error:
            raise out_of_reach(error) from error

    return Table(tuple(found.features) if found.features is not None else None, rows)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _suffix(path: Path) -> str:
    return next((s for s in reversed(SUFFIXES) if path.name.lower().endswith(s)), "")


def is_hidden(inside: Path) -> bool:
    """Whether a file, by its path in a data set's folder, is what a download leaves beside the
    files; and dataset_infos.json describes and holds no rows."""
    return inside.stem == "dataset_infos" or any(part.startswith(".") for part in inside.parts)


def _names(relative: Path, word: str) -> bool:
    # LiveCodeBench's parts are test.jsonl to test6.jsonl; but v10 is no part of v1.
    part = "" if word[-1].isdigit() else r"\d*"
    pattern = re.escape(word) + part + r"(-\d+(-of-\d+(-[0-9a-f]+)?)?)?"
    stem = relative.name[: -len(_suffix(relative))]
    return word in relative.parts[:-1] or bool(re.fullmatch(pattern, stem))


def _file_table(path: Path, wanted: Sequence[str]) -> Table:
    suffix = _suffix(path)
    if not suffix:
        raise KlearError(f"{path} is none of {', '.join(SUFFIXES)}: convert it, or name another")
    if suffix == ".parquet":
        return _parquet_table(path, wanted)
    first = next(_json_rows(path), None)
    columns = tuple(map(str, first)) if isinstance(first, Mapping) else None
    return Table(columns, lambda: _json_rows(path))


def _parquet_table(path: Path, wanted: Sequence[str]) -> Table:
    import pyarrow
    from pyarrow import parquet

    broken = (OSError, UnicodeDecodeError, pyarrow.ArrowException)
    try:
        columns = tuple(parquet.read_schema(path).names)
    except broken as error:
        raise KlearError(
            f"{path} cannot be read as parquet ({one_line(error)}): download it again"
        ) from None

    def rows() -> Iterator[Mapping]:
        read = [name for name in columns if name in wanted]
        number = 0
        try:
            with parquet.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=read, use_threads=False):
                    yield from batch.to_pylist()
                    number += batch.num_rows
        except broken as error:
            raise KlearError(
                f"{path} is broken after row {number} ({one_line(error)}): download it again"
            ) from error

    return Table(columns, rows)


def _saved_table(
    path: Path, split: str | None, config: str | None, must_match: Sequence[str | None]
) -> Table:
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
    except (OSError, ValueError) as error:
        raise KlearError(f"{path} is not what datasets saved ({one_line(error)})") from error
    if isinstance(found, datasets.DatasetDict):
        if split not in found:
            names = ", ".join(sorted(map(str, found)))
            raise KlearError(f"{path} has the splits {names}, not {split!r}: name one as split")
        found = found[split]
    elif split in must_match and split != str(found.split):
        raise KlearError(f"{path} holds the split {found.split}, not {split!r}: leave it out")
    if config in must_match and config not in (None, found.info.config_name):
        name = found.info.config_name
        raise KlearError(f"{path} holds the config {name}, not {config!r}: leave it out")
    return Table(tuple(found.column_names), lambda: iter(found))


def _json_rows(path: Path) -> Iterator[Mapping | UnusableRow]:
    """The rows of a file of JSON lines or, in a ``.json``, of one JSON array; ``.gz`` or not.

    A line that is no row is an `UnusableRow` in its place; blank lines are none. Raises KlearError
    for a file that ends too early or is neither, and for an array of which an item is no JSON.
    """
    may_be_array = ".jsonl" not in _suffix(path)
    with gzip.open(path, "rb") if _suffix(path).endswith(".gz") else path.open("rb") as file:
        try:
            start = file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
            file.seek(0)
            if may_be_array and start[:1] == b"[":
                for number, item in enumerate(_items(file, path)):
                    yield _mapping(item, f"{path.name} item {number}")
                return
            lines = bounded_lines(file, path.name, max_line_bytes=MAX_ROW, max_bytes=MAX_FILE)
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                row = _row(line, f"{path.name} line {number}")
                if may_be_array and number == 1 and isinstance(row, UnusableRow):
                    raise KlearError(f"{path} is neither JSON lines nor an array of rows: {row}")
                yield row
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            fault = one_line(error)
            raise KlearError(
                f"{path} is not a whole gzip file ({fault}): download it again"
            ) from None


def _row(line: bytes, row_id: str) -> Mapping | UnusableRow:
    try:
        return _mapping(parsed(line.decode("utf-8-sig"), "the line"), row_id)
    except UnicodeDecodeError:
        return UnusableRow("bad_json", "the line is not UTF-8", row_id)
    except UnusableRow as error:
        return UnusableRow(error.reason, str(error), row_id)


def _mapping(row: object, row_id: str) -> Mapping | UnusableRow:
    if isinstance(row, Mapping):
        return row
    message = f"must be a mapping of columns, got {type(row).__name__}"
    return UnusableRow("unknown_format", message, row_id)


def _items(file: IO[bytes], path: Path) -> Iterator[object]:
    """The items of a JSON array one by one: the array need not fit into memory."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig")
    decoder = json.JSONDecoder(object_pairs_hook=unique_keys)
    number, mark = 0, ","
    try:
        buffer = text.read(_CHUNK_CHARS).lstrip()[1:]
        at = _BLANKS.match(buffer).end()
        if buffer.startswith("]", at):
            mark, at = "]", at + 1
        while mark == ",":
            try:
                at = _BLANKS.match(buffer, at).end()
                item, end = with_long_integers(decoder.raw_decode, buffer, at)
                fault = "it ends too early"
            except json.JSONDecodeError as error:  # or the item goes on in the next chunk
                end, fault = len(buffer), error.msg
            end = _BLANKS.match(buffer, end).end()
            if end < len(buffer):
                mark, at = buffer[end], end + 1
                if mark not in ",]":
                    raise ValueError(f"{mark!r} follows it")
                yield item
                number += 1
                continue
            # As much again as there is: an item of any length is scanned some few times only.
            more = text.read(max(_CHUNK_CHARS, len(buffer) - at))
            if not more or len(buffer) - at > MAX_ROW:
                raise ValueError(fault)
            buffer, at = buffer[at:] + more, 0
        if (buffer[at:] + text.read(_CHUNK_CHARS)).strip():
            raise ValueError("the file goes on behind the array")
    except (ValueError, RecursionError) as error:
        raise KlearError(
            f"{path} is not a whole JSON array, see item {number} ({one_line(error)}): correct it "
            "or download it again"
        ) from None
    finally:
        text.detach()  # its file is closed by who opened it
