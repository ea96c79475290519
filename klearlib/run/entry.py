"""Reading the folder of a stage: its metrics, its progress and whether it is what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from klearlib.errors import DamagedEntry
from klearlib.run.files import sha256_file

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"
CHECKPOINT, DONE, PROGRESS = "checkpoint.json", "done.json", "progress.json"
SPEC, LOG, LOCK = "spec.json", "log.txt", "lock"
SMALL_FILE_BYTES = 1_000_000  # up to here verifying reads the content, above only the size


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl in order, each joined with the timings of its step.

    A stage may still be writing: a line without its end is left out. No file: an empty list.
    Raises DamagedEntry for a line that is no JSON.
    """
    timings = {line["step"]: line for line in _read_lines(Path(path) / TIMINGS)}
    return [{**timings.get(line["step"], {}), **line} for line in _read_lines(Path(path) / METRICS)]


def read_progress(path: Path | str) -> dict[str, Any] | None:
    """What the stage last told by `RunFolder.progress`: done, total, note and the times (seconds
    since the epoch) "began" and "updated", with "began_done" steps done at "began"; None before,
    and for what a power cut left, as nothing but a display depends on it.
    """
    try:
        return read_own_json(Path(path) / PROGRESS, "updated")
    except DamagedEntry:
        return None


def verify_entry(path: Path | str, *, contents: bool = True) -> None:
    """Raise DamagedEntry unless the files of a finished stage are those that it wrote.

    Compared are the sizes of all files and, with `contents`, the sha256 of those below
    `SMALL_FILE_BYTES`.
    """
    path = Path(path)
    for name, expected in read_own_json(path / DONE, "files")["files"].items():
        file = path / name
        if not file.is_file():
            raise damaged(path, file, "is missing")
        found = file.stat().st_size
        if found != expected["bytes"]:
            raise damaged(path, file, f"has {found} bytes, not the {expected['bytes']} written")
        if contents and found < SMALL_FILE_BYTES and sha256_file(file) != expected["sha256"]:
            raise damaged(path, file, "has another content than was written")


def damaged(folder: Path, file: Path, what: str) -> DamagedEntry:
    """The error for a file of `folder` that no longer is what was written."""
    return DamagedEntry(f"{file} {what}: delete the folder {folder}, then run again")


def read_own_json(file: Path, needs: str) -> dict[str, Any]:
    """A JSON object that we wrote; raises DamagedEntry unless it is one with the key `needs`."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise damaged(file.parent, file, "is missing") from None
    except ValueError as error:
        raise damaged(file.parent, file, "is not the JSON that was written") from error
    if not isinstance(value, dict) or needs not in value:
        raise damaged(file.parent, file, f"has no {needs!r}")
    return value


def _read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise damaged(file.parent, file, "holds a line that is no JSON") from error
