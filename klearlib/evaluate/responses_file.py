"""Responses that exist already, from a file: each one finds its problem, and none is lost."""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klearlib.data.benchmarks import SIZES
from klearlib.data.lines import bounded_lines, parse_row
from klearlib.errors import KlearError, MissingAsset
from klearlib.records import Problem

RESPONSE_KEYS = (
    *("response", "responses", "output", "outputs", "output_list", "generation", "generations"),
    *("completion", "completions"),
)
"""What a row may call its responses."""
MAX_LINE_BYTES, MAX_BYTES = 2**28, 2**34
"""Of a line and of all of them, unpacked."""


@dataclass(frozen=True)
class FileResponse:
    """One response of a file. `truncated` and `num_tokens` are None where the file lacks them;
    `prompt` is the rendered prompt, "" where it is not known."""

    text: str
    truncated: bool | None = None
    num_tokens: int | None = None
    prompt: str = ""


def read_responses(
    path: Path, problems: Sequence[Problem], *, num_responses: int | None = None
) -> list[list[FileResponse]]:
    """n responses to each problem, in the order of `problems`, from a file of JSON lines.

    A row has a ``problem_id``, which may lack the benchmark's name in front (or, as the paper's
    published responses do, the problem's text in ``meta.meta.problem``), and one response, or a
    list of all those to its problem, under one of `RESPONSE_KEYS` or as the assistant's last turn
    of ``messages``. ``truncated``, ``num_tokens`` and ``prompt`` may stand beside it.

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
    by_id = {problem.id: index for index, problem in enumerate(problems)}
    for index, problem in enumerate(problems):
        by_id.setdefault(" ".join(problem.prompt.split()), index)
        for name in (*SIZES, "livecodebench"):  # with which ids of known benchmarks begin
            by_id.setdefault(problem.id.removeprefix(f"{name}-"), index)
    groups: list[list[FileResponse]] = [[] for _ in problems]
    for where, row in _rows(path):
        responses = _responses(row, where)  # first: a row that failed may lack the rest as well
        if (name := row.get("problem_id", _published_text(row))) is None:
            raise KlearError(f"{where} has no problem_id: give it the id of its problem")
        if (index := by_id.get(str(name))) is None:
            raise KlearError(
                f"{where}: the benchmark has no problem {str(name)[:60]!r}: correct its problem_id"
            )
        groups[index] += responses
    _check_counts(path.name, problems, groups, num_responses)
    return groups


def _rows(path: Path) -> Iterator[tuple[str, Mapping]]:
    """The rows of a file, each with where it is."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            limits = {"max_line_bytes": MAX_LINE_BYTES, "max_bytes": MAX_BYTES}
            for number, line in enumerate(bounded_lines(file, path.name, **limits), start=1):
                if not line.strip():
                    continue
                where = f"{path.name} line {number}"
                try:
                    row = parse_row(line.decode("utf-8-sig" if number == 1 else "utf-8"))
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


def _published_text(row: Mapping) -> str | None:
    outer = row.get("meta")
    inner = outer.get("meta") if isinstance(outer, Mapping) else None
    return " ".join(inner["problem"].split()) if isinstance(inner, Mapping) else None


def _responses(row: Mapping, where: str) -> list[FileResponse]:
    """The responses of a row, one or more."""
    keys = [key for key in RESPONSE_KEYS if key in row]
    if len(keys) > 1:
        raise KlearError(f"{where} has both {keys[0]} and {keys[1]}: leave one of them")
    turns = row.get("messages") or [{}]
    turn = turns[-1] if turns[-1].get("role") == "assistant" else {}
    value = row[keys[0]] if keys else turn.get("content")
    if not value and (row.get("error") or value is None):
        fault = f" (error: {str(row['error'])[:80]})" if row.get("error") else ""
        raise KlearError(f"{where} has no response{fault}: sample it again")
    is_list = isinstance(value, list)
    texts = value if is_list else [value]
    if not texts:
        raise KlearError(f"{where} has an empty list of responses")
    for text in texts:
        if not isinstance(text, str):
            raise KlearError(f"{where}: a response must be a text, got {type(text).__name__}")
    prompt = row.get("prompt") if isinstance(row.get("prompt"), str) else ""
    truncated = _each(row, "truncated", bool, len(texts), is_list, where)
    num_tokens = _each(row, "num_tokens", int, len(texts), is_list, where)
    return [
        FileResponse(*values, prompt) for values in zip(texts, truncated, num_tokens, strict=True)
    ]


def _each(row: Mapping, key: str, kind: type, count: int, is_list: bool, where: str) -> list:
    """The values of `key` for each of the row's responses, None where the row lacks it."""
    value = row.get(key)
    if value is None:
        return [None] * count
    values = value if is_list else [value]
    fits = isinstance(values, list) and len(values) == count
    if not fits or not all(type(each) is kind for each in values):
        word = "true or false" if kind is bool else "a whole number"
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
    by_count = defaultdict(list)
    for problem, group in zip(problems, groups, strict=True):
        by_count[len(group)].append(problem.id)
    if missing := by_count.pop(0, None):
        raise KlearError(
            f"{name} has no response to {len(missing)} of {len(problems)} problems, the first is "
            f"{missing[0]!r}: a score over fewer problems is another benchmark"
        )
    usual = num_responses or max(by_count, key=lambda count: (len(by_count[count]), count))
    if others := sorted(set(by_count) - {usual}):
        reason = "as --n says" if num_responses else "as for most of the problems"
        if num_responses and len(by_count) == 1:
            reason += f": give --n {others[0]}, or leave it out"
        raise KlearError(
            f"{name} has {others[0]} responses to {by_count[others[0]][0]!r} and must have "
            f"{usual}, {reason}"
        )
    for key in ("truncated", "num_tokens"):
        known = [getattr(response, key) is not None for group in groups for response in group]
        if any(known) and not all(known):
            raise KlearError(
                f"{name} gives {key} for {sum(known)} of {len(known)} responses: give it for all "
                "of them or for none"
            )
