"""Judging the programs in responses: found, run against the problem's tests, and given a verdict.

The counterpart of `answers` for code; `programs` runs, `rewards` pays.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from klearlib.errors import KlearError
from klearlib.records import Problem, TestCase, Verdict
from klearlib.run.seeding import derive_seed
from klearlib.verify.extract import read_responses
from klearlib.verify.fences import last_code_block
from klearlib.verify.presets import USUAL_IMPORTS
from klearlib.verify.programs import ProgramJob, run_many

__all__ = ["chosen_tests", "verify_programs"]


def chosen_tests(
    problem: Problem, *, max_tests: int | None = None, seed: int = 0
) -> tuple[TestCase, ...]:
    """At most `max_tests` of a problem's tests, in their order; None for all.

    The choice depends on the seed and the problem's id alone, so all responses of a group, and all
    groups of a run, meet the same tests (docs/deviations.md, D10). The released code samples anew
    for every response, and equal programs get unequal rewards. Raises KlearError for a problem
    without tests.

    >>> tests = tuple(TestCase(stdin=str(n), expected=str(n)) for n in range(20))
    >>> problem = Problem(id="echo", prompt="", tests=tests)
    >>> [test.stdin for test in chosen_tests(problem, max_tests=3)]
    ['5', '9', '18']
    """
    if not problem.tests:
        raise KlearError(f"problem {problem.id!r} has no tests to judge a program by")
    if max_tests is None or max_tests >= len(problem.tests):  # all of them, in their order
        return problem.tests
    # not the seed alone: problems would share places
    chooser = random.Random(derive_seed(seed, "tests", problem.id))
    chosen = sorted(chooser.sample(range(len(problem.tests)), max_tests))
    return tuple(problem.tests[i] for i in chosen)


def verify_programs(
    responses: Sequence[str],
    problems: Sequence[Problem],
    *,
    prompts: Sequence[str] | None = None,
    require_think: bool = True,
    truncated: Sequence[bool] | None = None,
    timeout_s: float,
    memory_mb: int,
    max_tests: int | None = None,
    tests_seed: int = 0,
) -> list[Verdict]:
    """Judge the programs of N responses, in order, each by the tests of its problem.

    The program is the last Python block after the last ``</think>``. A response without both think
    tags is ``bad_format`` and its program is not run, one without a closed block is ``no_answer``.
    Otherwise the verdict is ``correct`` where every chosen test passed; ``judge_error`` where the
    judge could not run one of them, which is never the program's mistake; and ``wrong``, which
    includes errors and exceeded limits. Equal programs for the same problem are run once.

    Programs of problems with an entry point find `USUAL_IMPORTS`; a script has to bring its own
    imports, or those of its problem's preset.

    Args:
        responses: N generated texts, without their prompts. problems: the problem of each.
        prompts: N prompts, None for empty ones; one that ends with ``<think>`` counts as the
            opening tag of its response.
        require_think: False judges text without tags.
        truncated: that of `answers.verify_answers`; a program in such a response is not run.
        timeout_s, memory_mb: of `programs.run_tests`.
        max_tests, tests_seed: at most so many tests of a problem, see `chosen_tests`.

    Returns:
        N verdicts; ``extracted`` is the program and ``report`` holds the outcome of each test.

    Raises:
        KlearError: lengths that differ, a problem without tests, a number out of range.
    """
    readings = read_responses(
        responses,
        prompts=prompts,
        truncated=truncated,
        require_think=require_think,
        problems=problems,
    )
    tests = {
        problem: chosen_tests(problem, max_tests=max_tests, seed=tests_seed)
        for problem in dict.fromkeys(problems)
    }
    sources = [None if fault else last_code_block(reading.text) for reading, fault in readings]
    jobs = [
        ProgramJob(
            source=source,
            tests=tests[problem],
            timeout_s=timeout_s,
            memory_mb=memory_mb,
            entry_point=problem.entry_point,
            preset=problem.preset,
            prelude=USUAL_IMPORTS if problem.entry_point else "",  # a script brings its own imports
        )
        for source, problem in zip(sources, problems, strict=True)
        if source is not None
    ]
    reports = iter(run_many(jobs, remember=True))
    verdicts = []
    for (reading, fault), source in zip(readings, sources, strict=True):
        report = next(reports) if source is not None else None
        if report is None:
            reason = fault or "no_answer"
        elif "judge_error" in report.outcomes:  # never the program's mistake
            reason = "judge_error"
        else:
            reason = "correct" if set(report.outcomes) == {"passed"} else "wrong"
        tags = reading.has_think_open, reading.has_think_close
        verdicts.append(Verdict(reason == "correct", reason, source, *tags, report))
    return verdicts
