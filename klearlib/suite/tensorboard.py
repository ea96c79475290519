"""The metrics of runs for TensorBoard: the same numbers under the same keys."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from klearlib.errors import MissingAsset
from klearlib.report.watch import title_of, watched
from klearlib.run.entry import read_metrics

EVERY_S = 10.0
_OURS = ".klear"


class Mirror:
    """Writes what runs have logged into a folder that TensorBoard reads, one run of it for each:
    every number of metrics.jsonl and timings.jsonl, and ``score`` of `klear watch`.

    folder: where; our own files of an earlier call are replaced. folders_of: those of the runs,
    asked for at each look, which takes place at most each `EVERY_S` seconds.

    Raises MissingAsset where TensorBoard is not installed.
    """

    def __init__(self, folder: Path, folders_of: Callable[[], Iterable[Path]]):
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as error:
            raise MissingAsset(
                "TensorBoard is not installed: pip install 'klear[tensorboard]'"
            ) from error
        self._event, self._summary, self._writer = event_pb2, summary_pb2, EventFileWriter
        self._folder, self._folders_of = folder, folders_of
        self._writers: dict[Path, object] = {}
        self._steps: dict[Path, dict[str, int]] = {}
        self._looked = -math.inf

    def __call__(self, last: bool = False) -> None:
        """Write what is new; `last` looks in any case and closes the files."""
        if not last and time.monotonic() - self._looked < EVERY_S:
            return
        self._looked = time.monotonic()
        for run in watched(self._folders_of()):
            for line in read_metrics(run.folder):
                values = {k: v for k, v in line.items() if isinstance(v, (int, float))}
                self._write(run.folder, "metrics", line["step"], values)
            for step, score in run.curves.get("score", []):
                self._write(run.folder, "score", step, {"score": score})
        for writer in self._writers.values():
            writer.flush()
            if last:
                writer.close()
        if last:
            self._writers.clear()

    def _write(self, run: Path, kind: str, step: int, values: dict[str, float]) -> None:
        known = self._steps.setdefault(run, {})
        if step <= known.get(kind, -1):
            return
        known[kind] = step
        made = [
            self._summary.Summary.Value(tag=key, simple_value=value)
            for key, value in values.items()
            if key != "step"
        ]
        event = self._event.Event(
            step=step, wall_time=time.time(), summary=self._summary.Summary(value=made)
        )
        self._opened(run).add_event(event)

    def _opened(self, run: Path):
        if run not in self._writers:
            title = "".join(letter if letter.isalnum() else "_" for letter in title_of(run))
            place = self._folder / f"{run.parent.name}-{run.name[:8]}-{title}"
            for old in place.glob(f"events.out.tfevents.*{_OURS}"):
                old.unlink()
            self._writers[run] = self._writer(str(place), filename_suffix=_OURS)
        return self._writers[run]
