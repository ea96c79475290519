"""Where the models and data sets of a profile are, which are not on this machine, and how to get
them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from klearlib.data.benchmarks import source_of
from klearlib.data.files import is_hidden
from klearlib.data.sources import source_named
from klearlib.errors import KlearError
from klearlib.hub import (
    WEIGHTS,
    cached_snapshot,
    fetch_command,
    has_weights,
    hub_folder,
    is_path,
)
from klearlib.params import root
from klearlib.params.real import RealParams
from klearlib.run.files import read_json, sha256_file, write_text

_DIGESTS = ".digests.json"
_REMEMBERED = 2**20  # bytes; smaller files are read anew


class Missing(NamedTuple):
    """A model, data set or chat template that is not here. kind: one of these words. looked: where
    it would be. fix: what to do."""

    kind: str
    name: str
    looked: str
    fix: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} is not at {self.looked}: {self.fix}"


def located(path: str) -> Path:
    """A path of real.yaml; one that is not absolute starts at the project's folder."""
    return root() / Path(path).expanduser()


def model_path(model: str) -> Path | None:
    """The folder that a model of real.yaml names, whether it is there or not; None for a hub id.

    ``models/tiny`` looks like a hub id: it is a path where the project has a folder ``models``.
    """
    place = located(model)
    return place if is_path(model) or place.parent.is_dir() else None


def missing_assets(real: RealParams) -> list[Missing]:
    """All that `real` names and that is not whole at its path or in the hub's cache, once for each
    place."""
    missing = []
    for field in dataclasses.fields(real):
        name = getattr(real, field.name)
        if field.metadata.get("asset") == "model" and name:
            place = model_path(name) or cached_snapshot("model", name)
            if place is None or not has_weights(place):
                missing.append(_missing("model", name, model_path(name)))
    template = real.chat_template
    if template is not None and not located(template).is_file():
        missing.append(_missing("chat template", template, located(template)))
    for name, how in _listed(real):
        hub_id = how["hub_id"] or source_named(source_of(name, how["name"])).hub_id
        place = None if how["location"] is None else located(how["location"])
        if place is None and cached_snapshot("dataset", hub_id) is None:
            missing.append(_missing("dataset", hub_id, None))
        elif place is not None and not place.exists():
            missing.append(_missing("dataset", place.name, place))
    return list(dict.fromkeys(missing))


def stamps(real: RealParams) -> dict[str, list[int]]:
    """Size and time of each data file of this machine that `real` names: an edited one shows."""
    places = [located(how["location"]) for _, how in _listed(real) if how["location"] is not None]
    if real.chat_template is not None:
        places.append(located(real.chat_template))
    files = (file for at in places for file in (at, *at.rglob("*")) if file.is_file())
    return {str(file): [file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(files)}


def content_of(place: Path | None, suffixes: tuple[str, ...] = ()) -> str | None:
    """The sha256 of the names and bytes of a file, or of all in a folder; with `suffixes` of those
    in itself with such endings. None for what is not there, and for what the hub has: its name
    stands for it.

    A large file is read again only when its size or time changes.
    """
    if place is None or not place.exists():
        return None
    digest, memory = hashlib.sha256(), root() / "results" / "runs" / _DIGESTS
    known = read_json(memory) if memory.is_file() else {}
    num_known = len(known)
    for file in [place] if place.is_file() else sorted(place.rglob("*")):
        inside = file.relative_to(place)
        if not file.is_file() or is_hidden(inside):
            continue
        if suffixes and (len(inside.parts) > 1 or not file.name.endswith(suffixes)):
            continue
        stat = file.stat()
        key = f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}"
        found = known.get(key) or sha256_file(file)
        if stat.st_size >= _REMEMBERED:
            known[key] = found
        digest.update(f"{inside} {found}\n".encode())
    if len(known) > num_known:
        with suppress(KlearError):  # it is read again next time
            write_text(memory, json.dumps(known, sort_keys=True), make_folder=True)
    return digest.hexdigest()


def _listed(real: RealParams) -> Iterator[tuple[str, dict]]:
    lists = (real.maths_sources, real.code_sources, real.maths_problems, real.code_problems)
    return chain.from_iterable(each.items() for each in (*lists, real.benchmarks))


def _missing(kind: str, name: str, place: Path | None) -> Missing:
    """place: where its path says that it is, None for one of the hub."""
    if place is None:
        return Missing(kind, name, str(hub_folder(kind, name)), fetch_command(kind, name))
    what = f" with config.json and all weights in {WEIGHTS}" if kind == "model" else ""
    return Missing(kind, name, f"{place}{what}", "correct its path in real.yaml")
