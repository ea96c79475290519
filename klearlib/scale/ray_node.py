"""What runs on a node of the Ray cluster: the stage's process, and the questions asked before it.

Ray gets this module by value, so a node needs the library only where the stage's process finds it;
the top imports nothing but the standard library. ``python -m klearlib.scale.ray_node MODULE...``
prints, as JSON, what a stage's process would run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SEEN_S = 20.0
"""Seconds until a file of another machine has to be seen: file systems keep what they know for a
while."""
POLL_S = 0.05
_PARENT = "KLEAR_PARENT_PID"
_WORKER = "klearlib.run.worker"
# Of the node, and by Ray, where all else is as the caller has it.
_NODES_OWN = {"CUDA_VISIBLE_DEVICES", "HOME", "HOSTNAME", "LD_LIBRARY_PATH", "LOGNAME", "PATH"}
_NODES_OWN |= {"TEMP", "TMP", "TMPDIR", "USER", "XDG_RUNTIME_DIR"}


class StageProcess:
    """An actor with the process of one stage, which dies when the actor does.

    It is asynchronous: Ray runs its methods in one thread that lives as long as it, and on whose
    end the kernel kills the process (`klearlib.run.worker` asks for that).
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None

    async def begin(
        self,
        spec_file: str,
        log: str,
        environment: dict[str, str],
        *,
        folder: str,
        umask: int,
        spans: bool,
    ) -> dict:
        """Start it; gives its "pid" and the name of the "node", or why it was "refused".

        environment: of the caller. folder: where it runs, if there is one. spans: the stage is a
        driver itself, which asks this very cluster for its GPUs.
        """
        node = platform.node()
        if not await asyncio.to_thread(seen, Path(spec_file).is_file):
            return {"refused": f"{node} does not see {spec_file}", "node": node}
        variables = {**of_node(environment), _PARENT: str(os.getpid())}
        if spans:
            import ray

            variables["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        # Ray's processes hold Ctrl-C back, and what they start would inherit it.
        held = signal.pthread_sigmask(signal.SIG_SETMASK, [])
        try:
            with open(log, "ab") as stream:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _WORKER, spec_file],
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    cwd=folder if os.path.isdir(folder) else str(Path(spec_file).parent),
                    umask=umask,
                    start_new_session=True,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return {"pid": self._process.pid, "node": node}

    async def end(self) -> int:
        """Its exit code when it has ended, with all that it started."""
        while (code := self._process.poll()) is None:
            await asyncio.sleep(POLL_S)
        self._kill_group()
        return code

    async def stop(self) -> None:
        """Ask it to save its state and end."""
        self._process.terminate()

    async def kill(self) -> None:
        """SIGKILL to it and to all that it started; gone when this returns."""
        self._kill_group()
        while self._process.poll() is None:
            await asyncio.sleep(POLL_S)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def seen(look: Callable[[], bool]) -> bool:
    """Whether `look()` finds within `SEEN_S` what another machine has written."""
    end = time.monotonic() + SEEN_S
    while not look():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def of_node(environment: dict[str, str]) -> dict[str, str]:
    """The caller's variables with those that a node has of its own in their place."""
    shared = {name: value for name, value in environment.items() if name not in _NODES_OWN}
    return shared | {name: os.environ[name] for name in _NODES_OWN & os.environ.keys()}


def probe(
    folder: str, token: str, answer: str, environment: dict[str, str], modules: list[str]
) -> dict:
    """Whether the caller's `folder` is here as well, and what a stage would run on.

    Gives the name of the "node", and either "unseen" (the folder does not hold the caller's token),
    "unlocked" (the caller's lock on it does not hold here), "lacks" (why the library cannot be
    asked) or "runs_on", as the function of this name gives it. Leaves the token in the file
    `answer`.
    """
    told = {"node": platform.node()}
    asked = Path(folder) / "caller"
    if not seen(lambda: holds(asked, token)):
        return told | {"unseen": True}
    with open(asked, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return told | {"unlocked": True}
        except BlockingIOError:
            pass
    (Path(folder) / answer).write_text(token)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "klearlib.scale.ray_node", *modules],
        env=of_node(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return told | {"lacks": (done.stderr.strip().splitlines() or ["no answer"])[-1]}
    return told | {"runs_on": json.loads(done.stdout)}


def holds(file: Path, token: str) -> bool:
    try:
        return file.read_text() == token
    except OSError:
        return False


def runs_on(modules: list[str]) -> dict[str, str]:
    """Versions, and a digest of the code of `modules`, on which equal results depend."""
    from klearlib import __version__
    from klearlib.run.fingerprint import library_fingerprint
    from klearlib.run.provenance import LIBRARIES, version

    known = {"klear": __version__, "Python": platform.python_version()}
    known |= {name: version(name) for name in LIBRARIES}
    return known | {"the stages' code": library_fingerprint(modules)[:12]}


if __name__ == "__main__":
    print(json.dumps(runs_on(sys.argv[1:])))
