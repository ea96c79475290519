"""Sample n responses to each problem of a benchmark, judge them, keep everything."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from klearlib.errors import DamagedEntry
from klearlib.records import EvalRecord, Problem


def evaluate(
    model,
    tokenizer,
    problems: Sequence[Problem],
    *,
    benchmark: str,
    num_responses: int,
    settings,
) -> EvalRecord:
    """avg@n's raw material: n independent responses a problem, judged.

    Args:
        num_responses: n. settings: a `klearlib.policy.sampling.SamplingSettings`; its record is stored.

    Raises:
        ValueError: no problems, n < 1, or a problem without an answer.
    """
    from klearlib.policy.sampling import sample_groups
    from klearlib.rl.rollouts import judge_groups

    if not problems:
        raise ValueError(f"benchmark {benchmark!r} holds no problems")
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


def save_record(record: EvalRecord, path: Path) -> None:
    """Write a record to one .npz file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npz")
    np.savez(
        part,
        header=np.array(json.dumps({"benchmark": record.benchmark, "sampling": record.sampling})),
        problem_ids=np.array(record.problem_ids),
        correct=record.correct,
        truncated=record.truncated,
        num_tokens=record.num_tokens,
        reason=record.reason,
    )
    os.replace(part, path)


def load_record(path: Path) -> EvalRecord:
    """Read what `save_record` wrote.

    Raises:
        DamagedEntry: the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            return EvalRecord(
                benchmark=header["benchmark"],
                problem_ids=tuple(map(str, stored["problem_ids"])),
                correct=stored["correct"],
                truncated=stored["truncated"],
                num_tokens=stored["num_tokens"],
                reason=stored["reason"],
                sampling=header["sampling"],
            )
    except (OSError, ValueError, KeyError) as error:
        raise DamagedEntry(
            f"{path} is no readable evaluation ({error}); delete its run folder and run again"
        ) from error
