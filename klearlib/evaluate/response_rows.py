"""Rows of a file of responses, by the names that several tools give to the same things."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.verify.extract import MAX_ANSWER_CHARS

ID_KEYS = ("problem_id", "question_id", "unique_id", "problem_idx", "task_id")
PROMPT_KEYS = ("problem", "question", "question_content", "prompt")
RESPONSE_KEYS = (
    "response",
    "responses",
    "output",
    "outputs",
    "output_list",
    "generation",
    "generations",
    "completion",
    "completions",
)
GOLD_KEYS = ("answer", "gold", "ground_truth", "expected_answer", "solution")
"""What a row may call the id and the text of its problem, its responses and its gold answer."""

_WHOLE_BOX = re.compile(r"\\boxed\s*\{.*\}", re.DOTALL)


@dataclass(frozen=True)
class FileResponse:
    """One response of a file. `truncated` and `num_tokens` are None where the file lacks them;
    `prompt` is the rendered prompt, "" where it is not known."""

    text: str
    truncated: bool | None = None
    num_tokens: int | None = None
    prompt: str = ""


def rows_of(path: Path) -> Iterator[tuple[int, Mapping]]:
    """The rows of a file with the numbers of their lines, from 1."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            # Bytes are cut at line feeds alone: text also ends at U+2028, which JSON may hold.
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                except (ValueError, RecursionError) as error:
                    raise KlearError(
                        f"{path.name} line {number} is no JSON ({error}): write one JSON object a "
                        "line"
                    ) from error
                if not isinstance(row, Mapping):
                    raise KlearError(
                        f"{path.name} line {number} is no row but a {type(row).__name__}: write "
                        "one JSON object a line"
                    )
                yield number, row
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise KlearError(f"{path.name} cannot be unpacked: {error}") from error


def _layers(row: Mapping) -> list[Mapping]:
    """The row, its ``meta`` and the ``meta`` of that."""
    layers = [row]
    while len(layers) < 3 and isinstance(layers[-1].get("meta"), Mapping):
        layers.append(layers[-1]["meta"])
    return layers


def ids_of(row: Mapping) -> dict[str, str]:
    """The values of `ID_KEYS` that a row has."""
    ids: dict[str, str] = {}
    for layer in _layers(row):
        for key in ID_KEYS:
            if isinstance(layer.get(key), str | int) and not isinstance(layer[key], bool):
                ids.setdefault(key, str(layer[key]))
    return ids


def prompts_of(row: Mapping, *, rendered: bool = True) -> list[str]:
    """Texts of a row that may be its problem's, the likeliest first.

    rendered: also a ``prompt`` that is a text, which a chat template may have written.
    """
    texts = []
    for layer in _layers(row):
        for key in (*PROMPT_KEYS, "messages"):
            value = layer.get(key)
            if isinstance(value, str) and (rendered or key != "prompt"):
                texts.append(value)
            elif isinstance(value, list):
                turns = [t for t in value if isinstance(t, Mapping) and t.get("role") == "user"]
                texts.append("\n\n".join(str(_content(turn) or "") for turn in turns))
    return [text for text in texts if text.strip()]


def _content(turn: Mapping) -> object:
    """What a turn says; parts of it that are all texts are joined."""
    content = turn.get("content")
    if not isinstance(content, list) or not content:
        return content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else content


def gold_of(row: Mapping) -> tuple[str, str] | None:
    """The key and the text of a row's gold answer; a written solution is none."""
    for layer in _layers(row):
        for key in GOLD_KEYS:
            value = layer.get(key)
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            if isinstance(value, int | float) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str) or not value.strip() or len(value) > MAX_ANSWER_CHARS:
                continue
            if key != "solution" or len(value.split()) == 1 or _WHOLE_BOX.fullmatch(value.strip()):
                return key, value
    return None


def responses_of(row: Mapping, where: str) -> list[FileResponse]:
    """The responses of a row, one or more.

    Raises KlearError, which begins with `where`, for a row without any and for one that is no text.
    """
    keys = [key for key in RESPONSE_KEYS if key in row]
    if len(keys) > 1:
        raise KlearError(f"{where} holds both {keys[0]} and {keys[1]}: leave one of them")
    fault = f" (error: {str(row['error'])[:80]})" if row.get("error") else ""
    none = KlearError(f"{where} holds no response{fault}: it has to be sampled again")
    if keys:
        value = row[keys[0]]
    else:
        turns = row.get("messages")
        last = turns[-1] if isinstance(turns, list) and turns else None
        if not isinstance(last, Mapping) or last.get("role") != "assistant":
            raise none
        value = _content(last)
        if isinstance(value, list):
            raise KlearError(f"{where}: the assistant's turn must be a text, got parts without one")
    if fault and not value:
        raise none
    is_list = isinstance(value, list)
    texts = value if is_list else [value]
    if not texts:
        raise KlearError(f"{where} holds an empty list of responses")
    for text in texts:
        if not isinstance(text, str):
            raise KlearError(f"{where}: a response must be a text, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise KlearError(f"{where}: a response is no text ({error.reason})") from error
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
    if not fits or not all(type(v) is kind and v >= 0 for v in values):
        words = f"{count} of {kind.__name__}" if is_list else f"one {kind.__name__}"
        raise KlearError(f"{where}: {key} must be {words}, got {str(value)[:60]}")
    return values
