"""Judging the programs in responses: found, run against the problem's tests, and given a verdict.

The counterpart of `answers` for code; `programs` runs, `rewards` pays.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from klearlib.errors import KlearError
from klearlib.records import Problem, TestCase, Verdict
from klearlib.run.seeding import derive_seed
from klearlib.verify.extract import check_texts, read_response
from klearlib.verify.fences import last_code_block
from klearlib.verify.presets import USUAL_IMPORTS
from klearlib.verify.programs import ProgramJob, run_many

__all__ = ["USUAL_IMPORTS", "chosen_tests", "verify_programs"]


def chosen_tests(
    problem: Problem, *, max_tests: int | None = None, seed: int = 0
) -> tuple[TestCase, ...]:
    """At most `max_tests` of a problem's tests, in their order; None for all.

    The choice depends on the seed and the problem's id alone, so all responses of a group, and all
    groups of a run, meet the same tests (docs/deviations.md, D10). The released code samples anew
    for every response, and equal programs get unequal rewards. Raises KlearError for a problem
    without tests, or a `max_tests` below 1.

    >>> tests = tuple(TestCase(stdin=str(n), expected=str(n)) for n in range(20))
    >>> problem = Problem(id="echo", prompt="", tests=tests)
    >>> [test.stdin for test in chosen_tests(problem, max_tests=3)]
    ['5', '9', '18']
    """
    if not problem.tests:
        raise KlearError(f"problem {problem.id!r} has no tests to judge a program by")
    if max_tests is not None and max_tests < 1:
        raise KlearError(f"max_tests must be at least 1, or None for all, got {max_tests}")
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
    preset: str | None = None,
    prelude: str = "",
    workers: int | None = None,
    remember: bool = False,
) -> list[Verdict]:
    """Judge the programs of N responses, in order, each by the tests of its problem.

    The program is the last Python block after the last ``</think>``. A response without both think
    tags is ``bad_format`` and its program is not run, one without a closed block is ``no_answer``.
    Otherwise the verdict is ``correct`` where every chosen test passed; ``judge_error`` where the
    judge could not run one of them, which is never the program's mistake; and ``wrong``, which
    includes errors and exceeded limits. Equal programs for the same problem are run once.

    Args:
        responses: N generated texts, without their prompts. problems: the problem of each.
        prompts: N prompts, None for empty ones; one that ends with ``<think>`` counts as the
            opening tag of its response.
        require_think: False judges text without tags.
        truncated: that of `answers.verify_answers`; a program in such a response is not run.
        timeout_s, memory_mb: of `programs.run_tests`.
        max_tests, tests_seed: at most so many tests of a problem, see `chosen_tests`.
        preset: of `programs.run_tests`, for all programs; None for each problem's own.
        prelude: of `programs.run_tests`, such as `USUAL_IMPORTS`, for the programs of problems with
            an entry point; a script has to bring its own imports, or those of its preset.
        workers, remember: of `programs.run_many`.

    Returns:
        N verdicts; ``extracted`` is the program and ``report`` holds the outcome of each test.

    Raises:
        KlearError: lengths that differ, a problem without tests, a number out of range.
    """
    prompts = [""] * len(responses) if prompts is None else prompts
    truncated = [False] * len(responses) if truncated is None else truncated
    check_texts(
        len(responses),
        responses=responses,
        prompts=prompts,
        problems=problems,
        truncated=truncated,
    )
    readings = [read_response(*pair) for pair in zip(responses, prompts, strict=True)]
    tests = {
        problem: chosen_tests(problem, max_tests=max_tests, seed=tests_seed)
        for problem in dict.fromkeys(problems)
    }
    faults, sources = [], []
    for reading, cut in zip(readings, truncated, strict=True):
        is_formed = not require_think or (reading.has_think_open and reading.has_think_close)
        # the reason where nothing runs
        faults.append("truncated" if cut else "no_answer" if is_formed else "bad_format")
        sources.append(last_code_block(reading.text) if is_formed and not cut else None)
    jobs = (
        ProgramJob(
            source=source,
            tests=tests[problem],
            timeout_s=timeout_s,
            memory_mb=memory_mb,
            entry_point=problem.entry_point,
            preset=preset or problem.preset,
            prelude=prelude if problem.entry_point else "",  # a script brings its own imports
        )
        for source, problem in zip(sources, problems, strict=True)
        if source is not None
    )
    reports = iter(run_many(jobs, workers=workers, remember=remember))
    verdicts = []
    for reading, reason, source in zip(readings, faults, sources, strict=True):
        report = next(reports) if source is not None else None
        if report is not None and "judge_error" in report.outcomes:  # never the program's mistake
            reason = "judge_error"
        elif report is not None:
            reason = "correct" if set(report.outcomes) == {"passed"} else "wrong"
        tags = reading.has_think_open, reading.has_think_close
        verdicts.append(Verdict(reason == "correct", reason, source, *tags, report))
    return verdicts
