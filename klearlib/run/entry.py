"""Reading the folder of a stage: its metrics, its progress and whether it is what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from klearlib.errors import DamagedEntry
from klearlib.run.files import read_json, sha256_file

METRICS, TIMINGS, SAMPLES = "metrics.jsonl", "timings.jsonl", "samples.jsonl"
LINES = (METRICS, TIMINGS, SAMPLES)
CHECKPOINT, DONE, PROGRESS = "checkpoint.json", "done.json", "progress.json"
SPEC, LOG, LOCK = "spec.json", "log.txt", "lock"
PLAN_HASHES_BELOW = 64_000_000  # bytes: files up to this size a plan can reread in a moment


def read_metrics(path: Path | str, *, timings: bool = True) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl in order, each joined with the timings of its step, unless not
    asked for.

    A stage may still be writing: an unfinished line is left out. No file: an empty list.
    Raises DamagedEntry for a line that is not JSON.
    """
    lines = _read_lines(Path(path) / METRICS)
    if not timings:
        return lines
    spent = {line["step"]: line for line in _read_lines(Path(path) / TIMINGS)}
    return [{**spent.get(line["step"], {}), **line} for line in lines]


def read_samples(path: Path | str) -> list[dict[str, Any]]:
    """The lines of samples.jsonl in order, as `read_metrics` reads those of metrics.jsonl."""
    return _read_lines(Path(path) / SAMPLES)


def read_progress(path: Path | str) -> dict[str, Any] | None:
    """What the stage last reported by `RunFolder.progress`, `doing` and `warn`: done, total, note,
    doing, warning and the times (seconds since the epoch) "began" and "updated", with "began_done"
    steps done at "began"; None before that, and if a power cut damaged it: only displays use it.
    """
    try:
        return read_own_json(Path(path) / PROGRESS)
    except DamagedEntry:
        return None


def verify_entry(path: Path | str, *, hash_below: float = PLAN_HASHES_BELOW) -> None:
    """Raise DamagedEntry unless the files of a finished stage are those that it wrote.

    Compares the sizes of all files and the sha256 of those below `hash_below` bytes: 0 for the
    sizes alone, infinity for every file.
    """
    path = Path(path)
    for name, expected in read_own_json(path / DONE)["files"].items():
        file = path / name
        if not file.is_file():
            raise damaged(path, file, "is missing")
        size = file.stat().st_size
        if size != expected["bytes"]:
            raise damaged(path, file, f"has {size} bytes, not the {expected['bytes']} written")
        if size < hash_below and sha256_file(file) != expected["sha256"]:
            raise damaged(path, file, "has other content than was written")


def damaged(folder: Path, file: Path, what: str) -> DamagedEntry:
    """The error for a file of `folder` that is no longer what was written."""
    return DamagedEntry(f"{file} {what}: delete the folder {folder}, then run again")


def read_own_json(file: Path) -> dict[str, Any]:
    """A JSON object that we wrote, such as done.json, checkpoint.json or progress.json.

    Raises DamagedEntry unless it exists and is JSON.
    """
    try:
        return read_json(file)
    except FileNotFoundError:
        raise damaged(file.parent, file, "is missing") from None
    except ValueError as error:
        raise damaged(file.parent, file, "is not the JSON that was written") from error


def _read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]
    except ValueError as error:
        raise damaged(file.parent, file, "has a line that is not JSON") from error
