"""What the trainer tells its driver while it runs, and the one thing that the driver tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

EVALUATION, STEP, SAVED, STOPPED = "evaluation", "step", "saved", "stopped"
"""Kinds of messages. ``evaluation``: step, name, EvalRecord. ``step``: the lines of metrics.jsonl
and timings.jsonl. ``saved``: number of steps whose checkpoint is complete. ``stopped``: number of
steps after which the trainer ended, as it was asked to."""


class Mailbox:
    """The Ray actor between the two, in the order in which things were told.

    The driver alone writes the run folder, so that a checkpoint and the lines that belong to it are
    committed together, as on one machine.
    """

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []
        self._stop = False

    def put(self, kind: str, content: Any) -> None:
        """Tell the driver."""
        self._messages.append((kind, content))

    def take(self) -> Sequence[tuple[str, Any]]:
        """All that was told since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def stop(self) -> None:
        """Have the trainer save its state after the step that it is at, and end."""
        self._stop = True

    def stop_requested(self) -> bool:
        """Whether it is to."""
        return self._stop
