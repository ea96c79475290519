"""Responses that exist, judged: those of a file, each of which finds its problem, and of a model;
stage ``released``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING

from klearlib.data.benchmarks import SIZES
from klearlib.errors import KlearError, MissingAsset
from klearlib.evaluate.benchmark_files import open_benchmark
from klearlib.evaluate.record_files import UNKNOWN_TOKENS, evaluation_record, save_record
from klearlib.records import EvalRecord, Problem
from klearlib.run.files import sha256_file
from klearlib.verify.groups import is_code, judge_responses

if TYPE_CHECKING:
    from klearlib.run.folder import RunFolder

RESPONSE_KEYS = (
    *("response", "responses", "output", "outputs", "output_list", "generation", "generations"),
    *("completion", "completions"),
)
"""What a row may call its responses."""


@dataclass(frozen=True)
class FileResponse:
    """One response of a file. `truncated` is None and `num_tokens` `UNKNOWN_TOKENS` if the file
    lacks them; `prompt` is the rendered prompt, "" if it is not known."""

    text: str
    truncated: bool | None = None
    num_tokens: int = UNKNOWN_TOKENS
    prompt: str = ""


def read_responses(
    path: Path, problems: Sequence[Problem], *, num_responses: int | None = None
) -> list[list[FileResponse]]:
    """n responses to each problem, in the order of `problems`, from a file of JSON lines.

    A row has a ``problem_id``, which may lack the benchmark's name in front, and one response, or a
    list of all those to its problem, under one of `RESPONSE_KEYS` or as the assistant's last turn
    of ``messages``. In the paper's published responses the user's turn, which is the problem's
    text, stands for the id. ``truncated``, ``num_tokens`` and ``prompt`` may stand beside the
    response.

    Args:
        num_responses: the n that there must be; None for any.

    Raises:
        MissingAsset: no such file.
        KlearError: a line that is no row, a response that is no text, a problem that is unknown or
            missing, or another number of responses to one problem than to another.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise MissingAsset(f"no file of responses at {path}: check the path")
    places = {_words(problem.prompt): index for index, problem in enumerate(problems)}
    places |= {problem.id: index for index, problem in enumerate(problems)}
    for name in (*SIZES, "livecodebench"):  # with which ids of known benchmarks begin
        for index, problem in enumerate(problems):
            places.setdefault(problem.id.removeprefix(f"{name}-"), index)
    groups: list[list[FileResponse]] = [[] for _ in problems]
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        where = f"{path.name} line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"a {type(row).__name__}")
        except ValueError as error:
            raise KlearError(
                f"{where} is not JSON ({error}): write one JSON object a line"
            ) from error
        responses = _responses(row, where)  # first: a row that failed may lack the rest as well
        turns = row.get("messages") or []
        asked = [turn.get("content") for turn in turns if turn.get("role") == "user"]
        name = row.get("problem_id", _words(asked[0]) if asked else None)
        if name is None:
            raise KlearError(f"{where} has no problem_id: give it the id of its problem")
        if str(name) not in places:
            raise KlearError(
                f"{where}: the benchmark has no problem {name!r:.60}: correct its problem_id"
            )
        groups[places[str(name)]] += responses
    counts = [len(group) for group in groups]
    usual = num_responses or mode([count for count in counts if count] or [1])
    for problem, count in zip(problems, counts, strict=True):
        if count != usual:
            raise KlearError(
                f"{path.name} has {count} responses to {problem.id!r} and must have {usual}: a "
                "score over fewer or more is another one"
            )
    return groups


def _words(text: object) -> str:
    return " ".join(str(text).split())


def _responses(row: Mapping, where: str) -> list[FileResponse]:
    """The responses of a row, one or more."""
    last = (row.get("messages") or [{}])[-1]
    spoken = last.get("content") if last.get("role") == "assistant" else None
    value = next((row[key] for key in RESPONSE_KEYS if key in row), spoken)
    if value is None or value == [] or (not value and row.get("error")):
        raise KlearError(f"{where} has no response: sample it again")
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str):
            raise KlearError(f"{where}: a response must be a text, got {type(text).__name__}")
    truncated = _each(row, "truncated", bool, len(texts), where, absent=None)
    num_tokens = _each(row, "num_tokens", int, len(texts), where, absent=UNKNOWN_TOKENS)
    prompt = row.get("prompt") or ""
    return [FileResponse(*each, prompt) for each in zip(texts, truncated, num_tokens, strict=True)]


def _each(row: Mapping, key: str, kind: type, count: int, where: str, *, absent) -> list:
    """The values of `key` for each of the row's responses, `absent` if the row lacks it."""
    value = row.get(key)
    if value is None:
        return [absent] * count
    values = value if isinstance(value, list) else [value]
    if len(values) != count or not all(type(each) is kind for each in values):
        word = "true or false" if kind is bool else "a whole number"
        raise KlearError(f"{where}: {key} must be {word} for each response, got {str(value)[:60]}")
    return values


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
    verdicts = judge_responses(
        problems,
        responses,
        require_think=rule["think_tags"] == "required",
        answer_form=rule["answer_form"],
        truncated=rule["truncated"],
        **limits,
    )
    return evaluation_record(
        problems,
        responses,
        verdicts,
        benchmark=benchmark,
        sampling={
            **sampling,
            "truncated_known": all(r.truncated is not None for group in responses for r in group),
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
        responses: the file, see `read_responses`. problems: where the benchmark is,
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
