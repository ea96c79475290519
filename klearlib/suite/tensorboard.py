"""The metrics of runs for TensorBoard: the same numbers under the same keys."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from klearlib.errors import MissingAsset
from klearlib.report.watch import curves_of, title_of
from klearlib.run.entry import read_metrics

EVERY_S = 10.0


class Mirror:
    """Writes what runs have logged into a folder that TensorBoard reads, with a subfolder for each:
    every number of metrics.jsonl and timings.jsonl, and as ``score`` the mean over benchmarks.

    folder: where to; the files of an earlier call are replaced. runs: the folders of the runs,
    read at most every `EVERY_S` seconds.

    Raises MissingAsset if TensorBoard is not installed.
    """

    def __init__(self, folder: Path, runs: Iterable[Path]):
        try:
            from tensorboard.summary import Writer
        except ModuleNotFoundError as error:
            raise MissingAsset(
                "TensorBoard is not installed: pip install 'klear[tensorboard]'"
            ) from error
        self._open, self._folder, self._runs = Writer, folder, tuple(runs)
        self._writers: dict[Path, Writer] = {}
        self._written: Counter[tuple[Path, str]] = Counter()  # lines of a run, by kind
        self._looked = -math.inf

    def __call__(self, last: bool = False) -> None:
        """Write what is new; `last` always reads, and closes the files."""
        if not last and time.monotonic() - self._looked < EVERY_S:
            return
        self._looked = time.monotonic()
        for run in self._runs:
            scores = curves_of(run).get("score", [])
            self._write(run, "metrics", read_metrics(run))
            self._write(run, "score", [{"step": step, "score": score} for step, score in scores])
        for writer in self._writers.values():
            writer.close() if last else writer.flush()

    def _write(self, run: Path, kind: str, lines: list[dict]) -> None:
        new = lines[self._written[run, kind] :]
        self._written[run, kind] += len(new)
        if new and run not in self._writers:
            title = "".join(letter if letter.isalnum() else "_" for letter in title_of(run))
            place = self._folder / f"{run.parent.name}-{run.name[:8]}-{title}"
            for old in place.glob("events.out.tfevents.*"):
                old.unlink()
            self._writers[run] = self._open(str(place))
        for line in new:
            for key, value in line.items():
                if key != "step" and isinstance(value, int | float):  # null: none at this step
                    self._writers[run].add_scalar(key, value, line["step"])
