"""Reading the folder of a stage: its metrics, its progress and whether it is what was written."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from klearlib.errors import DamagedEntry
from klearlib.run.files import is_no_file, is_plain, read_json, sha256_file

METRICS, TIMINGS, SAMPLES = "metrics.jsonl", "timings.jsonl", "samples.jsonl"
LINES = (METRICS, TIMINGS, SAMPLES)
CHECKPOINT, DONE, PROGRESS = "checkpoint.json", "done.json", "progress.json"
SPEC, LOG, LOCK = "spec.json", "log.txt", "lock"
PLAN_HASHES_BELOW = 64_000_000  # bytes: what a plan can read again of each file in a moment

# What we write under each key that is asked for; a float may be whole.
_TYPES = {
    "files": dict,
    "provenance": dict,
    "utc": str,
    "seconds": float,
    "bytes": int,
    "sha256": str,
    "state": str,
    "lengths": dict,
    METRICS: int,
    TIMINGS: int,
    "step": int,
    "done": int,
    "total": int,
    "updated": float,
    "problem": str,
    "response": int,
    "prompt": str,
    "text": str,
    "tokens": int,
    "reason": str,
    "found": str,
    "reward": float,
    "advantage": float,
    "truncated": bool,
}
_OF_A_SAMPLE = (
    *("problem", "response", "prompt", "text"),
    *("tokens", "truncated", "reason", "found", "reward", "advantage"),
)


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl in order, each joined with the timings of its step.

    A stage may still be writing: a line without its end is left out. No file: an empty list.
    Raises DamagedEntry for a line that is no JSON object of a step and numbers or nulls, and where
    steps do not grow.
    """
    timings = {line["step"]: line for line in _read_numbers(Path(path) / TIMINGS)}
    return [
        {**timings.get(line["step"], {}), **line} for line in _read_numbers(Path(path) / METRICS)
    ]


def read_samples(path: Path | str) -> list[dict[str, Any]]:
    """The lines of samples.jsonl in order, as `read_metrics` reads those of metrics.jsonl."""
    return _read_lines(Path(path) / SAMPLES, *_OF_A_SAMPLE)


def read_progress(path: Path | str) -> dict[str, Any] | None:
    """What the stage last told by `RunFolder.progress`, `doing` and `warn`: done, total, note,
    doing, warning and the times (seconds since the epoch) "began" and "updated", with "began_done"
    steps done at "began"; None before, and for what a power cut left, as nothing but a display
    depends on it.
    """
    try:
        return read_own_json(Path(path) / PROGRESS, "done", "total", "updated")
    except DamagedEntry:
        return None


def verify_entry(path: Path | str, *, hash_below: float = PLAN_HASHES_BELOW) -> None:
    """Raise DamagedEntry unless the files of a finished stage are those that it wrote.

    Compared are the sizes of all files and the sha256 of those below `hash_below` bytes: 0 for the
    sizes alone, infinity for every file.
    """
    path = Path(path)
    # All that `RunFolder.finish` writes: what is asked for later must not be missed then.
    done = read_own_json(path / DONE, "files", "provenance", "seconds")
    for name, expected in done["files"].items():
        _require(expected, ("bytes", "sha256"), path / DONE)
        file = path / name
        if not file.is_file():
            raise damaged(path, file, "is missing")
        found = file.stat().st_size
        if found != expected["bytes"]:
            raise damaged(path, file, f"has {found} bytes, not the {expected['bytes']} written")
        if found < hash_below and sha256_file(file) != expected["sha256"]:
            raise damaged(path, file, "has another content than was written")


def damaged(folder: Path, file: Path, what: str) -> DamagedEntry:
    """The error for a file of `folder` that no longer is what was written."""
    return DamagedEntry(f"{file} {what}: delete the folder {folder}, then run again")


def read_own_json(file: Path, *keys: str) -> dict[str, Any]:
    """A JSON object that we wrote, in done.json, checkpoint.json or progress.json.

    Raises DamagedEntry unless it has `keys`, each with a value of the type that we write.
    """
    try:
        value = read_json(file)
    except FileNotFoundError:
        raise damaged(file.parent, file, "is missing") from None
    except ValueError as error:
        raise damaged(file.parent, file, "is not the JSON that was written") from error
    _require(value, keys, file)
    if "lengths" in keys:
        _require(value["lengths"], (METRICS, TIMINGS), file)
    if "provenance" in keys:
        _require(value["provenance"], ("utc",), file)
    return value


def _require(value: object, keys: tuple[str, ...], file: Path) -> None:
    if not isinstance(value, dict):
        raise damaged(file.parent, file, "holds no JSON object where one was written")
    for key in keys:
        if not is_plain(value.get(key), _TYPES.get(key, float)):  # a metric is a number
            raise damaged(file.parent, file, f"has no valid {key!r}")


def _read_numbers(file: Path) -> list[dict[str, Any]]:
    lines = _read_lines(file)
    if any(later["step"] <= line["step"] for line, later in pairwise(lines)):
        raise damaged(file.parent, file, "has steps that do not grow")
    for line in lines:
        _require(line, tuple(key for key in line if line[key] is not None), file)
    return lines


def _read_lines(file: Path, *keys: str) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    if is_no_file(file):
        raise damaged(file.parent, file, "is a folder, a pipe or a device")
    try:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]
        values = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:  # no text at all is one, too
        raise damaged(file.parent, file, "holds a line that is no JSON") from error
    for value in values:
        _require(value, ("step", *keys), file)
    return values
