"""How many updates a run makes, and the learning rate of each."""

from __future__ import annotations

import math

from klearlib.errors import ParameterError


def planned_steps(
    num_examples: int, *, batch_size: int, num_steps: int | None, num_epochs: int | None
) -> tuple[int, int]:
    """Updates, and examples drawn for them.

    Raises ParameterError unless exactly one of num_steps and num_epochs is given and at least 1.

    >>> planned_steps(10, batch_size=4, num_steps=None, num_epochs=2)
    (5, 20)
    >>> planned_steps(10, batch_size=8, num_steps=None, num_epochs=2)
    (3, 20)
    """
    if (num_steps is None) == (num_epochs is None) or (num_steps or num_epochs or 0) < 1:
        raise ParameterError(
            "give exactly one of num_steps and num_epochs, at least 1, got "
            f"{num_steps} and {num_epochs}"
        )
    if num_steps is not None:
        return num_steps, num_steps * batch_size
    num_draws = num_epochs * num_examples
    return math.ceil(num_draws / batch_size), num_draws


def cosine_learning_rate(
    step: int, num_steps: int, start: float, end: float, warmup_steps: int
) -> float:
    """The learning rate of step 0 .. num_steps - 1: linear warm-up to `start`, then cosine to
    `end`."""
    if step < warmup_steps:
        return start * (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(1, num_steps - 1 - warmup_steps)
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
