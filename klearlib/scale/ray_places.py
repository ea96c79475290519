"""Where the stages of a call run on a Ray cluster: on a GPU where it has some, else on a core.

Ray only finds the place: a stage there is the very process that it would be here, with its cache,
locks, checkpoints and exit codes. `klearlib.run.pool.LocalPlaces` says the same words of this
machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import BinaryIO

from klearlib.errors import KlearError
from klearlib.run.entry import DONE
from klearlib.run.files import one_line_failures
from klearlib.run.preload import Worker
from klearlib.run.worker import ERROR_PREFIX
from klearlib.scale import ray_node
from klearlib.scale.ray_cluster import Watch, asking, connected, in_words, runs_here, short

MAX_LOST = 3
"""How often a stage whose node or actor is lost is started again."""
KILL_S = 5.0
_PROBE_S = 600.0  # of a node, which imports the library from a shared disk
PROBES = ".ray"
"""Folder of the results for the files by which nodes are probed."""


class RayPlaces:
    """The places of a Ray cluster for one call.

    count: GPUs of the cluster, or its cores where it has none. Several calls may hold a place each
    at a time that the cluster has only once: then Ray starts one stage after the other. modules:
    those of the stages. spans: whether one of these asks for its GPUs by itself. Raises as
    `klearlib.scale.ray_cluster.connected` and `check_nodes`.
    """

    shares_cores = False  # those of this machine are not the cluster's

    def __init__(
        self,
        workers: str,
        runs_dir: Path,
        modules: Sequence[str],
        environment: dict[str, str],
        *,
        spans: bool,
    ):
        self._where, self._joins = in_words(workers), not runs_here(workers)
        with contextlib.ExitStack() as opened:
            opened.enter_context(connected(workers))
            self._kind, self.count = _count()
            self._watch = Watch(workers)
            if self._joins:
                # One that asks for its GPUs by itself gets a core, which may be on any node.
                kinds = {self._kind} | ({"CPU"} if spans else set())
                check_nodes(runs_dir, kinds, environment, modules)
            self._context = opened.pop_all()

    def start(
        self, slot: int, spec_file: Path, log: BinaryIO, environment: dict, *, spans: bool
    ) -> RayWorker:
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`;
        where it runs is for Ray to say."""
        mask = os.umask(0)
        os.umask(mask)
        start = {
            "spec_file": str(spec_file),
            "log": log.name,
            "environment": environment,
            "folder": os.getcwd(),
            "umask": mask,
            "spans": spans and self._joins,
        }
        takes = {"num_cpus": 1} if spans or self._kind == "CPU" else {"num_cpus": 0, "num_gpus": 1}
        return RayWorker(start, takes, self._where)

    def listen(self, workers: Sequence[Worker], timeout_s: float) -> None:
        """Wait until one of `workers` has something to tell, at most `timeout_s`."""
        mine = [w for w in workers if isinstance(w, RayWorker) and w.returncode is None]
        awaited = [each.awaited for each in mine]
        if not awaited or None in awaited:  # one has ended, and its files are to be seen here
            time.sleep(min(timeout_s, ray_node.POLL_S) if awaited else timeout_s)
            return
        try:
            self._watch.look()
            with asking(self._where) as ray:
                ray.wait(awaited, timeout=timeout_s)
        except KlearError:
            for each in mine:  # the cluster is gone, and they with it
                each.returncode = -signal.SIGKILL
            raise

    def close(self) -> None:
        """Leave the cluster; a Ray that was started for this call ends."""
        self._context.close()


def _count() -> tuple[str, int]:
    """What a stage takes of the cluster, "GPU" or, where there is none, "CPU", and how many there
    are; KlearError where there is neither."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for kind in ("GPU", "CPU"):
        if count := sum(int(each.get(kind, 0)) for each in nodes):
            return kind, count
    raise KlearError("the Ray cluster has neither GPUs nor CPUs for tasks: add a node that has")


class RayWorker:
    """The worker of one stage, as `klearlib.run.preload.Worker` says, on a node that Ray chooses.

    Where Ray loses its node or its actor, it is started again and goes on from its last checkpoint,
    `MAX_LOST` times at most; the stage's log says so. pid: on its node; None while it waits for a
    place. returncode: as that of subprocess.Popen.
    """

    def __init__(self, start: dict, options: dict, where: str):
        self._arguments, self._options, self._where = start, options, where
        self._folder, self._log = Path(start["spec_file"]).parent, Path(start["log"])
        self._num_lost, self._is_stopping = 0, False
        self.returncode: int | None = None
        self._submit()

    @property
    def is_queued(self) -> bool:
        """Whether it still waits for a place on the cluster."""
        return self.pid is None and self.returncode is None

    @property
    def awaited(self):
        """What Ray tells next about it; None where nothing is to come."""
        return self._next if self.returncode is None and self._code is None else None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        try:
            with asking(self._where) as ray:
                self._listen(ray)
        except KlearError:
            if not self._is_stopping:
                raise
            self.returncode = -signal.SIGKILL
        return self.returncode

    def terminate(self) -> None:
        """Ask it to save its state and end."""
        self._is_stopping = True
        if self.poll() is not None:
            return
        if self.pid is None:  # it has nothing to save yet
            self._give_up()
            self.returncode = -signal.SIGTERM
            return
        with contextlib.suppress(KlearError), asking(self._where):
            self._actor.stop.remote()

    def kill_group(self) -> None:
        """SIGKILL to it and to all that it started, and its place is free again."""
        if self.returncode is None and self.pid is not None:
            with contextlib.suppress(KlearError), asking(self._where) as ray:
                ray.wait([self._actor.kill.remote()], timeout=KILL_S)
        self._give_up()
        if self.returncode is None:
            self.returncode = -signal.SIGKILL

    def _submit(self) -> None:
        self.pid: int | None = None
        self._code: int | None = None  # of a process whose files may not be seen here yet
        with asking(self._where) as ray:
            ray.cloudpickle.register_pickle_by_value(ray_node)
            self._actor = ray.remote(**self._options)(ray_node.StageProcess).remote()
            self._next = self._actor.begin.remote(**self._arguments)

    def _listen(self, ray) -> None:
        while self.awaited is not None and ray.wait([self._next], timeout=0)[0]:
            try:
                answer = ray.get(self._next)
            except ray.exceptions.RayTaskError as error:
                self._fail(f"the stage could not start: on a node of {self._where}: {error.cause}")
            except ray.exceptions.RaySystemError:
                raise
            except ray.exceptions.RayError as error:
                self._lose(error)
            else:
                self._hear(answer)
        if self._code is not None and self.returncode is None and self._is_visible():
            self.returncode = self._code

    def _hear(self, answer: dict | int) -> None:
        if isinstance(answer, int):
            self._code, self._visible_by = answer, time.monotonic() + ray_node.SEEN_S
        elif "refused" in answer:
            self._fail(f"the stage could not start: {answer['refused']}")
        else:
            self.pid = answer["pid"]
            self._next = self._actor.end.remote()

    def _is_visible(self) -> bool:
        """Whether what the node has written is seen here; file systems of many machines take a
        moment."""
        if self._code != 0 or time.monotonic() > self._visible_by:
            return True
        os.listdir(self._folder)  # makes the file system look again
        return (self._folder / DONE).exists()

    def _lose(self, error: Exception) -> None:
        """The node or the actor is gone, and the stage's process with it."""
        if self._is_stopping:
            self.returncode = -signal.SIGKILL
            return
        self._give_up()  # it may only be out of reach
        self._num_lost += 1
        why = next(iter(str(error).strip().splitlines()), "")[:200] or type(error).__name__
        lost = f"{self._where} lost the stage's node or actor"
        if self._num_lost > MAX_LOST:
            self._fail(f"{lost} {self._num_lost} times, at last: {why}")
        else:
            self._say(f"{lost} ({why}): started again, {self._num_lost} of {MAX_LOST}")
            self._submit()

    def _give_up(self) -> None:
        """End the actor, and with it what it started."""
        with (
            contextlib.suppress(KlearError),
            asking(self._where) as ray,
            contextlib.suppress(ray.exceptions.RayError, ValueError),
        ):
            ray.kill(self._actor)

    def _fail(self, why: str) -> None:
        self._say(ERROR_PREFIX + why)
        self.returncode = 1

    def _say(self, line: str) -> None:
        with one_line_failures(self._log), open(self._log, "a", encoding="utf-8") as log:
            log.write(" ".join(line.split()) + "\n")


def check_nodes(
    runs_dir: Path, kinds: Collection[str], environment: dict[str, str], modules: Sequence[str]
) -> None:
    """Make sure that every node on which a stage may run, as it has one of `kinds` ("GPU", "CPU"),
    sees `runs_dir`, keeps its locks and runs the same code of `modules` on the same libraries; else
    KlearError with one line that names the node and what to mend."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(ray_node)
    probe = ray.remote(num_cpus=0, max_retries=0)(ray_node.probe)
    token, modules = secrets.token_hex(8), list(modules)
    folder = runs_dir / PROBES / token
    expected = ray_node.runs_on(modules)
    with one_line_failures(folder):
        folder.mkdir(parents=True)
        try:
            with open(folder / "caller", "w", encoding="utf-8") as file:
                _lock(file, runs_dir)
                file.write(token)
                file.flush()
                asked = {}
                for node in ray.nodes():
                    name, has = node["NodeID"], node["Resources"]
                    if node["Alive"] and any(has.get(kind, 0) >= 1 for kind in kinds):
                        there = NodeAffinitySchedulingStrategy(name, soft=False)
                        asked[name] = probe.options(scheduling_strategy=there).remote(
                            str(folder), token, name, environment, modules
                        )
                for name, answer in asked.items():
                    try:
                        told = ray.get(answer, timeout=_PROBE_S)
                    except (ray.exceptions.RayError, RuntimeError) as error:
                        line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                        raise KlearError(
                            f"a node of the Ray cluster cannot run a task ({short(line)})"
                        ) from None
                    if wrong := _wrong(told, expected, runs_dir, folder / name, token):
                        raise KlearError(f"{told['node']}, a node of the Ray cluster, {wrong}")
        finally:
            for file in folder.iterdir():
                file.unlink(missing_ok=True)
            folder.rmdir()


def _lock(file, runs_dir: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise KlearError(
            f"cannot lock files in {runs_dir} ({error.strerror}): keep the results on a file "
            "system that has locks"
        ) from None


def _wrong(told: dict, expected: dict, runs_dir: Path, answer: Path, token: str) -> str:
    """What is wrong with a node that told so, and what mends it; "" where nothing is."""
    same = "keep the clone and its environment on the file system that all nodes mount"
    if "unseen" in told:
        return (
            f"does not see {runs_dir}: keep the results on a file system that all nodes mount at "
            "the same place"
        )
    if "unlocked" in told:
        return (
            f"takes locks in {runs_dir} that are held here: mount that file system with locks "
            "between machines (NFS 4, or Lustre with -o flock)"
        )
    if not ray_node.seen(lambda: ray_node.holds(answer, token)):
        return f"writes to {runs_dir} what is not seen here: mount the same file system there"
    if "lacks" in told:
        return f"cannot import the library ({told['lacks']}): {same}"
    for name, here in expected.items():
        if (there := told["runs_on"].get(name)) != here:
            return f"has {name} {there}, not {here} as here: {same}"
    return ""
