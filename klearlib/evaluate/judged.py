"""Judged responses as an `EvalRecord`; nothing here needs a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klearlib.records import EvalRecord, Problem, Verdict

UNKNOWN_TOKENS = -1
"""`EvalRecord.num_tokens` of responses whose length in tokens nobody gave."""


def evaluation_record(
    problems: Sequence[Problem],
    verdicts: Sequence[Sequence[Verdict]],
    *,
    benchmark: str,
    truncated: Sequence[Sequence[bool]],
    num_tokens: Sequence[Sequence[int]],
    sampling: dict,
) -> EvalRecord:
    """The record of n verdicts on each of P problems.

    Args:
        verdicts, truncated, num_tokens: [P, n].
        sampling: how the responses were drawn, all of it.
    """
    return EvalRecord(
        benchmark=benchmark,
        problem_ids=tuple(problem.id for problem in problems),
        correct=np.array([[v.correct for v in group] for group in verdicts], dtype=bool),
        truncated=np.array(truncated, dtype=bool),
        num_tokens=np.array(num_tokens, dtype=np.int64),
        reason=np.array([[v.reason for v in group] for group in verdicts]),
        pass_rate=np.array([[_pass_rate(v) for v in group] for group in verdicts]),
        sampling=sampling,
    )


def _pass_rate(verdict: Verdict) -> float:
    return verdict.report.pass_rate if verdict.report is not None else float(verdict.correct)
