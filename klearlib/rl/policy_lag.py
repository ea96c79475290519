"""Rollouts from weights that are some steps old, with updates and mini-batches as they are: what an
asynchronous trainer does to ratios, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class PastWeights:
    """The weights at the ends of the last `lag` + 1 steps, the start counting as one. The oldest
    sample: those of `lag` steps ago, at first those of the start.

    >>> past = PastWeights(torch.nn.Linear(1, 1), lag=0)
    >>> past.keep()
    >>> list(past.weights)
    []
    """

    def __init__(self, model: torch.nn.Module, lag: int):
        self._model, self._lag = model, lag
        self.weights: deque[dict[str, torch.Tensor]] = deque(maxlen=lag + 1)

    def keep(self) -> None:
        """Note the weights of now, at the start and after each step."""
        if self._lag:
            self.weights.append(self._now())

    def load(self, weights: list[dict[str, torch.Tensor]]) -> None:
        """Take over those of a checkpoint."""
        self.weights.extend(weights)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The model has the oldest weights within the context."""
        if not self._lag:
            yield
            return
        now = self._now()
        self._model.load_state_dict(self.weights[0])
        try:
            yield
        finally:
            self._model.load_state_dict(now)

    def _now(self) -> dict[str, torch.Tensor]:
        return {name: each.clone() for name, each in self._model.state_dict().items()}
