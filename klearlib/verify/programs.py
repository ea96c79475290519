"""Judging programs by their tests, in a sandbox: outcomes, pass rates, batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klearlib.errors import KlearError
from klearlib.records import TestCase, TestReport
from klearlib.verify import MAX_MEMORY_MB, MAX_TIMEOUT_S, program_judge
from klearlib.verify.pool import ask
from klearlib.verify.presets import PRESETS
from klearlib.verify.sandbox import active_tier
from klearlib.verify.sandbox_server import MAX_STRETCH

__all__ = ["ProgramJob", "run_many", "run_tests"]

_SLACK_S = 60.0
_MOST_REMEMBERED = 20_000
# What another run of the same program may not give.
_UNSETTLED = {"time_limit", "memory_limit", "output_limit", "judge_error"}
_remembered: dict[bytes, TestReport] = {}


@dataclass(frozen=True)
class ProgramJob:
    """A program and all that its judgement depends on; see `run_tests` for the fields.

    Raises KlearError where a field is out of range or a test cannot be run.
    """

    source: str
    tests: tuple[TestCase, ...]
    timeout_s: float
    memory_mb: int
    entry_point: str | None = None
    preset: str = "python"
    prelude: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tests", tuple(self.tests))
        if not isinstance(self.source, str):
            raise KlearError(f"source must be a string, got {type(self.source).__name__}")
        if not 0 < self.timeout_s <= MAX_TIMEOUT_S:
            raise KlearError(
                f"timeout_s must be a positive number of seconds, at most {MAX_TIMEOUT_S:g}, "
                f"got {self.timeout_s}"
            )
        if type(self.memory_mb) is not int or not 0 < self.memory_mb <= MAX_MEMORY_MB:
            raise KlearError(
                f"memory_mb must be a positive integer, at most {MAX_MEMORY_MB}, "
                f"got {self.memory_mb!r}"
            )
        if self.preset not in PRESETS:
            raise KlearError(f"preset must be one of {', '.join(PRESETS)}, got {self.preset!r}")
        for index, test in enumerate(self.tests):
            _check_test(index, test, self.entry_point)


def run_tests(
    source: str,
    tests: Sequence[TestCase],
    *,
    timeout_s: float,
    memory_mb: int,
    entry_point: str | None = None,
    preset: str = "python",
    prelude: str = "",
) -> TestReport:
    """Run one program on all its tests; see `run_many`, which is faster for many.

    Every test gets a process of its own in the sandbox of `sandbox.active_tier`: an empty folder,
    no network, no other processes, the standard library and the installed packages to import, the
    same seed for `random`. What a test expects never enters that process.

    - By stdin, the program runs as ``__main__``; it passes if it exits with status 0 and printed
      what is expected (`compare.same_output`).
    - By call, its entry point is called with the JSON arguments in the child; the result comes back
      as JSON and is compared outside (`compare.same_value`). Tuples count as lists.
    - By asserts, the program serves calls in one process and the test code runs in another, where
      the entry point, ``candidate``, and the program's other functions are proxies.

    Args:
        source: Python source.
        tests: all of them are run, whatever fails.
        timeout_s: wall-clock seconds for one test. Time in which the program was ready to run and
            had no core does not count, up to five times the limit.
        memory_mb: address space for one test, on top of what Python needs.
        entry_point: the function, or the method of a class ``Solution``, for tests by call and by
            asserts.
        preset: a name of `presets.PRESETS`: ``"lcb"`` has the imports, the recursion limit and the
            long integers of LiveCodeBench's grader.
        prelude: Python statements run before the program, after the preset's own. Lines in
            messages are counted without them.

    Returns:
        One word of `records.OUTCOMES` for each test. ``judge_error`` is the judge's own failure.

    Raises:
        KlearError: a number out of range, a test that cannot be run.
        MissingAsset: no sandbox works on this machine.

    >>> tests = [TestCase(stdin="3", expected="9"), TestCase(stdin="4", expected="15")]
    >>> run_tests("print(int(input()) ** 2)", tests, timeout_s=5.0, memory_mb=256).outcomes
    ('passed', 'wrong_answer')
    """
    job = ProgramJob(source, tuple(tests), timeout_s, memory_mb, entry_point, preset, prelude)
    return run_many([job], workers=1)[0]


def run_many(
    jobs: Iterable[ProgramJob | Mapping],
    *,
    workers: int | None = None,
    remember: bool = False,
) -> list[TestReport]:
    """Run many programs on their tests, side by side; the reports are in the jobs' order.

    Equal jobs are run once.

    Args:
        jobs: `ProgramJob` or mappings of its fields.
        workers: how many judge processes this Python process may grow to; None for one per usable
            core, up to `pool.MAX_DEFAULT_WORKERS`. They stay till `pool.close_pool`.
        remember: take the report of an equal job that an earlier such call of this Python process
            ran, where no limit and no failure of the judge was involved; a policy writes the same
            programs many times.

    Raises:
        KlearError, MissingAsset: as `run_tests`; nothing is run then.

    >>> job = ProgramJob("print(1)", [TestCase("1", stdin="")], timeout_s=5.0, memory_mb=256)
    >>> [report.pass_rate for report in run_many([job, job])]
    [1.0, 1.0]
    """
    keys: list[bytes] = []
    distinct: dict[bytes, ProgramJob] = {}
    for job in jobs:
        if not isinstance(job, ProgramJob):
            try:
                job = ProgramJob(**job)
            except TypeError as error:
                raise KlearError(f"a job needs the fields of ProgramJob: {error}") from None
        keys.append(hashlib.sha256(repr(job).encode("utf-8", "backslashreplace")).digest())
        distinct[keys[-1]] = job
    reports = {key: TestReport.of([]) for key, job in distinct.items() if not job.tests}
    if remember:
        reports |= {key: report for key in distinct if (report := _remembered.get(key))}
    asked = {key: job for key, job in distinct.items() if key not in reports}
    # the sandbox keeps the clock; this one is for a judge that hangs
    judging = [
        (_request(job), len(job.tests) * (2 * MAX_STRETCH * job.timeout_s + _SLACK_S))
        for job in asked.values()
    ]
    replies = ask(program_judge.__name__, judging, workers=workers)
    for (key, job), reply in zip(asked.items(), replies, strict=True):
        if "outcomes" not in reply:
            num, lost = len(job.tests), "judge processes kept dying"
            reply = {"outcomes": ["judge_error"] * num, "messages": [lost] * num}
        reports[key] = report = TestReport.of(reply["outcomes"], reply["messages"])
        if remember and not _UNSETTLED & set(report.outcomes):
            if len(_remembered) >= _MOST_REMEMBERED:
                _remembered.clear()
            _remembered[key] = report
    return [reports[key] for key in keys]


def _request(job: ProgramJob) -> dict:
    tests = [
        {"kind": test.kind, "given": getattr(test, test.kind), "expected": test.expected or ""}
        for test in job.tests
    ]
    tier = active_tier().name  # found once, in the parent
    return vars(job) | {"tier": tier, "timeout_s": float(job.timeout_s), "tests": tests}


def _check_test(index: int, test: TestCase, entry_point: str | None) -> None:
    if not isinstance(test, TestCase):
        raise KlearError(f"tests[{index}] must be a TestCase, got {type(test).__name__}")
    if test.kind != "stdin" and not entry_point:
        raise KlearError(f"tests[{index}] calls a function: entry_point must name it")
    if test.kind == "call":
        arguments = _parsed(test.call, f"tests[{index}].call")
        if not isinstance(arguments, list):
            raise KlearError(f"tests[{index}].call must be a JSON array, got {test.call[:60]!r}")
        _parsed(test.expected, f"tests[{index}].expected")


def _parsed(text: str, name: str) -> object:
    try:
        return json.loads(text, parse_int=len)  # of any length: only the form matters
    except (ValueError, RecursionError) as error:
        raise KlearError(f"{name} must be JSON ({error}), got {text[:60]!r}") from None
