"""Records of evaluations: made of verdicts, kept in one .npz that holds all that was measured."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from klearlib.errors import DamagedEntry
from klearlib.records import FOUND, EvalRecord, Problem, Verdict
from klearlib.run.files import write_bytes

UNKNOWN_TOKENS = -1
"""`EvalRecord.num_tokens` of responses whose length in tokens is not known."""

VALIDATION = "validation"

LOOKS = ("score", "truncated", "tokens", "not_worked_out", *(f"right_{each}" for each in FOUND))
"""What `looked_at` tells."""

_ARRAYS = ("correct", "truncated", "num_tokens", "reason", "pass_rate", "found")


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

    verdicts, truncated, num_tokens: [P, n]. sampling: how the responses were drawn, all of it.
    """
    return EvalRecord(
        benchmark=benchmark,
        problem_ids=tuple(problem.id for problem in problems),
        correct=np.array([[v.correct for v in group] for group in verdicts], dtype=bool),
        truncated=np.array(truncated, dtype=bool),
        num_tokens=np.array(num_tokens, dtype=np.int64),
        reason=np.array([[v.reason for v in group] for group in verdicts]),
        pass_rate=np.array(
            [[v.report.pass_rate if v.report else float(v.correct) for v in g] for g in verdicts]
        ),
        found=np.array([[v.found or "" for v in group] for group in verdicts]),
        sampling=sampling,
    )


def save_record(record: EvalRecord, path: Path) -> None:
    """Write a record to one .npz file, whole or not at all; its folder is made if it is absent."""
    content = io.BytesIO()
    np.savez(
        content,
        header=np.array(json.dumps({"benchmark": record.benchmark, "sampling": record.sampling})),
        problem_ids=np.array(record.problem_ids),
        **{name: getattr(record, name) for name in _ARRAYS},
    )
    write_bytes(path, content.getvalue(), make_folder=True)


def load_record(path: Path) -> EvalRecord:
    """Read what `save_record` wrote; DamagedEntry if the file holds no such thing."""
    try:
        # Opened here: NumPy would leave a damaged file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            return EvalRecord(
                benchmark=header["benchmark"],
                problem_ids=tuple(map(str, stored["problem_ids"])),
                sampling=header["sampling"],
                **{name: stored[name] for name in _ARRAYS},
            )
    except Exception as error:  # NumPy and zipfile raise a dozen unrelated types here
        raise DamagedEntry(
            f"{path} is not a readable evaluation ({error}); delete its run folder and run again"
        ) from error


def scored_files(folder: Path) -> dict[int, list[Path]]:
    """The evaluations of a training run by step, in order, that make its curve of scores: on the
    benchmarks that its first one has, since what decides claims is measured in the second half
    alone; on the validation set if it is alone."""
    named = [
        (int(step), path, name)
        for path in sorted((folder / "evaluations").glob("*.npz"))
        for name, _, step in [path.stem.rpartition("-")]
        if step.isdecimal()  # else a user's copy
    ]
    named = sorted([each for each in named if each[2] != VALIDATION] or named)
    names = {name for step, _, name in named if step == named[0][0]}
    by_step: dict[int, list[Path]] = {}
    for step, path, name in named:
        if name in names:
            by_step.setdefault(step, []).append(path)
    return by_step


def looked_at(records: Sequence[EvalRecord]) -> dict[str, float]:
    """`LOOKS` over all responses of some records together.

    ``score``, ``truncated`` and ``not_worked_out`` are shares of the responses, ``tokens`` is their
    mean length. ``right_boxed``, ``right_marked`` and ``right_last`` say where the answers of the
    right ones stood, and sum to 1; NaN where none is right, and for programs.
    """
    names = ("correct", "truncated", "num_tokens", "reason", "found")
    correct, truncated, tokens, reason, found = (
        np.concatenate([getattr(record, name).ravel() for record in records]) for name in names
    )
    places = found[correct & (found != "")]
    values = [correct.mean(), truncated.mean(), tokens.mean(), (reason == "not_worked_out").mean()]
    values += [(places == each).mean() if len(places) else np.nan for each in FOUND]
    return dict(zip(LOOKS, map(float, values), strict=True))
