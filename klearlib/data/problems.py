"""Files of problems, from curation to training and evaluation: one JSON object a line, with the
fields of `klearlib.records.Problem`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from klearlib.data.lines import write_lines
from klearlib.errors import KlearError, MissingAsset, ParameterError
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


def refuse_doubled(name: str, problems: Iterable[Problem]) -> None:
    """KlearError where problems of `name`, a file or a benchmark, share an id: each counts once."""
    ids = [problem.id for problem in problems]
    if twice := len(ids) - len(set(ids)):
        raise KlearError(f"{name} has {twice} duplicate problem ids: remove them")


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
        raise KlearError(f"{path.name} has no problems")
    refuse_doubled(path.name, problems)
    if expected_size is not None and len(problems) != expected_size:
        raise KlearError(
            f"{path.name} must hold {expected_size} problems, got {len(problems)}: scores "
            "would not be comparable"
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
        if isinstance(row.get("answer"), list):
            row["answer"] = tuple(row["answer"])
        row["tests"] = tuple(TestCase(**test) for test in row.get("tests", ()))
        return Problem(**row)
    # The last two: no object, or one with a field that is unknown or without one that is needed.
    except (ValueError, TypeError, AttributeError) as error:
        raise KlearError(f"{path.name} line {number} is not a problem: {error}") from error
