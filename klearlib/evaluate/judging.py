"""Responses of a file or of a model, judged some problems at a time; what is judged is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from klearlib import __version__
from klearlib.evaluate.record_files import UNKNOWN_TOKENS, evaluation_record
from klearlib.evaluate.responses_file import FileResponse
from klearlib.evaluate.score_summary import ProgressLines
from klearlib.records import FOUND, REASONS, EvalRecord, Problem, Response, TestReport, Verdict
from klearlib.run.files import is_plain, read_json, write_text
from klearlib.run.provenance import computing_versions
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
    kept: Path,
) -> EvalRecord:
    """The record of n responses to each problem; what cannot be judged counts as wrong.

    Args:
        sampling: how the responses were drawn; how they were judged is added to it.
        require_think, answer_form, truncated, test_timeout_s, test_memory_mb: as of
            `klearlib.verify.groups.judge_responses`. Responses whose flag of truncation nobody
            knows are judged as the text that they are.
        kept: folder of the verdicts, a file for each `RESPONSES_AT_ONCE`; those of a call that was
            killed are found again.
    """
    n = len(responses[0])
    at_once = max(1, RESPONSES_AT_ONCE // n)
    limits = {"test_timeout_s": test_timeout_s, "test_memory_mb": test_memory_mb}
    rule = {"answer_form": answer_form, "truncated": truncated}
    how = {"require_think": require_think} | rule | limits
    show = ProgressLines("judged", len(problems) * n)
    verdicts: list[Sequence[Verdict]] = []
    for start in range(0, len(problems), at_once):
        asked = problems[start : start + at_once]
        groups = responses[start : start + at_once]
        path = kept / f"{_digest(asked, groups, how)}.json"
        found = _read_verdicts(path, [len(group) for group in groups])
        if found is None:
            rows = [
                [_response(problem.id, response) for response in group]
                for problem, group in zip(asked, groups, strict=True)
            ]
            found = judge_responses(asked, rows, **how)
            _write_verdicts(found, path)
        else:
            show.kept += len(found) * n
        verdicts += found
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


def _digest(
    problems: Sequence[Problem], groups: Sequence[Sequence[FileResponse]], how: dict
) -> str:
    """A name that no other responses, judged by another rule or another version, have."""
    digest = hashlib.sha256(json.dumps([__version__, computing_versions(), how]).encode())
    for problem, group in zip(problems, groups, strict=True):
        texts = [[response.prompt, response.text, response.truncated] for response in group]
        digest.update(json.dumps([asdict(problem), texts]).encode())
    return digest.hexdigest()[:32]


def _write_verdicts(verdicts: Sequence[Sequence[Verdict]], path: Path) -> None:
    """What a record holds of verdicts: correct, reason, where the answer stood, and the share of
    tests passed."""
    rows = [
        [(v.correct, v.reason, v.found, v.report and v.report.pass_rate) for v in group]
        for group in verdicts
    ]
    write_text(path, json.dumps(rows), make_folder=True)


def _read_verdicts(path: Path, counts: Sequence[int]) -> list[list[Verdict]] | None:
    """What `_write_verdicts` wrote, for groups of these sizes; None where it is not there, or
    damaged: it is judged again."""
    try:
        rows = read_json(path)
        if [len(group) for group in rows] != list(counts):
            return None
        return [[_verdict(*each) for each in group] for group in rows]
    except (OSError, ValueError, TypeError):
        return None


def _verdict(correct: object, reason: object, found: object, share: object) -> Verdict:
    """ValueError for what is none."""
    has_share = share is None or (is_plain(share, float) and 0 <= share <= 1)
    is_judged = reason in REASONS and correct is (reason == "correct")
    if not is_judged or found not in (None, *FOUND) or not has_share:
        raise ValueError("no verdict")
    report = None if share is None else TestReport((), share)
    return Verdict(correct, reason, report=report, found=found)
