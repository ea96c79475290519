"""Files of problems, from curation to training and evaluation: one JSON object a line, with the
fields of `klearlib.records.Problem`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any

from klearlib.data.lines import write_lines
from klearlib.errors import KlearError, MissingAsset, ParameterError, did_you_mean
from klearlib.records import Problem, TestCase


def write_problems(problems: Iterable[Problem], path: Path) -> int:
    """One line for each problem; their number."""
    return write_lines(map(asdict, problems), path)


def sha256_of(problems: Iterable[Problem]) -> str:
    """By which problems are known again, in hexadecimal digits."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(json.dumps(asdict(problem), sort_keys=True).encode())
    return digest.hexdigest()


def read_problems(path: Path, *, expected_size: int | None = None) -> list[Problem]:
    """The problems of a file.

    expected_size: the number of problems that a benchmark is known to have. A score over fewer
    would look like a score.

    Raises:
        MissingAsset: no such file.
        KlearError: a line that is no problem, an empty file, a duplicate id, another size.
    """
    problems = list(iter_problems(path))
    if not problems:
        raise KlearError(f"{path.name} holds no problems")
    if num_same := len(problems) - len({problem.id for problem in problems}):
        raise KlearError(f"{path.name} holds {num_same} problems with the id of another")
    if expected_size is not None and len(problems) != expected_size:
        raise KlearError(
            f"{path.name} must hold {expected_size} problems, got {len(problems)}: a score over "
            "another number of problems is another benchmark"
        )
    return problems


def iter_problems(path: Path) -> Iterator[Problem]:
    """The problems of a file in order, one at a time; MissingAsset where there is none."""
    if not path.is_file():
        raise MissingAsset(
            f"no problem file at {path}; run the stage that makes it, or correct the path"
        )

    with path.open("rb") as file:  # bytes: text also ends at U+2028, which JSON leaves inside
        for number, line in enumerate(file, start=1):
            yield _problem(line, number, path)


def first_of_both(files: Mapping[str, Path], count: int) -> list[Problem]:
    """`count` problems, half of each of two files by world, the first ones; ids begin with the
    world's name. ParameterError for an odd number, or more than there are."""
    half, odd = divmod(count, 2)
    found = []
    for name, path in files.items():
        problems = read_problems(path)
        if odd or half > len(problems):
            raise ParameterError(
                f"num_validation must be even and at most {2 * len(problems)}, twice what the "
                f"{name} world has, got {count}"
            )
        found += [replace(problem, id=f"{name}-{problem.id}") for problem in problems[:half]]
    return found


def _problem(line: bytes, number: int, path: Path) -> Problem:
    try:
        row = json.loads(line.decode("utf-8-sig"))
        if isinstance(row, dict):
            tests = row.get("tests", [])
            if not isinstance(tests, list):
                raise ValueError(f"tests must be a list, got {tests!r}")
            row["tests"] = tuple(_made(TestCase, test, "a test") for test in tests)
            if isinstance(row.get("answer"), list):
                row["answer"] = tuple(row["answer"])
        return _made(Problem, row, "a problem")
    except ValueError as error:
        raise KlearError(f"{path.name} line {number} is not a problem: {error}") from error


def _made(record: type, row: object, what: str) -> Any:
    """A `Problem` or a `TestCase`; ValueError for a field that it has not or that lacks, and for a
    value of another kind."""
    if not isinstance(row, dict):
        raise ValueError(f"{what} must be an object, got {row!r}")
    known = {field.name: field.default for field in fields(record)}
    for name, default in known.items():
        if default is MISSING and name not in row:
            raise ValueError(f"{what} needs {name!r}")
    for name, value in row.items():
        if name not in known:
            raise ValueError(f"{what} has no {name!r}; {did_you_mean(name, known)}")
        kind, word = (int, "a whole number") if name == "difficulty" else (str, "a text")
        kind = TestCase if name == "tests" else kind
        values = value if isinstance(value, tuple) else (value,)
        if value is not known[name] and not all(type(each) is kind for each in values):
            raise ValueError(f"{name} must be {word}, got {value!r}")
    return record(**row)
