"""What the tests in a browser ask of JupyterLab, of its processes and of git."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from pathlib import Path

PICTURES = Path(os.environ.get("KLEAR_PICTURES", "build/browser")).absolute()


class Lab:
    """A JupyterLab on `clone`; the environment of its processes holds `mark`."""

    def __init__(self, url: str, clone: Path, mark: str):
        self.url, self.clone, self._mark = url, clone, mark.encode()

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api", timeout=5):
                return True
        except OSError:
            return False

    def marked(self) -> set[int]:
        """The processes of make, JupyterLab, kernels, stages and all that they started."""
        found = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self._mark in environ.read_bytes().split(b"\0"):
                    found.add(int(environ.parent.name))
            except OSError:  # it has ended, or is another user's
                continue
        return found


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def wait_for(condition, timeout_s: float, *, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.1)
