"""Responses of a file or of a model, judged some problems at a time."""

from __future__ import annotations

from collections.abc import Sequence

from klearlib.evaluate.record_files import UNKNOWN_TOKENS, evaluation_record
from klearlib.evaluate.responses_file import FileResponse
from klearlib.evaluate.score_summary import ProgressLines
from klearlib.records import EvalRecord, Problem, Response, Verdict
from klearlib.verify.groups import is_code, judge_responses

RESPONSES_AT_ONCE = 256


def judge_all(
    problems: Sequence[Problem],
    responses: Sequence[Sequence[FileResponse]],
    *,
    benchmark: str,
    sampling: dict,
    require_think: bool,
    answer_form: str,
    truncated: str,
    test_timeout_s: float,
    test_memory_mb: int,
) -> EvalRecord:
    """The record of n responses to each problem; what cannot be judged counts as wrong.

    Args:
        sampling: how the responses were drawn; how they were judged is added to it.
        require_think, answer_form, truncated, test_timeout_s, test_memory_mb: as of
            `klearlib.verify.groups.judge_responses`. Responses whose flag of truncation nobody
            knows are judged as the text that they are.
    """
    n = len(responses[0])
    limits = {"test_timeout_s": test_timeout_s, "test_memory_mb": test_memory_mb}
    rule = {"answer_form": answer_form, "truncated": truncated}
    show = ProgressLines("judged", len(problems) * n)
    verdicts: list[Sequence[Verdict]] = []
    at_once = max(1, RESPONSES_AT_ONCE // n)
    for start in range(0, len(problems), at_once):
        asked = problems[start : start + at_once]
        rows = [
            [_response(problem.id, response) for response in group]
            for problem, group in zip(asked, responses[start : start + at_once], strict=True)
        ]
        verdicts += judge_responses(asked, rows, require_think=require_think, **rule, **limits)
        show(len(verdicts) * n)
    judged_by: dict = {"think_tags": "required" if require_think else "optional"} | rule
    if any(map(is_code, problems)):
        judged_by |= limits
    return evaluation_record(
        problems,
        verdicts,
        benchmark=benchmark,
        truncated=[[bool(r.truncated) for r in group] for group in responses],
        num_tokens=[
            [UNKNOWN_TOKENS if r.num_tokens is None else r.num_tokens for r in group]
            for group in responses
        ],
        sampling={
            **sampling,
            "num_responses": n,
            "truncated_known": responses[0][0].truncated is not None,
            **judged_by,
        },
    )


def _response(problem_id: str, response: FileResponse) -> Response:
    return Response(
        problem_id=problem_id,
        prompt=response.prompt,
        prompt_ids=(),
        token_ids=(),
        logp=(),
        text=response.text,
        truncated=bool(response.truncated),
    )
