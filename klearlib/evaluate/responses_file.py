"""Responses that exist already, from a file: each one finds its problem, and none is lost."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klearlib.data.lines import bounded_lines, parse_row
from klearlib.data.rows import number_text
from klearlib.errors import KlearError, MissingAsset
from klearlib.records import Problem
from klearlib.verify.answers import verify_answers
from klearlib.verify.extract import MAX_ANSWER_CHARS, unboxed

ID_KEYS = ("problem_id", "question_id", "unique_id", "problem_idx", "task_id")
TEXT_KEYS = ("problem", "question", "question_content")
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
"""What a row may call the id and the text of its problem, its responses and its gold answer. The
text may also stand in ``prompt`` (a text or turns) and in the user's turns of ``messages``."""

MAX_LINE_BYTES, MAX_BYTES, MAX_RESPONSE_CHARS = 2**28, 2**34, 2**24
"""Of a line and of all of them, unpacked, and of one response: 64K tokens have some 2**18."""
MAX_RESPONSES = 2**16
"""To one problem, as ``--n`` has it."""

_WHOLE_BOX = re.compile(r"\\boxed\s*\{.*\}", re.DOTALL)


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

    A row holds one response, or a list of all those of its problem. Its problem is found by
    ``problem_id``; in a row without, by a text that is the problem's but for blanks; in a row
    without any text, by another of `ID_KEYS`. Ids may lack the benchmark's name in front. With an
    id, `TEXT_KEYS` must hold that problem's text, and a prompt must not ask another one. A key is
    looked for in the row, in ``meta`` and in ``meta.meta``, as the released evaluation nests them.
    The response is that of `RESPONSE_KEYS`, or the last turn of ``messages``, which must be the
    assistant's. A gold answer of the row (`GOLD_KEYS`) must be the benchmark's: another one shows
    another version of it.

    Args:
        path: ``.jsonl`` or ``.jsonl.gz``. num_responses: the n that there must be; None for any.

    Raises:
        MissingAsset: no such file.
        KlearError: a line that is no row, a response that is no text, one of the limits of size, a
            problem that is unknown, missing or given in a list and again, an id and a text of two
            problems, another number of responses to one problem than to another, or another gold
            answer.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise MissingAsset(f"no file of responses at {path}: mend the path")
    finder = _ProblemFinder(problems)
    groups: list[list[FileResponse]] = [[] for _ in problems]
    whole: set[int] = set()  # problems whose row had several
    golds: dict[tuple[int, str, str], int] = {}
    for number, row in _rows(path):
        where = f"{path.name} line {number}"
        layers = _layers(row)
        found = _responses(row, where)  # first, as a row that failed may lack the rest as well
        index = finder.find(layers, where)
        if index in whole or (len(found) > 1 and groups[index]):
            raise KlearError(
                f"{where}: the responses to {problems[index].id!r} are in an earlier line already: "
                "a list must hold all of them"
            )
        if len(found) > 1:
            whole.add(index)
        _check_number(len(found) + len(groups[index]), where)
        groups[index].extend(found)
        if gold := _gold(layers):
            golds.setdefault((index, *gold), number)
    if not any(groups):
        raise KlearError(f"{path.name} holds no responses")
    _check_counts(path.name, problems, groups, num_responses)
    _check_golds(path.name, problems, golds)
    return groups


def _rows(path: Path) -> Iterator[tuple[int, Mapping]]:
    """The rows of a file with the numbers of their lines, from 1."""
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
                        f"{where} is no JSON ({error}): write one JSON object a line"
                    ) from error
                if not isinstance(row, Mapping):
                    raise KlearError(
                        f"{where} is no row but a {type(row).__name__}: write one JSON object a "
                        "line"
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


def _words(text: str) -> str:
    return " ".join(text.split())


class _ProblemFinder:
    """Finds the problem of a row by its id or its text."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        from klearlib.data.benchmarks import SIZES

        self._texts = [_words(problem.prompt) for problem in problems]
        self._by_id = {problem.id: index for index, problem in enumerate(problems)}
        self._by_text: dict[str, list[int]] = defaultdict(list)
        self._agree: set[tuple[int, str, bool]] = set()
        for index, problem in enumerate(problems):
            self._by_text[self._texts[index]].append(index)
            # Ids of the benchmarks of `read_benchmark` begin with its name.
            for name in (*SIZES, "livecodebench"):
                self._by_id.setdefault(problem.id.removeprefix(f"{name}-"), index)

    def find(self, layers: Sequence[Mapping], where: str) -> int:
        ids: dict[str, str] = {}
        for layer in layers:
            for key in ID_KEYS:
                if isinstance(layer.get(key), str | int) and not isinstance(layer[key], bool):
                    ids.setdefault(key, str(layer[key]))
        texts = _problem_texts(layers)
        mend = "mend problem_id, or leave it out, then the text of the row tells its problem"
        if (name := ids.get("problem_id")) is not None:
            if name not in self._by_id:
                fix = f": {mend}" if texts else ""
                raise KlearError(f"{where}: the benchmark has no problem {name!r}{fix}")
            index = self._by_id[name]
            for text, is_prompt in texts:
                if not self._agrees(index, text, is_prompt):
                    what = "a prompt that asks" if is_prompt else "the text of"
                    raise KlearError(
                        f"{where} has problem_id {name!r} and {what} another problem, "
                        f"{text[:60]!r}: {mend}"
                    )
            return index
        for text, _ in texts:
            if len(found := self._by_text.get(text, ())) == 1:
                return found[0]
        if shared := [text for text, _ in texts if text in self._by_text]:
            raise KlearError(
                f"{where}: several problems have the text {shared[0][:60]!r}: give each row its "
                "problem_id"
            )
        if texts:
            raise KlearError(
                f"{where} is of a problem that the benchmark does not have: {texts[0][0][:60]!r}; "
                "where words stand around the problem's own, give each row its problem_id"
            )
        for name in ids.values():
            if name in self._by_id:
                return self._by_id[name]
        if ids:
            raise KlearError(f"{where}: the benchmark has no problem {next(iter(ids.values()))!r}")
        raise KlearError(
            f"{where} names no problem: give it a problem_id, or its text as problem or prompt"
        )

    def _agrees(self, index: int, text: str, is_prompt: bool) -> bool:
        """Whether a row of problem `index` may hold a text: the problem's own, perhaps with words
        around it; a prompt may lack it, as a template may rewrite it."""
        if (index, text, is_prompt) in self._agree:  # the same for each of n responses
            return True
        # The longest: one problem may be the beginning of another.
        held = max((known for known in self._by_text if known in text), key=len, default="")
        fits = index in self._by_text[held] if held else is_prompt
        if fits:
            self._agree.add((index, text, is_prompt))
        return fits


def _problem_texts(layers: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Texts of a row that may be its problem's, and whether each is a prompt, to which a template
    or an instruction may have added; the likeliest first."""
    texts = []
    for layer in layers:
        for key in (*TEXT_KEYS, "prompt", "messages"):
            value = layer.get(key)
            if isinstance(value, list):
                turns = [t for t in value if isinstance(t, Mapping) and t.get("role") == "user"]
                value = "\n\n".join(str(_content(turn) or "") for turn in turns)
            if isinstance(value, str) and value.strip():
                texts.append((_words(value), key not in TEXT_KEYS))
    return texts


def _content(turn: Mapping) -> object:
    """What a turn says; parts of it that are all texts are joined."""
    content = turn.get("content")
    if not isinstance(content, list) or not content:
        return content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else content


def _gold(layers: Sequence[Mapping]) -> tuple[str, str] | None:
    """The key and the text of a row's gold answer; a written solution is none."""
    for layer in layers:
        for key in GOLD_KEYS:
            value = layer.get(key)
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            if isinstance(value, float):
                value = number_text(value) if math.isfinite(value) else ""
            elif isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str) or not value.strip() or len(value) > MAX_ANSWER_CHARS:
                continue
            if key != "solution" or len(value.split()) == 1 or _WHOLE_BOX.fullmatch(value.strip()):
                return key, value
    return None


def _responses(row: Mapping, where: str) -> list[FileResponse]:
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
    _check_number(len(texts), where)
    for text in texts:
        if not isinstance(text, str):
            raise KlearError(f"{where}: a response must be a text, got {type(text).__name__}")
        if len(text) > MAX_RESPONSE_CHARS:
            raise KlearError(
                f"{where}: a response has {len(text):,} characters, the limit is "
                f"{MAX_RESPONSE_CHARS:,}: sample it with a smaller budget"
            )
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


def _check_number(count: int, where: str) -> None:
    if count > MAX_RESPONSES:
        raise KlearError(
            f"{where}: a problem has more than {MAX_RESPONSES:,} responses: leave some out"
        )


def _each(row: Mapping, key: str, kind: type, count: int, is_list: bool, where: str) -> list:
    """The values of `key` for each of the row's responses, None where the row lacks it."""
    value = row.get(key)
    if value is None:
        return [None] * count
    values = value if is_list else [value]
    fits = isinstance(values, list) and len(values) == count
    if not fits or not all(type(v) is kind and 0 <= v < 2**63 for v in values):
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
    """See that all problems have the same number of responses, which all say the same of
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


def _check_golds(
    name: str, problems: Sequence[Problem], golds: Mapping[tuple[int, str, str], int]
) -> None:
    """See that the gold answers of the rows are the problems'."""
    found = [(problems[i], key, gold, line) for (i, key, gold), line in golds.items()]
    found = [row for row in found if row[0].answer is not None]
    verdicts = verify_answers(
        [f"\\boxed{{{unboxed(gold)}}}" for _, _, gold, _ in found],
        [p.answer if isinstance(p.answer, str) else list(p.answer) for p, _, _, _ in found],
        require_think=False,
        answer_form="equivalent",  # either may be written as 84/2
    )
    for (problem, key, gold, line), verdict in zip(found, verdicts, strict=True):
        if not verdict.correct:
            raise KlearError(
                f"{name} line {line} has the gold answer {gold[:60]!r} in {key}, the benchmark has "
                f"{problem.answer!r} for {problem.id!r}: the file is of another version of it, or "
                "that key needs another name"
            )
