"""Records of evaluations: made of verdicts, kept in one .npz that holds all that was measured."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from klearlib.errors import DamagedEntry
from klearlib.records import EvalRecord, Problem, Response, Verdict
from klearlib.run.files import write_bytes

UNKNOWN_TOKENS = -1
"""`EvalRecord.num_tokens` of responses whose length in tokens is not known."""

VALIDATION = "validation"

_ARRAYS = ("correct", "truncated", "num_tokens", "reason", "pass_rate", "found")


def evaluation_record(
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    verdicts: Sequence[Sequence[Verdict]],
    *,
    benchmark: str,
    sampling: dict,
) -> EvalRecord:
    """The record of n responses to each of P problems, and of the verdicts on them, both [P, n].

    sampling: how the responses were drawn, all of it but n.
    """
    return EvalRecord(
        benchmark=benchmark,
        problem_ids=tuple(problem.id for problem in problems),
        correct=np.array([[v.correct for v in group] for group in verdicts], dtype=bool),
        truncated=np.array([[bool(r.truncated) for r in group] for group in responses], dtype=bool),
        num_tokens=np.array([[r.num_tokens for r in g] for g in responses], dtype=np.int64),
        reason=np.array([[v.reason for v in group] for group in verdicts]),
        pass_rate=np.array(
            [[v.report.pass_rate if v.report else float(v.correct) for v in g] for g in verdicts]
        ),
        found=np.array([[v.found or "" for v in group] for group in verdicts]),
        sampling=sampling | {"num_responses": len(responses[0])},
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
