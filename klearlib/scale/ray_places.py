"""Where the stages of a call run on a Ray cluster: on a GPU if it has some, else on a core.

Ray only finds the place: what runs there is the very process that would run here, with its cache,
locks, checkpoints and exit codes. `klearlib.run.pool.LocalPlaces` is the same for this machine.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

from klearlib.run.entry import DONE
from klearlib.run.preload import start_worker
from klearlib.run.worker import ERROR_PREFIX
from klearlib.scale.ray_cluster import cause_of, connected, in_words

MAX_LOST = 3
"""How often a stage is started again from its last checkpoint after its node was lost."""
POLL_S = 0.05
SEEN_S = 20.0
"""Seconds until a file of another node has to be seen here: shared file systems cache."""
# A node has its own, partly by Ray; all other variables are the caller's.
_NODES_OWN = {"CUDA_VISIBLE_DEVICES", "HOME", "HOSTNAME", "LD_LIBRARY_PATH", "LOGNAME", "PATH"}
_NODES_OWN |= {"TEMP", "TMP", "TMPDIR", "USER", "XDG_RUNTIME_DIR"}


def run_stage(spec_file: str, log: str, environment: dict[str, str], folder: str) -> int:
    """On a node: the stage's process from start to end; gives the exit code.

    It dies with Ray's own process, and gets SIGTERM where the task is cancelled. environment,
    folder: the caller's.
    """
    variables = {name: value for name, value in environment.items() if name not in _NODES_OWN}
    variables |= {name: os.environ[name] for name in _NODES_OWN & os.environ.keys()}
    variables["KLEAR_PARENT_PID"] = str(os.getpid())
    with open(log, "ab") as stream:
        stream.write(f"on {platform.node()}, by Ray\n".encode())
        stream.flush()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "klearlib.run.worker", spec_file],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=folder if os.path.isdir(folder) else os.path.dirname(spec_file),
            start_new_session=True,
        )
    while True:
        try:
            while process.poll() is None:
                time.sleep(POLL_S)
            with contextlib.suppress(ProcessLookupError):  # what it has started
                os.killpg(process.pid, signal.SIGKILL)
            return process.returncode
        except KeyboardInterrupt:  # how Ray cancels a task
            process.terminate()


class RayPlaces:
    """The places of a Ray cluster for one call.

    count: GPUs of the cluster, or its cores if it has none. Several calls may each hold a place
    that the cluster has only once: then Ray starts one stage after the other. Raises as
    `klearlib.scale.ray_cluster.connected`.
    """

    shares_cores = False  # those of this machine are not the cluster's

    def __init__(self):
        self._connection = contextlib.ExitStack()
        self._connection.enter_context(connected())
        import ray

        has = ray.cluster_resources()
        self._kind = "GPU" if has.get("GPU", 0) >= 1 else "CPU"
        self.count = max(1, int(has.get(self._kind, 0)))  # one waits for the first node
        # So that a node needs the library only at the place where the stage's process finds it.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def start(self, slot: int, spec_file: Path, log: BinaryIO, environment: dict, *, spans: bool):
        """A worker for `spec_file` that writes to `log`, an open file, and sees `environment`; Ray
        decides where it runs. spans: the stage asks the cluster for its GPUs itself, and runs
        here."""
        import ray

        if spans:
            return start_worker(spec_file, log, environment)
        takes = {"num_cpus": 1} if self._kind == "CPU" else {"num_cpus": 0, "num_gpus": 1}
        task = ray.remote(max_retries=MAX_LOST, **takes)(run_stage).remote(
            str(spec_file), log.name, environment, os.getcwd()
        )
        return RayWorker(task, Path(log.name))

    def close(self) -> None:
        """Leave the cluster; a Ray that was started for this call ends."""
        self._connection.close()


class RayWorker:
    """The worker of one stage, as `klearlib.run.preload.NewProcess` is one, on a node that Ray
    chooses.

    task: Ray's reference to the exit code. log: the file in the stage's folder. returncode: as
    that of subprocess.Popen.
    """

    def __init__(self, task, log: Path):
        self.task, self.log, self.returncode = task, log, None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        import ray

        if self.returncode is not None:
            return self.returncode
        try:
            if not ray.is_initialized():  # or Ray would start another one
                raise ConnectionError("the connection is lost")
            if ray.wait([self.task], timeout=0)[0]:
                self.returncode = ray.get(self.task)
        except ray.exceptions.TaskCancelledError:
            self.returncode = -signal.SIGTERM
        except (ray.exceptions.RayError, ConnectionError) as error:
            self.returncode = 1
            line = f"{ERROR_PREFIX}{in_words()} could not run the stage ({cause_of(error)}): all "
            line += "nodes need the results, the clone and its environment at the same paths; "
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(line + "running again continues from the last checkpoint\n")
        done, end = self.log.parent / DONE, time.monotonic() + SEEN_S
        while self.returncode == 0 and not done.exists() and time.monotonic() < end:
            os.listdir(self.log.parent)  # makes the file system look again
            time.sleep(POLL_S)
        return self.returncode

    def terminate(self, *, force: bool = False) -> None:
        """Ask it to save its state and end; with `force` SIGKILL it and all that it started."""
        import ray

        if self.poll() is None:
            with contextlib.suppress(ConnectionError, ray.exceptions.RayError):
                ray.cancel(self.task, force=force)

    def kill_group(self) -> None:
        """End it, with all that it started; its place is free again."""
        self.terminate(force=True)
