"""Where the models and data sets of a profile are, which are not on this machine, and how to get
them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

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
from klearlib.params.real import RealParams, shape_of_model
from klearlib.policy.shape import ModelShape
from klearlib.run.files import read_json, sha256_file, write_text

SIZES_GB = {
    "open-r1/OpenR1-Math-220k": 4.2,
    "open-thoughts/OpenThoughts3-1.2M": 28.2,
    "AI-MO/NuminaMath-1.5": 0.5,
    "nvidia/OpenCodeReasoning": 32.8,
    "Skywork/Skywork-OR1-RL-Data": 1.5,
    "Kwai-Klear/KlearReasoner-MathSub-30K": 0.02,
    "Kwai-Klear/KlearReasoner-CodeSub-15K": 4.2,
}
"""Of the downloads whose size is known, in gigabytes; docs/datasets.md has the data sets."""


_LARGE, _DIGESTS = 2**16, ".digests.json"


@dataclass(frozen=True)
class Missing:
    """A model, data set or chat template that is not here.

    `kind` is ``model``, ``dataset`` or ``chat template``; `looked` is where it would be; `command`
    fetches it, "" where a path of real.yaml is wrong; `size_gb` is None where nobody has written it
    down.
    """

    kind: str
    name: str
    looked: str
    command: str
    size_gb: float | None

    def __str__(self) -> str:
        size = f" ({self.size_gb:g} GB)" if self.size_gb is not None else ""
        how = self.command or "mend its path in real.yaml"
        return f"{self.kind} {self.name}{size} is not at {self.looked}: {how}"


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
    return list(dict.fromkeys((*_models(real), *_data_sets(real))))


def _models(real: RealParams) -> Iterator[Missing]:
    for field in dataclasses.fields(real):
        name = getattr(real, field.name)
        if field.metadata.get("asset") != "model" or not name:
            continue
        place = model_path(name)
        if place is not None:
            if not has_weights(place):
                looked = f"{place} (config.json and all weights in {WEIGHTS})"
                yield Missing("model", name, looked, "", None)
            continue
        snapshot = cached_snapshot("model", name)
        if snapshot is None or not has_weights(snapshot):
            yield _of_hub("model", name, _weights_gb(shape_of_model(real, name)))
    template = real.chat_template
    if template is not None and not (place := located(template)).is_file():
        yield Missing("chat template", template, str(place), "", None)


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

    A file of `_LARGE` bytes is read again only when its size or time changes.
    """
    if place is None or not place.exists():
        return None
    digest, memory = hashlib.sha256(), root() / "results" / "runs" / _DIGESTS
    try:
        known = read_json(memory)
        known = known if isinstance(known, dict) else {}
    except (OSError, ValueError):  # none yet, or damaged: all is read again
        known = {}
    before = dict(known)
    for file in [place] if place.is_file() else sorted(place.rglob("*")):
        inside = file.relative_to(place)
        if not file.is_file() or is_hidden(inside):
            continue
        if suffixes and (len(inside.parts) > 1 or not file.name.endswith(suffixes)):
            continue
        stat = file.stat()
        if stat.st_size < _LARGE:
            found = sha256_file(file)
        else:
            key = f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}"
            found = known[key] = known.get(key) or sha256_file(file)
        digest.update(f"{inside} {found}\n".encode())
    if known != before:
        with suppress(KlearError):  # it is read again next time
            write_text(memory, json.dumps(known, sort_keys=True), make_folder=True)
    return digest.hexdigest()


def _listed(real: RealParams) -> Iterator[tuple[str, dict]]:
    lists = (real.maths_sources, real.code_sources, real.maths_problems, real.code_problems)
    return chain.from_iterable(each.items() for each in (*lists, real.benchmarks))


def _data_sets(real: RealParams) -> Iterator[Missing]:
    for name, how in _listed(real):
        source = source_named(source_of(name, how["name"]))
        hub_id = how["hub_id"] or source.hub_id
        if how["location"] is not None:
            if not (place := located(how["location"])).exists():
                yield Missing("dataset", place.name, str(place), "", None)
        elif cached_snapshot("dataset", hub_id) is None:
            yield _of_hub("dataset", hub_id, SIZES_GB.get(hub_id))


def _of_hub(kind: str, name: str, size_gb: float | None) -> Missing:
    return Missing(kind, name, str(hub_folder(kind, name)), fetch_command(kind, name), size_gb)


def _weights_gb(shape: dict) -> float:
    """A model's weights in bf16, as the hub has them, from its shape."""
    return round(2 * ModelShape(**shape).num_parameters / 1e9, 1)
