"""Sample n responses to each problem of a benchmark, judge them, keep everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klearlib.errors import KlearError
from klearlib.policy.sampling import SamplingSettings, sample_groups
from klearlib.records import EvalRecord, Problem
from klearlib.verify.groups import judge_groups


def evaluate(
    model,
    tokenizer,
    problems: Sequence[Problem],
    *,
    benchmark: str,
    num_responses: int,
    settings: SamplingSettings,
) -> EvalRecord:
    """avg@n's raw material: n independent responses a problem, judged.

    Args:
        num_responses: n. settings: a `klearlib.policy.sampling.SamplingSettings`; its record is
            stored.

    Raises:
        ValueError: no problems, n < 1, or a problem without an answer.
    """
    if not problems:
        raise KlearError(f"benchmark {benchmark!r} holds no problems")
    responses = sample_groups(
        model, tokenizer, problems, group_size=num_responses, settings=settings
    )
    groups = judge_groups(problems, responses, format_scores="penalty", format_penalty=0.0)
    return EvalRecord(
        benchmark=benchmark,
        problem_ids=tuple(problem.id for problem in problems),
        correct=np.array([[v.correct for v in g.verdicts] for g in groups], dtype=bool),
        truncated=np.array([[r.truncated for r in g.responses] for g in groups], dtype=bool),
        num_tokens=np.array([[len(r.token_ids) for r in g.responses] for g in groups]),
        reason=np.array([[v.reason for v in g.verdicts] for g in groups]),
        sampling={**settings.record(), "num_responses": num_responses},
    )
