"""The signals that ask to stop, whoever sends them, and the death of a parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

ASKED = (signal.SIGTERM, signal.SIGINT)
LEFT = (signal.SIGHUP, signal.SIGQUIT)
"""What a terminal sends when it is closed, or on Ctrl-\\; nohup ignores the first, and it stays
ignored."""
_PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def on_stop(handler: Callable[[int, object], object]) -> Iterator[None]:
    """Signals that ask to stop call `handler` in the block, only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left = [number for number in LEFT if signal.getsignal(number) is not signal.SIG_IGN]
    known = {number: signal.signal(number, handler) for number in (*ASKED, *left)}
    try:
        yield
    finally:
        for number, its_own in known.items():
            signal.signal(number, its_own)


def die_with(parent: int) -> None:
    """On Linux, have the kernel kill this process with its `parent`; exit if the parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # it died before the line above
