"""The folder of one stage: its log, metrics, checkpoints and the manifest that says it is done.

After a kill at any moment the next run continues from the last checkpoint and ends with the same
bytes. Two small files are the commit points, renamed into place when all that they refer to is on
disk: `CHECKPOINT` (which state, and how long the metrics were then) and `DONE`.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from klearlib.run.entry import (
    CHECKPOINT,
    DONE,
    LINES,
    LOCK,
    LOG,
    METRICS,
    PROGRESS,
    SAMPLES,
    SPEC,
    TIMINGS,
    damaged,
    read_own_json,
)
from klearlib.run.files import HashingFile, one_line_failures, sha256_file, write_json
from klearlib.run.provenance import provenance

PROGRESS_EVERY_S = 0.1

_STATES, _HALF_WRITTEN = "checkpoint-*.pt", ".*.tmp"
_NOT_PART_OF_RESULT = {CHECKPOINT, DONE, PROGRESS, SPEC, LOG, LOCK}


class RunFolder:
    """What a training loop writes through.

    A loop calls `load_checkpoint` once before its first step (it returns None at the start); in
    each step `append_metrics`, `progress` and now and then `save_checkpoint`; and if
    `stop_requested` is true it saves a checkpoint and raises `klearlib.errors.Stopped`. Its results
    are files under `path`, with the same names each time. The worker calls `finish`.

    path: the folder, made if it does not exist. stop_requested: asked at each step; the worker
    passes its signal flag.
    """

    def __init__(self, path: Path | str, *, stop_requested: Callable[[], bool] = lambda: False):
        self.path = Path(path)
        self._stop_requested = stop_requested
        self._opened = False
        self._began = time.time()
        self._seconds_before = 0.0
        self._progress = {
            **{"done": 0, "total": 0, "began_done": 0, "began": self._began},
            **{"updated": self._began, "note": "", "doing": "", "warning": ""},
        }
        self._progress_written = -math.inf
        with one_line_failures(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    @property
    def stop_requested(self) -> bool:
        """Whether to save a checkpoint and raise `Stopped` now (after SIGTERM or Ctrl-C)."""
        return self._stop_requested()

    def log(self, text: str) -> None:
        """Add a line to log.txt, with the time in UTC."""
        self._append(LOG, f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")

    def progress(self, done: int, total: int, note: str = "") -> None:
        """Say that `done` of `total` steps are done; call it with the first value before the first
        step, so that the time per step and the ETA are this process's. note: what is learnt, the
        most informative first, separated by commas ("reward 0.5, gradient norm 0.7").
        """
        now, is_first = time.time(), not self._progress["total"]
        told = {"done": done, "total": total, "note": note, "doing": "", "updated": now}
        told |= {"began": now, "began_done": done} if is_first else {}
        self._show(told, at_once=is_first or done >= total)

    def doing(self, text: str) -> None:
        """Say what happens within a step ("sampled 96 of 1024"), until the next `progress`."""
        self._show({"doing": text})

    def warn(self, text: str) -> None:
        """Say what the user has to know, in log.txt and wherever progress is shown."""
        self.log(f"WARNING: {text}")
        self._show({"warning": text}, at_once=True)

    def _show(self, told: dict[str, Any], *, at_once: bool = False) -> None:
        self._progress, now = self._progress | told, time.time()
        if at_once or now - self._progress_written >= PROGRESS_EVERY_S:
            self._progress_written = now
            write_json(self.path / PROGRESS, self._progress, durable=False)

    def append_metrics(self, values: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl: what must be bit-identical after a kill and a resume.

        values: must hold "step"; numbers may be NumPy scalars or tensors of one element; NaN and
        infinity are written as Python's JSON reads them.
        """
        self._append_line(METRICS, values)

    def append_timings(self, values: dict[str, Any]) -> None:
        """Add one line to timings.jsonl: seconds, memory and whatever else differs between runs."""
        self._append_line(TIMINGS, values)

    def append_samples(self, samples: Iterable[dict[str, Any]]) -> None:
        """Add lines to samples.jsonl, as `append_metrics` adds one to metrics.jsonl."""
        self._append_line(SAMPLES, *samples)

    def save_checkpoint(self, state: dict[str, Any], step: int) -> None:
        """Save all that the next step depends on; a kill during it leaves the previous checkpoint.

        state: anything that ``torch.save`` takes (weights, optimiser, random states, rollout
        buffer). step: number of steps done. Raises KlearError where the disk is full.
        """
        import torch

        self._open()
        temporary = self.path / f".state.{os.getpid()}.tmp"
        try:
            with one_line_failures(temporary), open(temporary, "wb") as file:
                sink = HashingFile(file)
                try:
                    torch.save(state, sink)
                except (OSError, RuntimeError) as error:  # torch may hide its sink's OSError
                    raise (sink.error or error) from error
                file.flush()
                os.fsync(file.fileno())
            digest = sink.sha256.hexdigest()
            # The name depends on the content: a committed state is never overwritten.
            name = f"checkpoint-{step}-{digest[:8]}.pt"
            os.replace(temporary, self.path / name)
        finally:
            temporary.unlink(missing_ok=True)
        commit = {
            "step": step,
            "state": name,
            "sha256": digest,
            "lengths": {name: self._synced_length(name) for name in LINES},
            "seconds": self._seconds(),
        }
        write_json(self.path / CHECKPOINT, commit)
        self._sweep(keep=name)

    def load_checkpoint(self) -> tuple[dict[str, Any], int] | None:
        """The last saved (state, step), or None at the start; tensors are on the CPU.

        The files of lines are cut to their length when the checkpoint was saved. Raises
        DamagedEntry where a file is not what was written.
        """
        self._opened = True
        file = self.path / CHECKPOINT
        commit = read_own_json(file) if file.exists() else {"state": "", "lengths": {}}
        self._sweep(keep=commit["state"])
        for name in LINES:
            self._cut(name, commit["lengths"].get(name, 0))
        if not commit["state"]:
            return None
        import torch

        file = self.path / commit["state"]
        if not file.is_file() or sha256_file(file) != commit["sha256"]:
            raise damaged(self.path, file, "is not the state that was saved")
        self._seconds_before = commit["seconds"]
        # weights_only=False: the file was just verified to be ours.
        return torch.load(file, map_location="cpu", weights_only=False), commit["step"]

    def finish(self) -> None:
        """Declare the stage done: done.json holds the size and sha256 of every file of the result,
        the provenance and the seconds of all processes, and is renamed into place when all of them
        are on disk; then the checkpoint is removed.
        """
        self._open()
        files = {}
        with one_line_failures(self.path):
            for file in _result_files(self.path):
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
                entry = {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
                files[file.relative_to(self.path).as_posix()] = entry
        value = {"files": files, "provenance": provenance(), "seconds": self._seconds()}
        write_json(self.path / DONE, value)
        (self.path / CHECKPOINT).unlink(missing_ok=True)
        self._sweep(keep="")

    def _seconds(self) -> float:
        return round(self._seconds_before + time.time() - self._began, 3)

    def _open(self) -> None:
        """Start the files over if there is no checkpoint and the loop did not ask for one."""
        if not self._opened:
            assert not (self.path / CHECKPOINT).exists(), "call load_checkpoint() before writing"
            self.load_checkpoint()

    def _append_line(self, name: str, *lines: dict[str, Any]) -> None:
        self._open()
        texts = [json.dumps(values, default=lambda number: number.item()) for values in lines]
        self._append(name, "".join(f"{text}\n" for text in texts))

    def _append(self, name: str, text: str) -> None:
        with one_line_failures(self.path / name), open(self.path / name, "ab", 0) as file:
            file.write(text.encode())

    def _synced_length(self, name: str) -> int:
        if not (self.path / name).exists():
            return 0
        with open(self.path / name, "rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def _cut(self, name: str, length: int) -> None:
        file = self.path / name
        found = file.stat().st_size if file.exists() else 0
        if found < length:
            what = f"has {found} bytes, at the last checkpoint it had {length}"
            raise damaged(self.path, file, what)
        if found and not length:
            file.unlink()
        elif found > length:
            os.truncate(file, length)

    def _sweep(self, keep: str) -> None:
        """Remove states that no checkpoint names, and files that a kill left half-written."""
        for file in [*self.path.glob(_STATES), *self.path.rglob(_HALF_WRITTEN)]:
            # the parent writes the spec, perhaps at this moment
            if file.name != keep and not file.name.startswith(f".{SPEC}"):
                file.unlink(missing_ok=True)


def _result_files(path: Path) -> list[Path]:
    not_part = {path / name for name in _NOT_PART_OF_RESULT}
    not_part.update(path.glob(_STATES), path.rglob(_HALF_WRITTEN))
    return [file for file in sorted(path.rglob("*")) if file.is_file() and file not in not_part]
