"""Sample n responses to each problem of a benchmark, judge them, keep everything."""

from __future__ import annotations

from collections.abc import Sequence

from klearlib.errors import KlearError
from klearlib.evaluate.judged import evaluation_record
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.engines import Engine
from klearlib.records import EvalRecord, Problem
from klearlib.verify.groups import judge_responses


def evaluate(
    engine: Engine,
    problems: Sequence[Problem],
    *,
    benchmark: str,
    num_responses: int,
    settings: SamplingSettings,
    test_timeout_s: float,
    test_memory_mb: int,
) -> EvalRecord:
    """avg@n's raw material: n independent responses a problem, judged.

    Args:
        engine: samples from the policy; see `klearlib.policy.engines.open_engine`.
        num_responses: n. settings: a `klearlib.policy.drawing.SamplingSettings`; its record is
            stored.
        test_timeout_s, test_memory_mb: limits of one test of a program, all of whose tests are run.

    Raises:
        ValueError: no problems, n < 1, or a problem without an answer or tests.
    """
    if not problems:
        raise KlearError(f"benchmark {benchmark!r} holds no problems")
    responses = engine.sample_groups(problems, group_size=num_responses, settings=settings)
    verdicts = judge_responses(
        problems, responses, test_timeout_s=test_timeout_s, test_memory_mb=test_memory_mb
    )
    return evaluation_record(
        problems,
        verdicts,
        benchmark=benchmark,
        truncated=[[r.truncated for r in group] for group in responses],
        num_tokens=[[len(r.token_ids) for r in group] for group in responses],
        sampling={**settings.record(), **engine.setting, "num_responses": num_responses},
    )
