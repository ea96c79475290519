"""Peers of a benchmark: a process each, with one thread and an environment of its own.

A side is a module of this folder. Its function `serve` gets `arguments` and reads its tasks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MARK = "@@"  # begins the lines of a worker that are answers; peers print others


class Worker:
    """A side that does one task for each JSON line that it reads, and answers with one."""

    def __init__(self, python: str, side: str, *arguments: str) -> None:
        here = Path(__file__).parent
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (here, here.parent))),
        }
        self._process = subprocess.Popen(
            [python, "-c", f"import sys, {side}; {side}.serve(*sys.argv[1:])", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_) -> None:
        self._process.stdin.close()  # a worker ends with its input
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tell(self, **task) -> None:
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()

    def ask(self, **task) -> dict:
        """The answer to `task`; RuntimeError if the worker ended."""
        self.tell(**task)
        for line in self._process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")


def next_task() -> dict | None:
    """In a worker: the next task, None where there is no more."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def answer(**values) -> None:
    print(MARK + json.dumps(values), flush=True)


def peer_python(
    peer: str, given: str | None, folder: Path, *requirements: str, install: bool
) -> str | None:
    """`given`, or the interpreter of an environment in `folder` with the `requirements`, which with
    `install` is made if it does not exist. None, after a line that says so, if there is none."""
    if given:
        return given
    python = folder / "bin" / "python"
    done = folder / ".complete"
    if install and not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", *requirements]
        if subprocess.run(pip).returncode == 0:
            done.touch()
    if done.exists():
        return str(python)
    print(f"{peer} is left out: there is no {folder.name}, and no interpreter was named")
    return None
