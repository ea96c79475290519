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
    rule: dict[str, str],
    limits: dict[str, float],
) -> EvalRecord:
    """The record of n responses to each problem; what cannot be judged counts as wrong.

    Args:
        sampling: how the responses were drawn; how they were judged is added to it.
        rule: ``think_tags`` ("required" or "optional"), ``answer_form`` and ``truncated``, the last
            two as of `klearlib.verify.groups.judge_responses`. Responses whose flag of truncation
            nobody knows are judged as the text that they are.
        limits: ``test_timeout_s`` and ``test_memory_mb`` of one test of a program.
    """
    n = len(responses[0])
    how = {name: rule[name] for name in ("answer_form", "truncated")} | limits
    show = ProgressLines("judged", len(problems) * n)
    verdicts: list[Sequence[Verdict]] = []
    at_once = max(1, RESPONSES_AT_ONCE // n)
    for start in range(0, len(problems), at_once):
        asked = problems[start : start + at_once]
        rows = [
            [
                Response(problem.id, each.prompt, (), (), (), each.text, bool(each.truncated))
                for each in group
            ]
            for problem, group in zip(asked, responses[start : start + at_once], strict=True)
        ]
        is_strict = rule["think_tags"] == "required"
        verdicts += judge_responses(asked, rows, require_think=is_strict, **how)
        show(len(verdicts) * n)
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
            **rule,
            **(limits if any(map(is_code, problems)) else {}),
        },
    )
