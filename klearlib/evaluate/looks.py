"""What is looked at beside a score: truncation, length, and where right answers stood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klearlib.records import FOUND, EvalRecord

LOOKS = ("score", "truncated", "tokens", "not_worked_out", *(f"right_{each}" for each in FOUND))


def looked_at(records: Sequence[EvalRecord]) -> dict[str, float]:
    """`LOOKS` over all responses of some records together.

    ``score``, ``truncated`` and ``not_worked_out`` are shares of the responses, ``tokens`` is their
    mean length. ``right_boxed``, ``right_marked`` and ``right_last`` say where the answers of the
    right ones stood, and sum to 1; NaN where none is right, and for programs.
    """
    names = ("correct", "truncated", "num_tokens", "reason", "found")
    correct, truncated, tokens, reason, found = (
        np.concatenate([getattr(record, name).ravel() for record in records]) for name in names
    )
    places = found[correct & (found != "")]
    values = [correct.mean(), truncated.mean(), tokens.mean(), (reason == "not_worked_out").mean()]
    values += [(places == each).mean() if len(places) else np.nan for each in FOUND]
    return dict(zip(LOOKS, map(float, values), strict=True))
