"""Responses that exist already, from a file: each one finds its problem, and none is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset
from klearlib.evaluate.response_rows import (
    FileResponse,
    gold_of,
    ids_of,
    prompts_of,
    responses_of,
    rows_of,
)
from klearlib.records import Problem
from klearlib.verify.answers import verify_answers
from klearlib.verify.extract import unboxed


def read_responses(
    path: Path, problems: Sequence[Problem], *, num_responses: int | None = None
) -> list[list[FileResponse]]:
    """n responses to each problem, in the order of `problems`, from a file of JSON lines.

    A row holds one response, or a list of all those of its problem. Its problem is found by
    ``problem_id``, with which a text of the row must agree; else by that text (`PROMPT_KEYS`, or
    the user's turns of ``messages``), which must be that of the problem, or hold it between words
    that are the same in all lines, such as an instruction; else, in a row without any text, by
    another of `ID_KEYS`. Ids may lack the benchmark's name in front. A key is looked for in the
    row, in ``meta`` and in ``meta.meta``, as the released evaluation nests them. The response is
    that of `RESPONSE_KEYS`, or the last turn of ``messages``, which must be the assistant's. A gold
    answer of the row (`GOLD_KEYS`) must be the benchmark's: another one shows another version of
    it.

    Args:
        path: ``.jsonl`` or ``.jsonl.gz``. num_responses: the n that there must be; None for any.

    Raises:
        MissingAsset: no such file.
        KlearError: a line that is no row, a response that is no text, a problem that is unknown,
            missing or given in two lists, an id and a text of two problems, another number of
            responses to one problem than to another, or another gold answer.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise MissingAsset(f"no file of responses at {path}: mend the path")
    finder = _ProblemFinder(problems)
    groups: list[list[FileResponse]] = [[] for _ in problems]
    whole: set[int] = set()  # problems whose row had a list
    golds: dict[tuple[int, str, str], int] = {}
    for number, row in rows_of(path):
        where = f"{path.name} line {number}"
        found = responses_of(row, where)  # first, as a row that failed may lack the rest as well
        index = finder.find(row, where)
        if index in whole or (len(found) > 1 and groups[index]):
            raise KlearError(
                f"{where}: the responses to {problems[index].id!r} are in an earlier line already: "
                "a list must hold all of them"
            )
        if len(found) > 1:
            whole.add(index)
        groups[index].extend(found)
        if gold := gold_of(row):
            golds.setdefault((index, *gold), number)
    if not any(groups):
        raise KlearError(f"{path.name} holds no responses")
    _check_counts(path.name, problems, groups, num_responses)
    _check_golds(path.name, problems, golds)
    _check_known(path.name, groups)
    return groups


class _ProblemFinder:
    """Finds the problem of a row by its id or its text."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._problems = problems
        self._by_id: dict[str, int] = {problem.id: i for i, problem in enumerate(problems)}
        for i, problem in enumerate(problems):
            # Ids of the benchmarks of `read_benchmark` begin with its name.
            for prefix in _prefixes(problem.id):
                self._by_id.setdefault(problem.id.removeprefix(prefix), i)
        self._texts = [_words(problem.prompt) for problem in problems]
        self._known: dict[tuple[str, ...], int] = {}
        self._agree: set[tuple[str, tuple[str, ...], str]] = set()
        self._frame: tuple[str, str] | None = None  # what stands around each problem's text

    def find(self, row: Mapping, where: str) -> int:
        ids = ids_of(row)
        texts = tuple(map(_words, prompts_of(row)))
        if "problem_id" in ids:
            return self._by_given_id(ids["problem_id"], row, bool(texts), where)
        if texts:
            if texts not in self._known:
                self._known[texts] = self._by_texts(texts, where)
            return self._known[texts]
        found = [self._by_id[value] for value in ids.values() if value in self._by_id]
        if found:
            return found[0]
        if ids:
            raise KlearError(f"{where}: the benchmark has no problem {next(iter(ids.values()))!r}")
        raise KlearError(
            f"{where} names no problem: give it a problem_id, or its text as problem or prompt"
        )

    def _by_given_id(self, problem_id: str, row: Mapping, has_text: bool, where: str) -> int:
        index = self._by_id.get(problem_id)
        mend = "mend problem_id, or leave it out, then the text of the row tells its problem"
        if index is None:
            fix = f": {mend}" if has_text else ""
            raise KlearError(f"{where}: the benchmark has no problem {problem_id!r}{fix}")
        texts = tuple(map(_words, prompts_of(row, rendered=False)))
        rendered = _words(row["prompt"]) if isinstance(row.get("prompt"), str) else ""
        if (problem_id, texts, rendered) in self._agree:
            return index
        for text in texts:
            if index not in self._of_text(text):
                raise KlearError(
                    f"{where} has problem_id {problem_id!r} and the text of another problem, "
                    f"{text[:60]!r}: {mend}"
                )
        # A template may rewrite the text in it, which is then no problem's.
        if rendered and index not in (self._of_text(rendered, whole=True) or [index]):
            raise KlearError(
                f"{where} has problem_id {problem_id!r} and a prompt that asks another problem, "
                f"{rendered[:60]!r}: {mend}"
            )
        self._agree.add((problem_id, texts, rendered))
        return index

    def _of_text(self, text: str, *, whole: bool = False) -> list[int]:
        """The problems that a text can be of: all of it, or else held by it, or part of theirs.

        whole: a part of a problem is none of it.
        """
        if same := [i for i, known in enumerate(self._texts) if known == text]:
            return same
        if held := [i for i, known in enumerate(self._texts) if known and known in text]:
            # The longest: one problem may be the beginning of another.
            longest = max(len(self._texts[i]) for i in held)
            return [i for i in held if len(self._texts[i]) == longest]
        return [] if whole else [i for i, known in enumerate(self._texts) if text in known]

    def _by_texts(self, texts: tuple[str, ...], where: str) -> int:
        for text in texts:
            if self._texts.count(text) == 1:
                return self._texts.index(text)
        for text in texts:
            held = [i for i, known in enumerate(self._texts) if known and known in text]
            if not held:
                continue
            # The longest: one problem may be the beginning of another.
            index = max(held, key=lambda i: len(self._texts[i]))
            before, _, after = text.partition(self._texts[index])
            if self._texts.count(self._texts[index]) == 1:
                self._frame = self._frame or (before, after)
                if self._frame == (before, after):
                    return index
        raise KlearError(
            f"{where} is of a problem that the benchmark does not have: {texts[0][:60]!r}"
        )


def _prefixes(problem_id: str) -> Iterator[str]:
    from klearlib.data.benchmarks import SIZES

    for name in (*SIZES, "livecodebench"):
        if problem_id.startswith(f"{name}-"):
            yield f"{name}-"


def _words(text: str) -> str:
    return " ".join(text.split())


def _check_counts(
    name: str,
    problems: Sequence[Problem],
    groups: Sequence[Sequence[FileResponse]],
    num_responses: int | None,
) -> None:
    missing = [p.id for p, group in zip(problems, groups, strict=True) if not group]
    if missing:
        raise KlearError(
            f"{name} has no response to {len(missing)} of {len(problems)} problems, the first is "
            f"{missing[0]!r}: a score over fewer problems is another benchmark"
        )
    by_count = defaultdict(list)
    for problem, group in zip(problems, groups, strict=True):
        by_count[len(group)].append(problem.id)
    usual = num_responses or max(by_count, key=lambda count: (len(by_count[count]), count))
    if others := sorted(set(by_count) - {usual}):
        reason = "as --n says" if num_responses else "as for most of the problems"
        if num_responses and len(by_count) == 1:
            reason += f": give --n {others[0]}, or leave it out"
        raise KlearError(
            f"{name} has {others[0]} responses to {by_count[others[0]][0]!r} and must have "
            f"{usual}, {reason}"
        )


def _check_golds(
    name: str, problems: Sequence[Problem], golds: Mapping[tuple[int, str, str], int]
) -> None:
    found = [(problems[i], key, gold, line) for (i, key, gold), line in golds.items()]
    found = [row for row in found if row[0].answer is not None]
    verdicts = verify_answers(
        [f"\\boxed{{{unboxed(gold)}}}" for _, _, gold, _ in found],
        [_gold(problem) for problem, _, _, _ in found],
        require_think=False,
    )
    for (problem, key, gold, line), verdict in zip(found, verdicts, strict=True):
        if not verdict.correct:
            raise KlearError(
                f"{name} line {line} has the gold answer {gold[:60]!r} in {key}, the benchmark has "
                f"{problem.answer!r} for {problem.id!r}: the file is of another version of it, or "
                "that key needs another name"
            )


def _gold(problem: Problem) -> str | list[str]:
    return problem.answer if isinstance(problem.answer, str) else list(problem.answer)


def _check_known(name: str, groups: Sequence[Sequence[FileResponse]]) -> None:
    for key in ("truncated", "num_tokens"):
        known = [getattr(r, key) is not None for group in groups for r in group]
        if any(known) and not all(known):
            raise KlearError(
                f"{name} gives {key} for {sum(known)} of {len(known)} responses: give it for all "
                "of them or for none"
            )
