"""The table of the data sets, and `read_source`: one of them, from the hub or from files in the
same schema, as problems and labelled responses with an account of every row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from klearlib.data import code, maths, reasoning
from klearlib.data.declaration import Source
from klearlib.data.files import Table, open_hub, open_location
from klearlib.data.reader import SourceReader
from klearlib.errors import KlearError, did_you_mean

SOURCES: dict[str, Source] = {
    source.name: source
    for module in (reasoning, maths, code)
    for source in vars(module).values()
    if isinstance(source, Source)
}
"""Every data set by the name that `read_source` takes."""


def read_source(
    name: str,
    location: Path | str | list[Mapping] | None = None,
    *,
    split: str | None = None,
    config: str | None = None,
    hub_id: str | None = None,
    limit: int | None = None,
    alias: str | None = None,
    window: tuple[str, str] | None = None,
) -> SourceReader:
    """A reader of a data set's usable rows.

    Args:
        name: a name of `SOURCES`, the hub id, or its last part; case does not matter.
        location: a file or a folder of files in the schema of the data set
            (`files.open_location`); or a list of its rows. None reads from the hub.
        split, config: those of the data set's `Source` where None; of a folder they choose files,
            and one that is given must be there: so a file, which is what it is, and rows take none.
        hub_id: another data set of the hub in this one's schema; None is its own.
        limit: rows to read at most, usable or not.
        alias: what `Problem.source` says in place of the name, and what stands before each id,
            where several files have the schema of one data set.
        window: for livecodebench, the first and the last day, both included; rows outside of it are
            rejects (``outside_window``), and their tests are not unpacked.

    Raises:
        MissingAsset: an unknown location, or a hub that cannot be reached.
        KlearError: an unknown name, or a missing column, with the columns found.

    >>> rows = [{"problem": "1 + 1?", "answer": "2"}, {"problem": "Prove it.", "answer": ""}]
    >>> reader = read_source("AceReason-Math", rows)
    >>> [row.problem.answer for row in reader], reader.num_rejected["no_answer"]
    (['2'], 1)
    """
    source = source_named(name)
    if source.split == source.config:  # as its configs have each one split of the same name
        split = config = split or config
    wanted = {"split": split or source.split, "config": config or source.config}
    if location is None:
        tables = [open_hub(hub_id or source.hub_id, **wanted, hub_file=source.hub_file)]
    elif isinstance(location, Path | str):
        tables = open_location(location, wanted=source.wanted, must_match=(split, config), **wanted)
    elif not isinstance(location, list):
        kind = type(location).__name__
        raise KlearError(f"location must be a path or a list of rows, got {kind}: make it a list")
    elif split or config:
        raise KlearError("split and config choose files: leave them out when you give rows")
    else:
        tables = [Table.of(lambda: iter(location))]
    for table in tables:
        if table.columns is not None:
            source.check_columns(table.columns)
    read = source.read if window is None else partial(source.read, window=window)
    return SourceReader(source, tables, read, limit=limit, alias=alias)


def source_named(name: str) -> Source:
    """The data set of a name, a hub id or its last part; KlearError with the names that look
    alike."""
    spelled = re.sub(r"[-.]", "_", name.lower())
    found = [
        source
        for source in SOURCES.values()
        if spelled == source.name or re.fullmatch(f"(?:.*/)?{re.escape(name)}", source.hub_id, re.I)
    ]
    if len(found) > 1:
        names = " or ".join(source.name for source in found)
        raise KlearError(f"{name!r} has several parts: choose {names}")
    if not found:
        raise KlearError(f"no data set {name!r}: {did_you_mean(spelled, SOURCES)}")
    return found[0]
