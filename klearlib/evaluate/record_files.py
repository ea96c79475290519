"""Records of evaluations: made of verdicts, kept in one .npz that holds all that was measured."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from klearlib.errors import DamagedEntry
from klearlib.records import EvalRecord, Problem, Verdict
from klearlib.run.files import write_bytes

UNKNOWN_TOKENS = -1
"""`EvalRecord.num_tokens` of responses whose length in tokens nobody gave."""

VALIDATION = "validation"

_KINDS = {
    **{"correct": "b", "truncated": "b", "num_tokens": "i"},
    **{"reason": "U", "pass_rate": "f", "found": "U"},
}


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
        **{name: getattr(record, name) for name in _KINDS},
    )
    write_bytes(path, content.getvalue(), make_folder=True)


def load_record(path: Path) -> EvalRecord:
    """Read what `save_record` wrote; DamagedEntry where the file holds no such thing."""
    try:
        # Opened here: NumPy would leave a damaged file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            problem_ids, arrays = stored["problem_ids"], {name: stored[name] for name in _KINDS}
            if not arrays["correct"].size:
                raise ValueError("no verdict")
            if not isinstance(header["benchmark"], str) or not isinstance(header["sampling"], dict):
                raise ValueError("another header")
            if problem_ids.dtype.kind != "U" or problem_ids.ndim != 1:
                raise ValueError(f"problem_ids of {problem_ids.dtype} {list(problem_ids.shape)}")
            shape = (len(problem_ids), *arrays["correct"].shape[1:])
            for name, array in arrays.items():
                if array.dtype.kind != _KINDS[name] or array.ndim != 2 or array.shape != shape:
                    raise ValueError(f"{name} of {array.dtype} {list(array.shape)}")
            return EvalRecord(
                benchmark=header["benchmark"],
                problem_ids=tuple(map(str, problem_ids)),
                sampling=header["sampling"],
                **arrays,
            )
    except Exception as error:  # NumPy and zipfile raise a dozen unrelated types here
        raise DamagedEntry(
            f"{path} is no readable evaluation ({error}); delete its run folder and run again"
        ) from error


def scored_files(folder: Path) -> dict[int, list[Path]]:
    """The evaluations of a training run by step, in order, that make its curve of scores: on the
    benchmarks that its first one has, since what decides claims is measured in the second half
    alone; on the validation set where it is alone."""
    files = [
        (*path.stem.rpartition("-")[::2], path)
        for path in sorted((folder / "evaluations").glob("*.npz"))
    ]
    named = [(name, int(step), path) for name, step, path in files if step.isdecimal()]  # no copies
    named = [each for each in named if each[0] != VALIDATION] or named
    first = min((step for _, step, _ in named), default=0)
    names = {name for name, step, _ in named if step == first}
    found: dict[int, list[Path]] = {}
    for _, step, path in sorted(each for each in named if each[0] in names):
        found.setdefault(step, []).append(path)
    return dict(sorted(found.items()))
