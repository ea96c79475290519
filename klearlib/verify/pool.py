"""Judge processes of our own: lazily started, killed at the deadline, none outlives this process.

math-verify's time-outs are alarms of the main thread, so the clock is kept here: one thread
(a lane) per process sends a job, waits for the reply, and kills the process when time is over.
There is one pool for each kind of judge: `answer_judge` and `program_judge`.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path

from klearlib.errors import KlearError, MissingAsset
from klearlib.run.provenance import num_cores
from klearlib.verify import answer_judge
from klearlib.verify.sandbox_server import MAX_STRETCH, seconds_without_core

MAX_DEFAULT_WORKERS = 8
READY_TIMEOUT_S = 120.0
_ATTEMPTS = 2  # a judge may have been killed by the machine's want of memory
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


class JudgeEndedError(Exception):
    """The process ended, or never got ready, without a reply."""


class JudgeProcess:
    """A running judge; the calling thread must outlive it (see `_Lane`)."""

    def __init__(self, module: str) -> None:
        search_path = [p for p in (os.environ.get("PYTHONPATH"), _PACKAGE_ROOT) if p]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(search_path),
            "PYTHONSAFEPATH": "1",  # a user's sympy.py in the working folder is not sympy
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",  # its buffers for 64 cores would fill the memory limit
        }
        self.connection, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-W", "ignore", "-m", module, str(os.getpid())]
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # parsers print
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C is for the caller, not for the judges
            )
        self._next_id = 0
        self._start_clock(READY_TIMEOUT_S)

    def wait_until_ready(self) -> None:
        try:
            greeting = self._receive()
        except TimeoutError as error:
            raise JudgeEndedError from error
        if "fatal" in greeting:
            raise MissingAsset(greeting["fatal"])

    def ask(self, request: dict, timeout_s: float) -> dict:
        """The reply; TimeoutError at the deadline, JudgeEndedError when the process ended."""
        self._start_clock(timeout_s)
        self._next_id += 1
        try:
            self.connection.send_bytes(json.dumps({"id": self._next_id, **request}).encode())
        except OSError as error:
            raise JudgeEndedError from error
        reply = self._receive()
        assert reply["id"] == self._next_id
        return reply

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()

    def _start_clock(self, timeout_s: float) -> None:
        self._timeout_s, self._started = timeout_s, time.monotonic()
        self._waited_before_s = seconds_without_core(self.process.pid)

    def _remaining_s(self) -> float:
        """Till the deadline, which moves on by the time in which others had the cores."""
        remaining_s = self._started + self._timeout_s - time.monotonic()
        if remaining_s > 0:
            return remaining_s
        waited_s = seconds_without_core(self.process.pid) - self._waited_before_s
        return remaining_s + min(waited_s, (MAX_STRETCH - 1) * self._timeout_s)

    def _receive(self) -> dict:
        while (remaining_s := self._remaining_s()) > 0:
            if self.connection.poll(remaining_s):
                try:
                    return json.loads(self.connection.recv_bytes())
                except (EOFError, OSError) as error:
                    raise JudgeEndedError from error
        raise TimeoutError


@dataclass(frozen=True)
class _Job:
    request: dict
    timeout_s: float
    future: Future = field(default_factory=Future)


class _Lane(threading.Thread):
    """One thread and the process that it owns.

    The kernel ties a process's death signal to the thread that started it, so that thread must live
    as long as the pool; a caller's may end earlier.
    """

    def __init__(self, pool: Pool, index: int) -> None:
        super().__init__(name=f"klear-judge-{index}", daemon=True)
        self._pool = pool
        self.worker: JudgeProcess | None = None

    def run(self) -> None:
        while (job := self._pool.jobs.get()) is not None:
            if job.future.set_running_or_notify_cancel():
                try:
                    job.future.set_result(self._reply(job))
                except MissingAsset as error:
                    self._drop_worker()
                    job.future.set_exception(error)
                except Exception:  # a lane that dies would leave its callers waiting for ever
                    self._drop_worker()
                    job.future.set_result({"reason": "judge_error"})
        self._drop_worker()

    def _reply(self, job: _Job) -> dict:
        for _ in range(_ATTEMPTS):
            if self._pool.is_closed:
                break
            try:
                return self._ready_worker().ask(job.request, job.timeout_s)
            except TimeoutError:  # the job, not the judge, is at fault: no second try
                self._drop_worker()
                return {"reason": "timeout"}
            except JudgeEndedError:
                self._drop_worker()
        return {"reason": "judge_error"}

    def _ready_worker(self) -> JudgeProcess:
        # it ended after its last job, worn out
        if self.worker is not None and self.worker.process.poll() is not None:
            self._drop_worker()
        if self.worker is None:
            self.worker = JudgeProcess(self._pool.module)
            self.worker.wait_until_ready()
        return self.worker

    def _drop_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
        self.worker = None


class Pool:
    """The judge processes that run `module`, and the jobs that wait for them."""

    def __init__(self, module: str = answer_judge.__name__) -> None:
        self.module = module
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.is_closed = False
        self._lanes: list[_Lane] = []
        self._lock = threading.Lock()

    def submit(self, request: dict, *, timeout_s: float) -> Future:
        """Queue one job of `module`, without its id; the future's result is the reply.

        The clock of `timeout_s` starts when a process takes the job. Where the processes fail the
        reply is ``{"reason": "timeout" | "judge_error"}`` whatever the module.
        """
        job = _Job(request, timeout_s)
        with self._lock:
            if self.is_closed:
                job.future.set_result({"reason": "judge_error"})
            else:
                self.jobs.put(job)
        return job.future

    def grow(self, num_workers: int) -> None:
        """Have at least this many lanes; a lane starts its process with its first job."""
        with self._lock:
            while len(self._lanes) < num_workers and not self.is_closed:
                lane = _Lane(self, len(self._lanes))
                lane.start()
                self._lanes.append(lane)

    def worker_pids(self) -> list[int]:
        """The process ids of the judges that have been started."""
        workers = [lane.worker for lane in self._lanes]
        return [worker.process.pid for worker in workers if worker is not None]

    def close(self) -> None:
        """Kill the judges; what is still waiting gets ``judge_error``."""
        with self._lock:
            self.is_closed = True  # a lane starts no judge for what still waits
            for lane in self._lanes:
                self.jobs.put(None)  # ends a lane when nothing waits any more
                if (worker := lane.worker) is not None:
                    worker.process.kill()
        for lane in self._lanes:
            lane.join(timeout=5)


_pools: dict[str, Pool] = {}
_pool_lock = threading.Lock()
_inherited: list[Pool] = []


def shared_pool(num_workers: int, module: str = answer_judge.__name__) -> Pool:
    """This process's pool of judges that run `module`, with at least `num_workers` lanes."""
    with _pool_lock:
        pool = _pools.get(module)
        if pool is None:
            pool = _pools[module] = Pool(module)
    pool.grow(num_workers)
    return pool


def ask(
    module: str, jobs: Sequence[tuple[dict, float]], *, workers: int | None = None
) -> list[dict]:
    """The replies of judges that run `module` to jobs, each a request and its `timeout_s`, in their
    order; see `Pool.submit`.

    workers: how many judges the pool may grow to; None for one per usable core, up to
        `MAX_DEFAULT_WORKERS`. KlearError for a number below 1.
    """
    if workers is not None and workers < 1:
        raise KlearError(f"workers must be at least 1, or None for one per core, got {workers}")
    most = workers or min(num_cores(), MAX_DEFAULT_WORKERS)
    if not jobs:
        return []
    pool = shared_pool(min(most, len(jobs)), module)
    futures: list[Future] = []
    try:
        for request, timeout_s in jobs:
            futures.append(pool.submit(request, timeout_s=timeout_s))
        return [future.result() for future in futures]
    except BaseException:  # Ctrl-C too: nobody waits for the rest any more
        for future in futures:
            future.cancel()
        raise


def close_pool() -> None:
    """End this process's judges; the next job starts new ones. Runs by itself at exit."""
    with _pool_lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


def _forget_after_fork() -> None:
    # The judges belong to the parent, and its lanes are not in this process. The old pools are
    # kept, not freed: freeing them would reap processes that are not this process's children.
    global _pool_lock
    _inherited.extend(_pools.values())
    _pools.clear()
    _pool_lock = threading.Lock()


atexit.register(close_pool)
os.register_at_fork(after_in_child=_forget_after_fork)
