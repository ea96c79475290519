"""Rewards from verdicts (Section 3.2): maths answers are paid +1 or -1, the format on top of it."""

from __future__ import annotations

import math

from klearlib.records import Verdict

RELEASED_NO_THINK_CLOSE = -0.5
RELEASED_NO_THINK_OPEN = -2.0


def math_reward(verdict: Verdict, *, format_penalty: float = 0.0, scores: str = "penalty") -> float:
    """The reward of one maths response.

    ``"penalty"``, the paper's words, which give no sizes: +1 for a correct answer with both think
    tags, -1 for everything else, and `format_penalty` less where a tag is missing. A missing tag is
    never paid +1, also where the verdict was formed without asking for the tags.

    ``"released"``, the values of the released code (suu990901/KlearReasoner): -0.5 without a
    closing tag, checked first, so that thinking which ran out of tokens is paid more than a wrong
    answer; then -2 without an opening tag; then +1 or -1.

    A verdict ``timeout`` or ``judge_error`` is paid -1, never +1; count these with
    `answers.count_reasons`, since they are the judge's failures. Whether a response counts as
    positive for the LM loss is asked of ``verdict.correct``, never of the reward.

    Args:
        verdict: the verifier's word on the response.
        format_penalty: at least 0, in units of reward; only for ``"penalty"``.
        scores: ``"penalty"`` or ``"released"``.

    Raises:
        ValueError: an unknown `scores`, a negative or infinite `format_penalty`, or one that the
            released scores would ignore.

    >>> math_reward(Verdict(correct=True, reason="correct"))
    1.0
    >>> no_tag = Verdict(correct=False, reason="bad_format", has_think_close=False)
    >>> math_reward(no_tag, format_penalty=0.5), math_reward(no_tag, scores="released")
    (-1.5, -0.5)
    """
    if not 0 <= format_penalty < math.inf:
        raise ValueError(f"format_penalty must be a number of at least 0, got {format_penalty}")
    if scores == "released":
        if format_penalty:
            raise ValueError(
                'format_penalty must be 0 with scores="released", which fixes its own penalties, '
                f"got {format_penalty}"
            )
        if not verdict.has_think_close:
            return RELEASED_NO_THINK_CLOSE
        if not verdict.has_think_open:
            return RELEASED_NO_THINK_OPEN
        return 1.0 if verdict.correct else -1.0
    if scores != "penalty":
        raise ValueError(f'scores must be "penalty" or "released", got {scores!r}')
    if not (verdict.has_think_open and verdict.has_think_close):
        return -1.0 - format_penalty
    return 1.0 if verdict.correct else -1.0
