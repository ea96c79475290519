"""What runs on this machine, by /proc."""

import time
from pathlib import Path

import pytest

one_tier_is_slow = pytest.mark.parametrize(
    "tier", ["namespaces", pytest.param("landlock", marks=pytest.mark.slow)], indirect=True
)
"""For what does not depend on the tier; the attacks meet both in the fast run too."""


def is_running(pid: int) -> bool:
    """Whether `pid` is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """The running processes that `pid` started, and theirs, parents first."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found = [pid]
    for ancestor in found:
        found += [child for child, parent in parents.items() if parent == ancestor]
    return found[1:]


def wait_until(condition, timeout_s: float = 10.0) -> bool:
    """Whether `condition` holds before the time is up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False
