"""Responses of a file or of a model, judged some problems at a time; stage ``released``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.evaluate.record_files import UNKNOWN_TOKENS, evaluation_record, save_record
from klearlib.evaluate.responses_file import FileResponse, read_responses
from klearlib.records import EvalRecord, Problem, Response, Verdict
from klearlib.run.files import sha256_file
from klearlib.verify.groups import is_code, judge_responses

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

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
    verdicts: list[Sequence[Verdict]] = []
    at_once = max(1, RESPONSES_AT_ONCE // n)
    for start in shown_progress(range(0, len(problems), at_once), "judging"):
        asked = problems[start : start + at_once]
        rows = [
            [
                Response(problem.id, each.prompt, (), (), (), each.text, bool(each.truncated))
                for each in group
            ]
            for problem, group in zip(asked, responses[start : start + at_once], strict=True)
        ]
        verdicts += judge_responses(
            asked,
            rows,
            require_think=rule["think_tags"] == "required",
            answer_form=rule["answer_form"],
            truncated=rule["truncated"],
            **limits,
        )
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


def judge_released(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    benchmark: str,
    responses: str,
    problems: str | None,
    num_responses: int,
) -> None:
    """Stage ``released``: ``evaluations/<benchmark>-00000.npz``, the record of a maths benchmark's
    responses that others have published. What stands after the last ``</think>`` is judged, tags or
    not and truncated or not, and an answer need not be worked out, as in the released evaluation.

    Args:
        inputs: none are read.
        responses: the file, see `responses_file.read_responses`. problems: where the benchmark is,
            None for the hub. num_responses: to each problem, as many as there must be.
    """
    known = open_benchmark(benchmark, problems).problems
    record = judge_all(
        known,
        read_responses(Path(responses), known, num_responses=num_responses),
        benchmark=benchmark,
        sampling=file_settings(Path(responses)),
        rule={"think_tags": "optional", "answer_form": "equivalent", "truncated": "as_text"},
        limits={"test_timeout_s": 6.0, "test_memory_mb": 1024},
    )
    save_record(record, folder.path / "evaluations" / f"{benchmark}-00000.npz")


def file_settings(path: Path) -> dict[str, str]:
    """How responses of a file were drawn: they are its own."""
    return {"responses": path.name, "responses_sha256": sha256_file(path)}


def shown_progress(work: Sequence, verb: str):
    """`work`, item by item, with a bar and the time that is left on a terminal."""
    from rich.console import Console
    from rich.progress import track

    return track(work, verb, console=Console(stderr=True), disable=not sys.stderr.isatty())
