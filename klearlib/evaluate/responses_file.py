"""Responses that exist already, from a file: each one finds its problem, and none is lost."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klearlib.data.benchmarks import SIZES
from klearlib.errors import KlearError, MissingAsset
from klearlib.records import Problem

RESPONSE_KEYS = (
    *("response", "responses", "output", "outputs", "output_list", "generation", "generations"),
    *("completion", "completions"),
)
"""What a row may call its responses."""


@dataclass(frozen=True)
class FileResponse:
    """One response of a file. `truncated` and `num_tokens` are None if the file lacks them;
    `prompt` is the rendered prompt, "" if it is not known."""

    text: str
    truncated: bool | None = None
    num_tokens: int | None = None
    prompt: str = ""


def read_responses(
    path: Path, problems: Sequence[Problem], *, num_responses: int | None = None
) -> list[list[FileResponse]]:
    """n responses to each problem, in the order of `problems`, from a file of JSON lines.

    A row has a ``problem_id``, which may lack the benchmark's name in front, and one response, or a
    list of all those to its problem, under one of `RESPONSE_KEYS` or as the assistant's last turn
    of ``messages``. In the paper's published responses the problem's text, as the user's turn or in
    ``meta.meta.problem``, stands for the id. ``truncated``, ``num_tokens`` and ``prompt`` may stand
    beside the response.

    Args:
        path: ``.jsonl`` or ``.jsonl.gz``. num_responses: the n that there must be; None for any.

    Raises:
        MissingAsset: no such file.
        KlearError: a line that is no row, a response that is no text, a problem that is unknown or
            missing, or another number of responses to one problem than to another.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise MissingAsset(f"no file of responses at {path}: check the path")
    by_text = {_words(problem.prompt): index for index, problem in enumerate(problems)}
    by_id = {problem.id: index for index, problem in enumerate(problems)}
    for name in (*SIZES, "livecodebench"):  # with which ids of known benchmarks begin
        for index, problem in enumerate(problems):
            by_id.setdefault(problem.id.removeprefix(f"{name}-"), index)
    groups: list[list[FileResponse]] = [[] for _ in problems]
    for where, row in _rows(path):
        responses = _responses(row, where)  # first: a row that failed may lack the rest as well
        texts = _published_texts(row)
        if (name := row.get("problem_id")) is not None:
            index = by_id.get(str(name))
        elif texts:
            index = next((by_text[text] for text in texts if text in by_text), None)
        else:
            raise KlearError(f"{where} has no problem_id: give it the id of its problem")
        if index is None:
            raise KlearError(
                f"{where}: the benchmark has no problem {name or texts[0]!r:.60}: correct its "
                "problem_id"
            )
        if name is None and len(by_text) < len(problems):
            raise KlearError(f"{where}: several problems have one text: give it a problem_id")
        groups[index] += responses
    _check_counts(path.name, problems, groups, num_responses)
    return groups


def _rows(path: Path) -> Iterator[tuple[str, Mapping]]:
    """The rows of a file, each with where it is."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            for number, line in enumerate(file, start=1):
                where = f"{path.name} line {number}"
                if not line.strip():
                    continue
                try:
                    row = json.loads(line.decode("utf-8-sig"))
                except ValueError as error:
                    raise KlearError(
                        f"{where} is not JSON ({error}): write one JSON object a line"
                    ) from error
                if not isinstance(row, Mapping):
                    raise KlearError(
                        f"{where} is a {type(row).__name__}: write one JSON object a line"
                    )
                yield where, row
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise KlearError(f"{path.name} cannot be unpacked: {error}") from error


def _words(text: object) -> str:
    return " ".join(str(text).split())


def _turns(row: Mapping) -> list[Mapping]:
    turns = row.get("messages")
    return [turn for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []


def _published_texts(row: Mapping) -> list[str]:
    """The texts of a published row that may be its problem's."""
    outer = row.get("meta")
    inner = outer.get("meta") if isinstance(outer, Mapping) else None
    texts = [turn.get("content") for turn in _turns(row) if turn.get("role") == "user"]
    return [_words(text) for text in (*texts, *([inner.get("problem")] if inner else []))]


def _responses(row: Mapping, where: str) -> list[FileResponse]:
    """The responses of a row, one or more."""
    keys = [key for key in RESPONSE_KEYS if key in row]
    if len(keys) > 1:
        raise KlearError(f"{where} has both {keys[0]} and {keys[1]}: leave one of them")
    last = (_turns(row) or [{}])[-1]
    value = row[keys[0]] if keys else last.get("content") if last.get("role") != "user" else None
    if value is None or (not value and row.get("error")):
        fault = f" (error: {str(row['error'])[:80]})" if row.get("error") else ""
        raise KlearError(f"{where} has no response{fault}: sample it again")
    is_list = isinstance(value, list)
    texts = value if is_list else [value]
    if not texts:
        raise KlearError(f"{where} has an empty list of responses")
    for text in texts:
        if not isinstance(text, str):
            raise KlearError(f"{where}: a response must be a text, got {type(text).__name__}")
        if not text.isascii() and text != text.encode(errors="replace").decode():
            raise KlearError(f"{where}: a response has half a character: sample it again")
    truncated = _each(row, "truncated", bool, len(texts), is_list, where)
    num_tokens = _each(row, "num_tokens", int, len(texts), is_list, where)
    prompt = row.get("prompt") if isinstance(row.get("prompt"), str) else ""
    return [FileResponse(*each, prompt) for each in zip(texts, truncated, num_tokens, strict=True)]


def _each(row: Mapping, key: str, kind: type, count: int, is_list: bool, where: str) -> list:
    """The values of `key` for each of the row's responses, None if the row lacks it."""
    value = row.get(key)
    if value is None:
        return [None] * count
    values = value if is_list and isinstance(value, list) else [value]
    if len(values) != count or not all(type(each) is kind and 0 <= each < 2**63 for each in values):
        word = "true or false" if kind is bool else "a whole number below 2**63"
        words = f"a list of {count}, each {word}" if is_list else word
        raise KlearError(f"{where}: {key} must be {words}, got {str(value)[:60]}")
    return values


def _check_counts(
    name: str,
    problems: Sequence[Problem],
    groups: Sequence[Sequence[FileResponse]],
    num_responses: int | None,
) -> None:
    """KlearError unless all problems have the same number of responses, which all say the same of
    themselves."""
    counts = [len(group) for group in groups]
    if num_missing := counts.count(0):
        raise KlearError(
            f"{name} has no response to {num_missing} of {len(problems)} problems, the first is "
            f"{problems[counts.index(0)].id!r}: a score over fewer problems is another benchmark"
        )
    usual = num_responses or Counter(counts).most_common(1)[0][0]
    for problem, count in zip(problems, counts, strict=True):
        if count != usual:
            reason = "as --n says" if num_responses else "as for most of the problems"
            raise KlearError(
                f"{name} has {count} responses to {problem.id!r} and must have {usual}, {reason}"
            )
    for key in ("truncated", "num_tokens"):
        known = [getattr(response, key) is not None for group in groups for response in group]
        if any(known) and not all(known):
            raise KlearError(
                f"{name} gives {key} for {sum(known)} of {len(known)} responses: give it for all "
                "of them or for none"
            )
