"""Judging the programs in responses: found, run against the problem's tests, and given a verdict.

The counterpart of `answers` for code; `programs` runs, `rewards` pays.
"""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from klearlib.errors import KlearError
from klearlib.records import Problem, TestCase, TestReport, Verdict
from klearlib.run.seeding import derive_seed
from klearlib.verify.extract import check_texts, last_code_block, read_response
from klearlib.verify.programs import ProgramJob, run_many

USUAL_IMPORTS = """\
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math
import operator, os, random, re, statistics, string, sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict, deque
from functools import cache, cmp_to_key, lru_cache, reduce
from heapq import heapify, heappop, heappush, nlargest, nsmallest
from itertools import accumulate, combinations, groupby, pairwise, permutations, product
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, lcm, sqrt
from typing import *
"""
"""The imports that graders put before every program (LiveCodeBench and the released code: these and
more), so that ``List[int]`` of LeetCode's starter code needs none of its own."""


@dataclass(frozen=True)
class ProgramReading:
    """What a response holds: the source of its program, or None and the reason why there is none,
    ``bad_format`` or ``no_answer``. `reason` is None where there is a source."""

    source: str | None
    reason: str | None
    has_think_open: bool
    has_think_close: bool


def read_programs(
    responses: Sequence[str], *, prompts: Sequence[str] | None = None, require_think: bool = True
) -> list[ProgramReading]:
    """Find the programs of N responses: the last Python block after the last ``</think>``.

    Args:
        responses: N generated texts, without their prompts.
        prompts: N prompts, None for empty ones; one that ends with ``<think>`` counts as the
            opening tag of its response.
        require_think: both think tags must be there, ``bad_format`` otherwise.

    >>> text = "<think>easy</think>\\n```python\\nprint(input())\\n```"
    >>> [r.source or r.reason for r in read_programs([text, text[7:], "<think></think>Done."])]
    ['print(input())', 'bad_format', 'no_answer']
    """
    prompts = [""] * len(responses) if prompts is None else prompts
    check_texts(len(responses), responses=responses, prompts=prompts)
    return [_read(r, p, require_think) for r, p in zip(responses, prompts, strict=True)]


def chosen_tests(
    problem: Problem, *, max_tests: int | None = None, seed: int = 0
) -> tuple[TestCase, ...]:
    """At most `max_tests` of a problem's tests, in their order; None for all.

    The choice depends on the seed and the problem's id alone, so all responses of a group, and all
    groups of a run, meet the same tests (docs/deviations.md, D10). The released code samples anew
    for every response, and equal programs get unequal rewards.

    Raises:
        KlearError: a problem without tests, or a `max_tests` below 1.

    >>> tests = tuple(TestCase(stdin=str(n), expected=str(n)) for n in range(20))
    >>> problem = Problem(id="echo", prompt="", tests=tests)
    >>> [test.stdin for test in chosen_tests(problem, max_tests=3)]
    ['5', '9', '18']
    """
    if not problem.tests:
        raise KlearError(f"problem {problem.id!r} has no tests to judge a program by")
    if max_tests is not None and max_tests < 1:
        raise KlearError(f"max_tests must be at least 1, or None for all, got {max_tests}")
    if max_tests is None or max_tests >= len(problem.tests):
        return problem.tests
    chooser = random.Random(derive_seed(seed, "tests", problem.id))
    chosen = sorted(chooser.sample(range(len(problem.tests)), max_tests))
    return tuple(problem.tests[i] for i in chosen)


def verify_programs(
    responses: Sequence[str],
    problems: Sequence[Problem],
    *,
    prompts: Sequence[str] | None = None,
    require_think: bool = True,
    timeout_s: float,
    memory_mb: int,
    max_tests: int | None = None,
    tests_seed: int = 0,
    prelude: str = "",
    workers: int | None = None,
    remember: bool = False,
) -> list[Verdict]:
    """Judge the programs of N responses, in order, each by the tests of its problem.

    A response without both think tags is ``bad_format`` and its program is not run, one without a
    closed Python block is ``no_answer``. Otherwise the verdict is ``correct`` where every chosen
    test passed; ``judge_error`` where the judge could not run one of them, which is never the
    program's mistake; and ``wrong``, which includes errors and exceeded limits. Equal programs for
    the same problem are run once.

    Args:
        responses: N generated texts, without their prompts.
        problems: N problems, one for each response.
        prompts: N prompts, see `read_programs`.
        require_think: False judges text without tags, as other benchmarks' formats need it.
        timeout_s: seconds for one test.
        memory_mb: mebibytes for the program.
        max_tests: at most this many tests of a problem, see `chosen_tests`; None for all.
        tests_seed: the seed of that choice.
        prelude: Python statements run before the programs of problems with an entry point, such as
            `USUAL_IMPORTS`; a script has to bring its own imports. They stand behind the program's
            own ``from __future__`` imports, and are no part of ``extracted``.
        workers, remember: of `programs.run_many`.

    Returns:
        N verdicts; ``extracted`` is the program and ``report`` holds the outcome of each test.

    Raises:
        KlearError: lengths that differ, a problem without tests, a number out of range.
    """
    readings = read_programs(responses, prompts=prompts, require_think=require_think)
    check_texts(len(responses), problems=problems)
    tests = {
        problem: chosen_tests(problem, max_tests=max_tests, seed=tests_seed)
        for problem in dict.fromkeys(problems)
    }
    jobs = (
        ProgramJob(
            source=_with_prelude(reading.source, prelude if problem.entry_point else ""),
            tests=tests[problem],
            timeout_s=timeout_s,
            memory_mb=memory_mb,
            entry_point=problem.entry_point,
        )
        for reading, problem in zip(readings, problems, strict=True)
        if reading.source is not None
    )
    reports = iter(run_many(jobs, workers=workers, remember=remember))
    return [_verdict(r, next(reports) if r.source is not None else None) for r in readings]


def _read(response: str, prompt: str, require_think: bool) -> ProgramReading:
    reading = read_response(response, prompt)
    tags = (reading.has_think_open, reading.has_think_close)
    if require_think and not all(tags):
        return ProgramReading(None, "bad_format", *tags)
    source = last_code_block(reading.text)
    return ProgramReading(source, None if source is not None else "no_answer", *tags)


def _with_prelude(source: str, prelude: str) -> str:
    if not prelude.strip():
        return source
    if "__future__" not in source:
        return f"{prelude.rstrip()}\n{source}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's own escapes
            body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source  # the run says what is wrong with it
    last = max(
        (n.end_lineno for n in body if isinstance(n, ast.ImportFrom) and n.module == "__future__"),
        default=0,
    )
    lines = source.split("\n")
    return "\n".join([*lines[:last], prelude.rstrip(), *lines[last:]])


def _verdict(reading: ProgramReading, report: TestReport | None) -> Verdict:
    if report is None:
        reason = reading.reason
    elif "judge_error" in report.outcomes:
        reason = "judge_error"
    else:
        reason = "correct" if set(report.outcomes) == {"passed"} else "wrong"
    return Verdict(
        correct=reason == "correct",
        reason=reason,
        extracted=reading.source,
        has_think_open=reading.has_think_open,
        has_think_close=reading.has_think_close,
        report=report,
    )
