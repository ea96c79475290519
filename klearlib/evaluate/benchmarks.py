"""Problem files, and benchmarks that assert their size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset
from klearlib.records import Problem, TestCase


def write_problems(problems: Iterable[Problem], path: Path) -> None:
    """One JSON line for each problem, fields as in `klearlib.records.Problem`."""
    with path.open("w", encoding="utf-8") as file:
        for problem in problems:
            file.write(json.dumps(asdict(problem), ensure_ascii=False) + "\n")


def read_problems(path: Path, *, expected_size: int | None = None) -> list[Problem]:
    """The problems of a file that `write_problems` wrote.

    Args:
        expected_size: the number of problems that a benchmark is known to have. A score over fewer
            would look like a score.

    Raises:
        MissingAsset: no such file.
        KlearError: a line that is no problem, an empty file, a duplicate id, another size.
    """
    if not path.is_file():
        raise MissingAsset(
            f"no problem file at {path}; run the stage that makes it, or mend the path"
        )
    problems = []
    # Not splitlines(): it also cuts at U+2028 and U+0085, which JSON leaves inside a line.
    with path.open("rb") as file:
        lines = list(file)
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            tests = tuple(TestCase(**test) for test in row.pop("tests", ()))
            answer = row.pop("answer", None)
            answer = tuple(answer) if isinstance(answer, list) else answer
            problems.append(_checked(Problem(**row, answer=answer, tests=tests)))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise KlearError(f"{path.name} line {number} is no problem: {error}") from error
    ids = {problem.id for problem in problems}
    if not problems:
        raise KlearError(f"{path.name} holds no problems")
    if len(ids) != len(problems):
        raise KlearError(
            f"{path.name} holds {len(problems) - len(ids)} problems with the id of another"
        )
    if expected_size is not None and len(problems) != expected_size:
        raise KlearError(
            f"{path.name} must hold {expected_size} problems, got {len(problems)}: a score over "
            "another number of problems is another benchmark"
        )
    return problems


def _checked(problem: Problem) -> Problem:
    """The problem; TypeError where a field that is a text everywhere else is none."""
    answers = problem.answer if isinstance(problem.answer, tuple) else (problem.answer or "",)
    for name, texts in (("id", (problem.id,)), ("prompt", (problem.prompt,)), ("answer", answers)):
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"{name} must be a text, got {text!r}")
    return problem
