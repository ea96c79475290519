"""Rewards from verdicts (Section 3.2): maths answers are paid +1 or -1, programs by the tests that
they pass; the format comes on top of it."""

from __future__ import annotations

import math

from klearlib.records import TestReport, Verdict

RELEASED_NO_THINK_CLOSE = -0.5  # checked first in the released code
RELEASED_NO_THINK_OPEN = -2.0


def math_reward(verdict: Verdict, *, format_penalty: float = 0.0, scores: str = "penalty") -> float:
    """The reward of one maths response.

    ``"penalty"``, the paper's words, which give no sizes: +1 for a correct answer with both think
    tags, -1 for everything else, and `format_penalty` less where a tag is missing, which is never
    paid +1.

    ``"released"``, the values of the released code (suu990901/KlearReasoner): -0.5 without a
    closing tag, checked first, so that thinking which ran out of tokens is paid more than a wrong
    answer; then -2 without an opening tag; then +1 or -1.

    The judge's own failures, ``timeout`` and ``judge_error``, are paid -1. Whether a response
    counts as positive for the LM loss is asked of ``verdict.correct``, never of the reward.

    Args:
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
    return _paid(verdict, float(verdict.correct), -1.0, format_penalty, scores, paper="penalty")


def soft_code_reward(
    judged: Verdict | TestReport, *, format_penalty: float = 0.0, scores: str = "pass_rate"
) -> float:
    """The soft reward of one program (5.2.3): the share of its tests that passed.

    ``"pass_rate"``, the paper's words: p in [0, 1], so 4 of 16 tests are 0.25. A response without a
    program, or without both think tags, is paid 0, and `format_penalty` less where a tag is
    missing.

    ``"released"``, the values of the released code: 2 p - 1, so 4 of 16 are -0.5; -0.5 without a
    closing tag, checked first, and -2 without an opening tag. The paper's Fig. 3b dips below 0,
    which a pass rate cannot, so something like it was plotted there.

    A test that the judge could not run counts as not passed.

    Args:
        judged: the verdict on a response, or the report on a bare program.
        format_penalty: at least 0, in units of reward; only for ``"pass_rate"``.
        scores: ``"pass_rate"`` or ``"released"``.

    Raises:
        ValueError: as `math_reward`, or a report whose pass rate is not in [0, 1].

    >>> report = TestReport.of(["passed"] * 4 + ["wrong_answer"] * 12)
    >>> soft_code_reward(report), soft_code_reward(report, scores="released")
    (0.25, -0.5)
    """
    return _paid(judged, _pass_rate(judged), 0.0, format_penalty, scores, paper="pass_rate")


def hard_code_reward(
    judged: Verdict | TestReport,
    *,
    failure: float = -1.0,
    format_penalty: float = 0.0,
    scores: str = "pass_rate",
) -> float:
    """The hard reward of one program (5.2.3): 1 if it passed every test, else `failure`, "a
    negative reward otherwise" (Fig. 3's caption, which gives no size).

    failure: at most 0; ``"released"`` pays -1. Advantages do not depend on it where no tag is
        missing. A response without a program, or without both think tags, is paid `failure`, and
        `format_penalty` less where a tag is missing.

    The other arguments and errors are those of `soft_code_reward`.

    >>> hard_code_reward(TestReport.of(["passed"] * 15 + ["wrong_answer"]))
    -1.0
    """
    if not -math.inf < failure <= 0:
        raise ValueError(f"failure must be a number of at most 0, got {failure}")
    if scores == "released" and failure != -1:
        raise ValueError(f'failure must be -1 with scores="released", got {failure}')
    passed = float(_pass_rate(judged) == 1.0)
    return _paid(judged, passed, failure, format_penalty, scores, paper="pass_rate")


def _pass_rate(judged: Verdict | TestReport) -> float:
    report = judged.report if isinstance(judged, Verdict) else judged
    if report is None:
        return 0.0
    if not 0 <= report.pass_rate <= 1:
        raise ValueError(f"pass_rate must be in [0, 1], got {report.pass_rate}")
    return report.pass_rate


def _paid(
    judged: Verdict | TestReport,
    credit: float,
    failure: float,
    format_penalty: float,
    scores: str,
    *,
    paper: str,
) -> float:
    """failure: what a credit of 0 is paid, up to 1 for a credit of 1. paper: the scores that are
    not ``"released"``."""
    if not 0 <= format_penalty < math.inf:
        raise ValueError(f"format_penalty must be a number of at least 0, got {format_penalty}")
    if scores not in (paper, "released"):
        raise ValueError(f'scores must be "{paper}" or "released", got {scores!r}')
    if scores == "released" and format_penalty:
        raise ValueError(
            'format_penalty must be 0 with scores="released", which fixes its own penalties, '
            f"got {format_penalty}"
        )
    has_open = getattr(judged, "has_think_open", True)
    has_close = getattr(judged, "has_think_close", True)
    if scores == "released":
        if not has_close:
            return RELEASED_NO_THINK_CLOSE
        return 2 * credit - 1 if has_open else RELEASED_NO_THINK_OPEN
    if has_open and has_close:
        return failure + (1 - failure) * credit
    return failure - format_penalty
