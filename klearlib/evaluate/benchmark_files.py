"""Benchmarks by the names that people use, from the hub, from released files or from our own."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

from klearlib.data.benchmarks import SIZES, Benchmark, read_benchmark
from klearlib.data.code_tests import USUAL, assert_tests, entry_point
from klearlib.data.problems import iter_problems, read_problems
from klearlib.data.rows import is_sentence
from klearlib.errors import KlearError, ParameterError, did_you_mean
from klearlib.records import Problem
from klearlib.verify.answers import has_no_match
from klearlib.verify.extract import MAX_ANSWER_CHARS, unboxed
from klearlib.verify.groups import is_code
from klearlib.verify.plain import plain_text
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
    path = Path(location).expanduser()
    if path.is_file() and path.suffix != ".jsonl":
        raise ParameterError(
            f"{location} is not a .jsonl file of problems: unpack it, or write one problem a line"
        )
    problems = tuple(map(_usable, read_problems(path, expected_size=size)))
    asked = [problem for problem in problems if problem.answer is not None]
    for problem, fails in zip(asked, has_no_match([p.answer for p in asked]), strict=True):
        if fails:
            raise KlearError(
                f"problem {problem.id!r} has the answer {problem.answer!r:.80}, which the judge "
                "cannot read: correct it"
            )
    return Benchmark(full, problems, f"{full}: {len(problems)} problems of {location}")


def _usable(problem: Problem) -> Problem:
    """A problem of a user's own, whose tests by statements import what they use of the usual
    modules: the program would be asked for it. KlearError if no response can be judged by it."""
    fault = "" if problem.prompt.strip() else "an empty prompt"
    if not is_code(problem):  # raises if there is nothing to judge by
        answers = [problem.answer] if isinstance(problem.answer, str) else problem.answer
        if not answers or not all(plain_text(unboxed(answer)) for answer in answers):
            fault = "an empty answer"
        elif any(map(is_sentence, answers)):
            fault = "a whole sentence for an answer, with which no response can be compared"
        elif max(map(len, answers)) > MAX_ANSWER_CHARS:
            fault = f"an answer of more than {MAX_ANSWER_CHARS} characters, which none can equal"
    if fault:
        raise KlearError(f"problem {problem.id!r} has {fault}: correct it")
    try:
        return _usable_program(problem) if problem.tests else problem
    except (KlearError, SyntaxError) as error:
        raise KlearError(f"problem {problem.id!r} cannot be judged: {error}: correct it") from error


def _usable_program(problem: Problem) -> Problem:
    ProgramJob("", problem.tests, 1.0, 1, problem.entry_point, problem.preset)  # checks the tests
    if all(test.kind == "stdin" for test in problem.tests):
        return problem
    name = entry_point(problem.entry_point)
    tests, is_called = [], False
    for test in problem.tests:
        if test.asserts is None:
            is_called = True
        else:
            nodes = ast.walk(ast.parse(test.asserts, "asserts"))
            used = {node.id for node in nodes if isinstance(node, ast.Name)}
            is_called = is_called or bool(used & {name, "candidate", "Solution"})
            if "__future__" not in test.asserts:  # which must stay the first
                # Names other than the usual ones are left to the program.
                own = "\n".join(f"def {each}(): ..." for each in used - {*USUAL})
                (test,), _ = assert_tests(test.asserts, "tests", reference=own, entry_point=name)
        tests.append(test)
    if not is_called:
        raise KlearError(f"no test calls {name}")
    return replace(problem, tests=tuple(tests), entry_point=name)


def _is_own_format(location: Path | str | None) -> bool:
    """Whether a file's first line is a `Problem`, with no field that this has not."""
    path = Path(location or "").expanduser()
    try:
        return path.suffix == ".jsonl" and path.is_file() and bool(next(iter_problems(path)))
    except (KlearError, StopIteration):
        return False
