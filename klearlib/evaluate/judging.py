"""Responses of a file or of a model, judged some problems at a time, as a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klearlib.evaluate.judged import UNKNOWN_TOKENS, evaluation_record
from klearlib.evaluate.response_rows import FileResponse
from klearlib.records import EvalRecord, Problem, Response, Verdict
from klearlib.verify.groups import is_code, judge_responses

RESPONSES_AT_ONCE = 256
# The prompt of a template that closes thinking before it begins: no tag is missing after it.
_NO_TAGS_NEEDED = "<think></think>"


def judge_all(
    problems: Sequence[Problem],
    responses: Sequence[Sequence[FileResponse]],
    *,
    benchmark: str,
    sampling: dict,
    needs_think_tags: bool,
    test_timeout_s: float,
    test_memory_mb: int,
    done: Callable[[int], None] = lambda _: None,
) -> EvalRecord:
    """The record of n responses to each problem; what cannot be judged counts as wrong.

    Args:
        sampling: how the responses were drawn; how they were judged is added to it.
        needs_think_tags: whether a response without both tags is ``bad_format``, as in RL. If not,
            what stands after the last closing tag is judged, or all of a response without one.
        test_timeout_s, test_memory_mb: limits of one test of a program, all of whose tests are run.
        done: told the number of responses that are judged, now and then.
    """
    n = len(responses[0])
    at_once = max(1, RESPONSES_AT_ONCE // n)
    verdicts: list[tuple[Verdict, ...]] = []
    for start in range(0, len(problems), at_once):
        chosen = slice(start, start + at_once)
        verdicts += judge_responses(
            problems[chosen],
            [
                [_response(problem.id, response, needs_think_tags) for response in group]
                for problem, group in zip(problems[chosen], responses[chosen], strict=True)
            ],
            test_timeout_s=test_timeout_s,
            test_memory_mb=test_memory_mb,
        )
        done(len(verdicts) * n)
    judged_by: dict = {"think_tags": "required" if needs_think_tags else "optional"}
    if any(map(is_code, problems)):
        judged_by |= {"test_timeout_s": test_timeout_s, "test_memory_mb": test_memory_mb}
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


def _response(problem_id: str, response: FileResponse, needs_think_tags: bool) -> Response:
    return Response(
        problem_id=problem_id,
        prompt=response.prompt if needs_think_tags else _NO_TAGS_NEEDED,
        prompt_ids=(),
        token_ids=(),
        logp=(),
        text=response.text,
        truncated=bool(response.truncated),
    )
