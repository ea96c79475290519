"""The sandbox's process of one program: it holds the program's code and forks a child for each part
of a test, keeps the clock, and says how the child ended.

It runs nothing of the program, and no input or output of a test is ever in its memory: it passes
descriptors on. Between two tests it does as little as it can, because each page of memory that it
touches after a fork is copied.

Messages over its socket (SOCK_SEQPACKET) are `REQUEST`s: a place in `REQUESTS`, a key, seconds. A
word of `sandbox_child.ROLES` comes with the descriptors of stdin, stdout, report and, for some, of
the source or of a channel; ``load`` with that of the compiled code, which later children inherit.
`ENDING`s come back: key, status, timed_out, folder_full, CPU seconds.
"""

from __future__ import annotations

import array
import contextlib
import gc
import marshal
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from klearlib.verify.sandbox_child import (
    CHANNEL,
    REPORT,
    ROLES,
    Codes,
    Confinement,
    Limits,
    limit,
    play,
    shut_in,
)
from klearlib.verify.sandbox_kernel import die_with_parent

REQUESTS = (*ROLES, "load", "stop")
REQUEST = struct.Struct("=Bqd")
ENDING = struct.Struct("=qi??d")
FOLDER_BYTES = 64 << 20
FOLDER_ENTRIES = 1000
MAX_STRETCH = 5.0  # times the limit, at most, where others have the cores
_LOOK_EVERY_S = 0.05
_PLACES = (0, 1, REPORT, CHANNEL)
_ANCILLARY_BYTES = socket.CMSG_SPACE(len(_PLACES) * array.array("i").itemsize)


@dataclass
class _Child:
    key: int
    pid: int
    started: float
    timeout_s: float
    deadline: float
    timed_out: bool = False
    folder_full: bool = False


def serve(
    control: socket.socket, limits: Limits, confinement: Confinement, parent_pid: int
) -> NoReturn:
    """Fork, watch and reap until the judge is done with the program."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
    address_space = confinement.address_space + limits.memory_bytes
    limit(resource.RLIMIT_AS, address_space, address_space)
    codes: Codes | None = None
    children: dict[int, _Child] = {}
    poller = select.poll()
    poller.register(control, select.POLLIN)
    own_pid = os.getpid()
    while True:
        events = poller.poll(_patience_ms(children))
        for descriptor, _ in events:
            if descriptor in children:
                poller.unregister(descriptor)
                os.close(descriptor)
                child = children.pop(descriptor)
                _reap(child, control, confinement, is_last=not children)
                continue
            message, ancillary, _, _ = control.recvmsg(REQUEST.size, _ANCILLARY_BYTES)
            if not message:
                _kill(children.values())
                os._exit(0)
            place, key, timeout_s = REQUEST.unpack(message)
            received = array.array("i", ancillary[0][2] if ancillary else b"")
            name = REQUESTS[place]
            if name == "stop":
                _kill(child for child in children.values() if child.key == key)
                continue
            if name == "load":
                codes = _load(received[0])
                os.close(received[0])
                gc.freeze()  # a child's collection at its end looks at what is the child's own
                status = 0 if codes is not None else 1
                control.send(ENDING.pack(key, status, False, False, 0.0))
                continue
            started = time.monotonic()
            pid = os.fork()
            if pid == 0:
                control.detach()  # closed with all others; its object would warn of that
                _place(received)
                shut_in(limits, confinement, own_pid, name)
                play(name, limits, codes)  # a return would touch more pages
            for sent in received:
                os.close(sent)
            pidfd = os.pidfd_open(pid)  # readable at its end; a pid could be another's by then
            poller.register(pidfd, select.POLLIN)
            children[pidfd] = _Child(key, pid, started, timeout_s, started + timeout_s)
        if not events:
            for child in children.values():
                _watch(child)


def clear_up(names: list[str], confinement: Confinement) -> None:
    """Leave no process and no file of the last test; `names` are the files of its folder."""
    if confinement.has_own_root:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    for name in names:
        try:
            os.unlink(name)
        except IsADirectoryError:  # only without a sandbox can a program make one
            remove(name)


def remove(folder: str) -> None:
    """Remove a folder with all that it holds."""
    # Here, since a module in this process's memory is one that every child copies.
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _kill(children: Iterable[_Child]) -> None:
    for child in children:
        os.kill(child.pid, signal.SIGKILL)


def _load(descriptor: int) -> Codes | None:
    """The code that a compiling child wrote; None where the memory does not suffice."""
    try:
        return marshal.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    except MemoryError:
        return None


def _patience_ms(children: dict[int, _Child]) -> float | None:
    if not children:
        return None
    nearest = min(child.deadline for child in children.values()) - time.monotonic()
    return max(0.0, min(nearest, _LOOK_EVERY_S)) * 1000 + 0.5


def _place(received: array.array) -> None:
    """Put a child's descriptors where it looks for them; those places are kept free for them."""
    for descriptor, place in zip(received, _PLACES, strict=False):
        os.dup2(descriptor, place)
    if len(received) < len(_PLACES):
        os.close(CHANNEL)


def _watch(child: _Child) -> None:
    """Kill a child whose time is over or whose files are too large."""
    now = time.monotonic()
    if not child.folder_full and _is_folder_full(os.listdir(".")):
        child.folder_full = True
        os.kill(child.pid, signal.SIGKILL)
    if now < child.deadline or child.timed_out:
        return
    stretch = min(seconds_without_core(child.pid), (MAX_STRETCH - 1) * child.timeout_s)
    child.deadline = child.started + child.timeout_s + stretch
    if now >= child.deadline:
        child.timed_out = True
        child.deadline = float("inf")  # it is killed once
        os.kill(child.pid, signal.SIGKILL)


def seconds_without_core(pid: int) -> float:
    """How long a process was ready to run while others had the cores; 0 where nobody says."""
    longest = 0
    with contextlib.suppress(OSError, IndexError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as schedstat:
                longest = max(longest, int(schedstat.read().split()[1]))
    return longest / 1e9


def _is_folder_full(names: list[str]) -> bool:
    size = 0
    for name in names[: FOLDER_ENTRIES + 1]:
        with contextlib.suppress(OSError):
            size += os.lstat(name).st_blocks * 512
    return size > FOLDER_BYTES or len(names) > FOLDER_ENTRIES


def _reap(
    child: _Child, control: socket.socket, confinement: Confinement, *, is_last: bool
) -> None:
    _, status, usage = os.wait4(child.pid, 0)
    names = os.listdir(".")
    folder_full = child.folder_full or bool(names and _is_folder_full(names))
    if is_last:
        clear_up(names, confinement)
    reply = ENDING.pack(
        child.key,
        os.waitstatus_to_exitcode(status),
        child.timed_out,
        folder_full,
        usage.ru_utime + usage.ru_stime,
    )
    with contextlib.suppress(BrokenPipeError):  # the next poll sees that the judge is gone
        control.send(reply)
