"""How fast programs are judged: this judge against a fresh Python process for each test.

    .venv/bin/python benchmarks/program_speed.py --programs 40 --repeats 5

Each program has 16 tests by stdin. The fresh way starts ``python -I`` for every test and compares
its output, with no isolation at all, on as many cores as the judge has workers. Both ways take
turns in one run; the medians are written to benchmarks/results/program_speed.csv.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import arguments_of, keep

from klearlib.records import TestCase
from klearlib.verify import pool, program_judge
from klearlib.verify.compare import same_output
from klearlib.verify.programs import ProgramJob, run_many
from klearlib.verify.sandbox import active_tier

NUM_TESTS = 16
PROGRAMS = {
    "one line": "n = int(input())\nprint(n * n + {k})",
    "loop": (
        "import sys\nn = int(sys.stdin.read())\ntotal = {k}\n"
        "for i in range(20000):\n    total += i % 7 * n\nprint(total)"
    ),
    "imports": (
        "import collections, functools, heapq, itertools, math, re\nfrom typing import List\n"
        "n = int(input())\nprint(math.gcd(n, 12) + {k})"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=40, help="of each kind, for the judge")
    parser.add_argument("--fresh-programs", type=int, default=3, help="for the fresh processes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = arguments_of(parser, programs=1, fresh_programs=1, repeats=1, workers=[1])
    rows = [
        measures(kind, workers, arguments) for workers in arguments.workers for kind in PROGRAMS
    ]
    keep(rows, "program_speed", arguments)


def measures(kind: str, workers: int, arguments: argparse.Namespace) -> dict:
    pool.close_pool()
    run_many(jobs(kind, workers, first=-workers), workers=workers)  # the processes are up
    ours, fresh = [], []
    for repeat in range(arguments.repeats):
        batch = jobs(kind, arguments.programs, first=repeat * 1000)
        start = time.perf_counter()
        reports = run_many(batch, workers=workers)
        ours.append((time.perf_counter() - start) / (len(batch) * NUM_TESTS))
        assert all(report.pass_rate == 1 for report in reports)
        batch = jobs(kind, arguments.fresh_programs, first=0)
        start = time.perf_counter()
        run_fresh(batch, workers)
        fresh.append((time.perf_counter() - start) / (len(batch) * NUM_TESTS))
    judge_ms, fresh_ms = (1000 * statistics.median(seconds) for seconds in (ours, fresh))
    return {
        "program": kind,
        "tier": active_tier().name,
        "workers": workers,
        "judge ms a test": judge_ms,
        "fresh process ms a test": fresh_ms,
        "times faster": fresh_ms / judge_ms,
        "judge processes peak MB": peak_memory_mb(),
    }


def jobs(kind: str, num: int, *, first: int) -> list[ProgramJob]:
    """Programs of one kind, no two alike, with tests that they pass."""
    batch = []
    for k in range(first, first + num):
        source = PROGRAMS[kind].format(k=k)
        tests = [TestCase(str(answer(kind, n, k)), stdin=str(n)) for n in range(NUM_TESTS)]
        batch.append(ProgramJob(source, tests, timeout_s=10.0, memory_mb=256))
    return batch


def answer(kind: str, n: int, k: int) -> int:
    if kind == "one line":
        return n * n + k
    if kind == "loop":
        return k + n * sum(i % 7 for i in range(20000))
    return math.gcd(n, 12) + k


def run_fresh(batch: list[ProgramJob], workers: int) -> None:
    def run(pair: tuple[str, TestCase]) -> bool:
        source, test = pair
        done = subprocess.run(
            [sys.executable, "-I", "-c", source],
            input=test.stdin,
            capture_output=True,
            text=True,
            timeout=10,
        )
        return done.returncode == 0 and same_output(done.stdout, test.expected)

    with ThreadPoolExecutor(workers) as executor:
        assert all(executor.map(run, [(job.source, test) for job in batch for test in job.tests]))


def peak_memory_mb() -> float:
    """The largest resident sizes of all judge processes, added up: shared pages count twice."""
    found = pool.shared_pool(1, program_judge.__name__).worker_pids()
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        found += [int(child) for child in children.split()]
    total = 0
    for pid in found:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        total += next(int(s.split()[1]) for s in status.splitlines() if s.startswith("VmHWM"))
    return total / 1024


if __name__ == "__main__":
    main()
