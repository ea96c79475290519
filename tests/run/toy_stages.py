"""Stages that take milliseconds, for the tests of run/: a random walk and several misfits."""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from klearlib.errors import MissingAsset, Stopped


def walk(folder, inputs, *, seed, num_steps, every=3, step_s=0.0, start_from=None):
    """A seeded random walk; its end depends on each draw and on their order."""
    position, first, draws = 0.0, 0, random.Random(seed)
    if start_from is not None:
        position = json.loads((inputs[start_from] / "end.json").read_text())
    saved = folder.load_checkpoint()
    if saved is not None:
        state, first = saved
        position = state["position"]
        draws.setstate(state["draws"])
    folder.log(f"starts at step {first}")
    folder.progress(first, num_steps)
    for step in range(first, num_steps):
        position = 0.9 * position + draws.gauss(0.0, 1.0)
        folder.append_metrics({"step": step, "walk/position": position})
        folder.append_timings({"step": step, "time/process": os.getpid()})
        folder.progress(step + 1, num_steps)
        time.sleep(step_s)
        if folder.stop_requested or (step + 1) % every == 0:
            folder.save_checkpoint({"position": position, "draws": draws.getstate()}, step + 1)
        if folder.stop_requested:
            raise Stopped(f"after step {step}")
    (folder.path / "end.json").write_text(json.dumps(position))


def count_runs(folder, inputs, *, file, sleep_s):
    """Leaves one line per run in `file`."""
    with open(file, "a") as handle:
        handle.write("ran\n")
    time.sleep(sleep_s)


def environment(folder, inputs, *, names, cluster=None):
    """Writes down what the worker sees; with a `cluster` it is one that asks for GPUs by itself."""
    values = {name: os.environ.get(name) for name in names}
    (folder.path / "environment.json").write_text(json.dumps(values))


def fail(folder, inputs, *, how):
    """Ends as told."""
    if how == "bug":
        raise RuntimeError("the toy broke")
    if how == "value":
        raise ValueError("eps_low is 2:\n  give less than 1")
    if how == "asset":
        raise MissingAsset("no model toy-8b: download it, then run again")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        print("its last word", flush=True)
        os._exit(7)
    if how == "crash":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "full disk":
        raise OSError(28, "No space left on device", str(folder.path / "weights"))


def sleep_with_child(folder, inputs, *, file):
    """Never ends and never looks at stop_requested; has a child process that does not either."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    temporary = Path(file + ".part")
    temporary.write_text(f"{os.getpid()} {child.pid}")
    temporary.rename(file)
    time.sleep(600)


def surroundings(folder, inputs, *, again=False):
    """What its process finds without being told: what has to be the same, and what may not be."""
    import numpy as np
    import torch

    signals = [signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1]
    own = ("KLEAR_PARENT_PID", "TORCHINDUCTOR_CACHE_DIR")  # torch sets the second, always alike
    descriptors = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            descriptors.append(os.readlink(f"/proc/self/fd/{number}"))
    seen = {
        "equal": {
            "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
            "dtype": str(torch.get_default_dtype()),
            "gradients": torch.is_grad_enabled(),
            "leads": os.getpgrp() == os.getsid(0) == os.getpid(),
            "signals": [str(signal.getsignal(number)) for number in signals],
            "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            "hash": hash("a word"),
            "cwd": os.getcwd(),
            "umask": os.umask(0o022),
            # An editable install adds a name that is no folder.
            "path": [each for each in sys.path if os.path.isabs(each)],
            "environment": {k: v for k, v in os.environ.items() if k not in own},
            "arguments": [Path(each).name for each in sys.argv[1:]],
            "open": sorted(Path(each).name for each in descriptors),
            "unbuffered": [sys.stdout.write_through, sys.stderr.write_through],
        },
        "fresh": {
            "random": random.random(),
            "numpy": np.random.random(),
            "torch": torch.rand(1).item(),
        },
        "parent": os.getppid(),
    }
    (folder.path / "seen.json").write_text(json.dumps(seen))


def crowd(folder, inputs, *, place, cluster=None, seed=0):
    """Writes down how many of its kind run while it does; `cluster` as of `environment`."""
    mine = Path(place) / str(os.getpid())
    mine.touch()
    most = 0
    for _ in range(50):
        most = max(most, len(os.listdir(place)))
        time.sleep(0.02)
    mine.unlink()
    (folder.path / "seen.json").write_text(json.dumps(most))


def wait_for(folder, inputs, *, file, timeout_s=20.0):
    """Ends when `file` is there."""
    end = time.monotonic() + timeout_s
    while not Path(file).exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def fail_once(folder, inputs, *, file):
    """Fails the first time, after a while."""
    time.sleep(0.5)
    if not Path(file).exists():
        Path(file).touch()
        raise RuntimeError("the first time")


def kill_parent(folder, inputs):
    """Kills what has started it, as the end of its machine would, and waits for its own end."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def note(*, file, word, sleep_s=0.0):
    """A task that leaves a word in `file`."""
    print(f"notes {word}", flush=True)
    time.sleep(sleep_s)
    with open(file, "a") as handle:
        handle.write(word + "\n")


class CellFailed(Exception):
    exit_code, lines = 138, ["cell In [2] failed", "    1 / 0"]


def fail_task(*, how):
    """A task that ends as told."""
    if how == "lines":
        raise CellFailed
    if how == "full disk":
        raise OSError(28, "No space left on device", "a.ipynb")
    fail(None, None, how=how)


def look_around(*, file):
    """A task that writes down what it finds."""
    seen = {
        "parent": os.getppid(),
        "leads": os.getsid(0) == os.getpid(),
        "main": threading.current_thread() is threading.main_thread(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "environment": dict(os.environ),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    Path(file).write_text(json.dumps(seen))


def stop_well(*, file):
    """A task that says in `file` that it began, and then that it was asked to stop."""

    def asked(*_):
        Path(file).write_text("stopped")
        sys.exit(0)

    signal.signal(signal.SIGTERM, asked)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    temporary = Path(file + ".part")
    temporary.write_text(f"{os.getpid()} {child.pid}")
    temporary.rename(file)
    time.sleep(600)
