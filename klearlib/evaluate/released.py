"""Stage ``released``: responses that others have published, judged as our own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.evaluate.judging import judge_all
from klearlib.evaluate.record_files import save_record
from klearlib.evaluate.responses_file import read_responses
from klearlib.run.files import sha256_file

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder


def judge_released(
    folder: RunFolder,
    inputs: dict[str, Path],
    *,
    benchmark: str,
    responses: str,
    problems: str | None,
    num_responses: int,
) -> None:
    """``evaluations/<benchmark>-00000.npz``: the record of a maths benchmark's responses. What
    stands after the last ``</think>`` is judged, tags or not and truncated or not, and an answer
    need not be worked out, as in the released evaluation.

    Args:
        inputs: none are read.
        responses: the file, see `responses_file.read_responses`. problems: where the benchmark is,
            None for the hub. num_responses: to each problem, as many as there must be.
    """
    known = open_benchmark(benchmark, problems)
    file = Path(responses)
    record = judge_all(
        known.problems,
        read_responses(file, known.problems, num_responses=num_responses),
        benchmark=benchmark,
        sampling={"responses": file.name, "responses_sha256": sha256_file(file)},
        rule={"think_tags": "optional", "answer_form": "equivalent", "truncated": "as_text"},
        limits={"test_timeout_s": 6.0, "test_memory_mb": 1024},
    )
    save_record(record, folder.path / "evaluations" / f"{benchmark}-00000.npz")
