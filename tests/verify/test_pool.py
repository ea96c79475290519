"""Attacks on the judges' processes: hostile answers, kills, forks, threads, event loops."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import is_running, wait_until

import klearlib
from klearlib.records import TestCase
from klearlib.verify import answer_judge, answers, pool, program_judge
from klearlib.verify.answers import verify_answer, verify_answers
from klearlib.verify.pool import close_pool
from klearlib.verify.programs import ProgramJob, run_many, run_tests

ROOT = Path(klearlib.__file__).resolve().parents[1]
HANGS = "\\sum_{k=1}^{10^9} k^k"


def boxed(answer: str) -> str:
    return f"<think></think>\\boxed{{{answer}}}"


def judge_right_and_wrong() -> list[str]:
    """The reasons for one right and one wrong answer that need math-verify."""
    verdicts = verify_answers([boxed("\\sqrt{8}")] * 2, ["2\\sqrt{2}", "3\\sqrt{2}"], workers=1)
    return [v.reason for v in verdicts]


def run_right_and_wrong() -> list[float]:
    """The pass rates of a program that passes all its tests and of one that passes half."""
    jobs = [
        ProgramJob(f"print(int(input()) + {n})", tests, timeout_s=5.0, memory_mb=64)
        for n in range(2)
        for tests in [[TestCase(str(k + n * k), stdin=str(k)) for k in range(2)]]
    ]
    return [report.pass_rate for report in run_many(jobs, workers=1)]


ASKED = {
    "answers": (answer_judge.__name__, judge_right_and_wrong, ["correct", "wrong"]),
    "programs": (program_judge.__name__, run_right_and_wrong, [1.0, 0.5]),
}


@pytest.fixture(params=ASKED)
def kind(request):
    """A way to ask the judges of a kind."""
    return Kind(*ASKED[request.param])


@dataclass(frozen=True)
class Kind:
    module: str
    ask: Callable[[], list]
    expected: list

    def pids(self) -> list[int]:
        return pool.shared_pool(1, self.module).worker_pids()


HOSTILE = {
    "power tower": boxed("9^{9^{9^9}}"),
    "factorial": boxed("(10^8)!"),
    "sum": boxed(HANGS),
    "nested parentheses": boxed("(" * 900 + "1" + ")" * 900),
    "too many parentheses": boxed("(" * 3000 + "1" + ")" * 3000),
    "dollar signs": "<think></think>" + "$" * 20_000,
    "a million dollars": boxed("$" * 1_000_000),
    "a million digits": boxed("9" * 1_000_000),
    "open boxes": "<think></think>" + "\\boxed{" * 50_000,
    "tags": "<think>" * 50_000 + "</think>" * 50_000,
    "full stops": boxed("." * 100_000),
    "blanks": "<think></think>a" + " " * 200_000 + "b",
    "surrogate": boxed("\ud800"),
    "null": boxed("\x00 \x1b"),
    "matrix power": boxed("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}^{10^9}"),
    "code": boxed('__import__("os")._exit(0)'),
}


QUICKLY = (
    "power tower",
    "too many parentheses",
    "a million digits",
    "open boxes",
    "blanks",
    "surrogate",
    "code",
)
"""One of each class; the others come with the slow tests."""


@pytest.mark.parametrize(
    "name", [n if n in QUICKLY else pytest.param(n, marks=pytest.mark.slow) for n in HOSTILE]
)
def test_hostile_answers_keep_their_limit_and_are_never_correct(name):
    judge_right_and_wrong()  # a process is ready, or its start would count
    start = time.monotonic()
    verdict = verify_answer(HOSTILE[name], "385", timeout_s=0.5)
    assert time.monotonic() - start < 60  # a machine may do much else
    assert not verdict.correct
    assert len(verdict.extracted or "") <= answers.MAX_ANSWER_CHARS


def test_a_hang_is_a_timeout_its_process_is_killed_and_its_neighbours_are_judged():
    close_pool()  # others may have asked for more judges
    judge_right_and_wrong()
    (pid,) = pool.shared_pool(1).worker_pids()
    responses = [boxed(a) for a in ("\\sqrt{4}", HANGS, "\\sqrt{9}", "\\sqrt{9}", "385")]
    golds = ["2", "2", "3", "4", "9^{9^{9^9}}"]
    verdicts = verify_answers(responses, golds, workers=1, timeout_s=1.0)
    reasons = ["not_worked_out", "timeout", "not_worked_out", "wrong", "timeout"]
    assert [v.reason for v in verdicts] == reasons
    assert not is_running(pid)


def test_time_without_a_core_does_not_count_up_to_five_times_the_limit(monkeypatch):
    close_pool()
    judge_right_and_wrong()  # a process is ready, or its start would count
    waited = iter([7.0])  # before the answer, which takes no time from it
    monkeypatch.setattr(pool, "seconds_without_core", lambda pid: next(waited, 1e3))
    start = time.monotonic()
    assert verify_answer(boxed(HANGS), "385", timeout_s=0.3).reason == "timeout"
    assert time.monotonic() - start >= 1.5


def test_a_process_killed_mid_batch_costs_no_verdict():
    close_pool()  # others may have asked for more judges
    judge_right_and_wrong()
    (pid,) = pool.shared_pool(1).worker_pids()
    num = 10
    responses = [boxed(f"\\sqrt{{{k * k + 1}}} + \\frac{{{k}}}{{7}}") for k in range(num)]
    golds = [f"\\frac{{{k}}}{{7}} + \\sqrt{{{k * k + (1 if k % 2 else 2)}}}" for k in range(num)]
    responses[0] = boxed(HANGS)  # it is still judged when the process is killed
    with ThreadPoolExecutor(1) as executor:
        batch = executor.submit(verify_answers, responses, golds, workers=1, timeout_s=2.0)
        time.sleep(0.1)
        assert not batch.done()
        os.kill(pid, signal.SIGKILL)
        verdicts = batch.result(timeout=60)
    reasons = ["timeout", *("correct" if k % 2 else "wrong" for k in range(1, num))]
    assert [v.reason for v in verdicts] == reasons
    assert pool.shared_pool(1).worker_pids() != [pid]


def test_a_job_whose_process_dies_twice_is_a_judge_error(kind):
    kind.ask()
    stop = threading.Event()

    def kill_all():
        while not stop.is_set():
            for pid in kind.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        if kind.module == answer_judge.__name__:
            assert verify_answer(boxed("\\sqrt{4}"), "2").reason == "judge_error"
        else:
            report = run_tests("print(2)", [TestCase("2", stdin="")], timeout_s=5.0, memory_mb=64)
            assert (report.outcomes, report.pass_rate) == (("judge_error",), 0)
    finally:
        stop.set()
        killer.join()
    assert kind.ask() == kind.expected


def test_threads_share_the_processes_and_may_end_before_them(kind):
    close_pool()
    found = []
    first = threading.Thread(target=lambda: found.append(kind.ask()))
    first.start()
    first.join()
    (pid,) = kind.pids()
    time.sleep(0.1)
    assert is_running(pid)  # the thread that asked first has ended, its judge has not
    with ThreadPoolExecutor(8) as executor:
        found += [f.result() for f in [executor.submit(kind.ask) for _ in range(8)]]
    assert found == [kind.expected] * 9
    assert kind.pids() == [pid]


def test_inside_a_running_event_loop(kind):
    async def main():
        return [kind.ask(), await asyncio.to_thread(kind.ask)]

    assert asyncio.run(main()) == [kind.expected] * 2


def _send_reply(connection, ask) -> None:
    connection.send(ask())
    connection.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_inside_a_daemonic_worker_process(kind, method):
    kind.ask()  # the forked child inherits a pool that is not its own
    pids = kind.pids()
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_send_reply, args=(theirs, kind.ask), daemon=True)
    child.start()
    assert ours.poll(60)
    assert ours.recv() == kind.expected
    child.join(10)
    assert child.exitcode == 0
    assert kind.pids() == pids
    assert kind.ask() == kind.expected


SCRIPT = f"""
import threading, time
from klearlib.verify import pool
from klearlib.verify.answers import verify_answer
hang = threading.Thread(
    target=verify_answer, args=({boxed(HANGS)!r}, "385"), kwargs=dict(timeout_s=600), daemon=True
)
hang.start()
while not pool.shared_pool(1).worker_pids():
    time.sleep(0.01)
time.sleep(1.0)
print(pool.shared_pool(1).worker_pids()[0], flush=True)
"""


@pytest.mark.parametrize("way", ["exit", "kill"])
def test_no_judge_outlives_its_parent(way):
    script = SCRIPT + ("time.sleep(600)" if way == "kill" else "")
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        pid = int(parent.stdout.readline())
        if way == "kill":
            assert is_running(pid)
            parent.kill()
        # A clean exit kills the judges and does not wait for their jobs, of 600 s.
        assert parent.wait(timeout=120) == (-signal.SIGKILL if way == "kill" else 0)
    try:
        assert wait_until(lambda: not is_running(pid))
    finally:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


def test_an_interrupted_caller_leaves_no_jobs_behind(monkeypatch):
    close_pool()

    class Interrupted(pool.Pool):
        def submit(self, request, *, timeout_s):
            future = super().submit(request, timeout_s=timeout_s)
            if len(submitted) == 3:
                monkeypatch.setattr(future, "result", self.interrupt)
            submitted.append(future)
            return future

        def interrupt(self):
            raise KeyboardInterrupt

    submitted = []
    interrupted = Interrupted()
    interrupted.grow(1)
    monkeypatch.setattr(pool, "shared_pool", lambda num_workers, module: interrupted)
    hangs = [boxed(f"{HANGS} + {k}") for k in range(20)]
    with pytest.raises(KeyboardInterrupt):
        verify_answers([boxed("x^2")] * 3 + hangs, ["1", "2", "3"] + ["385"] * 20, timeout_s=0.5)
    interrupted.close()
    assert sum(future.cancelled() for future in submitted) >= 18
