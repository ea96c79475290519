"""Benchmarks by the names that people use, from the hub, from released files or from our own."""

from __future__ import annotations

from pathlib import Path

from klearlib.data.benchmarks import SIZES, Benchmark, read_benchmark
from klearlib.data.problems import iter_problems, read_problems
from klearlib.errors import KlearError, ParameterError, did_you_mean
from klearlib.records import Problem
from klearlib.verify.answers import has_no_match
from klearlib.verify.groups import is_code
from klearlib.verify.programs import ProgramJob

ALIASES = {
    "aime24": "aime_2024",
    "aime25": "aime_2025",
    "hmmt25": "hmmt_feb_2025",
    "lcb_v5": "livecodebench_v5",
    "lcb_v6": "livecodebench_v6",
}
"""Short names of `klearlib.data.benchmarks.SIZES`."""


def open_benchmark(
    name: str,
    location: Path | str | None = None,
    *,
    expected_size: int | None = None,
    source: str | None = None,
    **options: str,
) -> Benchmark:
    """The problems of a benchmark, each with an answer or tests; its known size is asserted.

    Args:
        name: an alias, a full name, or any name with a `location` that is a file in the suite's own
            format (`klearlib.data.problems`); that file may also stand here itself.
        location: a file or a folder; None reads a known benchmark from the hub.
        expected_size: the number of problems that there must be; None for the known one, if any.
        source, options: the data set whose schema a benchmark of one's own has; `split` and
            `config` of it.

    Raises:
        MissingAsset: nothing there. KlearError: an unknown name, a row that gives no problem, a
            problem without answer and tests, a duplicate, another number of problems.
    """
    full = ALIASES.get(name, name)
    if full not in SIZES and location is None and source is None:
        if not name.endswith(".jsonl"):
            raise ParameterError(
                f"no benchmark {name!r}; {did_you_mean(name, ALIASES)} Or name a file of problems "
                "with --data"
            )
        full, location = ALIASES.get(Path(name).stem, Path(name).stem), name
    size = expected_size if expected_size is not None else SIZES.get(full)
    if source or (full in SIZES and not _is_own_format(location)):
        return read_benchmark(full, location, expected_size=size, source=source, **options)
    problems = read_problems(Path(location).expanduser(), expected_size=size)
    _check_judgeable(problems)
    return Benchmark(full, tuple(problems), f"{full}: {len(problems)} problems of {location}")


def _check_judgeable(problems: list[Problem]) -> None:
    """KlearError for a problem of a user's own by which no response can be judged."""
    maths = [problem for problem in problems if not is_code(problem)]  # raises without either
    for problem in problems:
        try:
            if problem.tests:
                ProgramJob("", problem.tests, 1.0, 1, problem.entry_point, problem.preset)
        except KlearError as error:
            raise KlearError(f"problem {problem.id!r} cannot be judged: {error}") from error
        is_empty = not (problem.tests or (problem.golds and all(map(str.strip, problem.golds))))
        if is_empty or not problem.prompt.strip():
            what = "answer" if is_empty else "prompt"
            raise KlearError(f"problem {problem.id!r} has an empty {what}: correct it")
    for problem, fails in zip(maths, has_no_match([p.answer for p in maths]), strict=True):
        if fails:
            raise KlearError(
                f"problem {problem.id!r} has the answer {problem.answer!r:.80}, which the judge "
                "cannot read: correct it"
            )


def _is_own_format(location: Path | str | None) -> bool:
    """Whether a file's first line is a `Problem`, with no field that this has not."""
    path = Path(location or "").expanduser()
    try:
        return path.suffix == ".jsonl" and path.is_file() and bool(next(iter_problems(path)))
    except (KlearError, StopIteration):
        return False
