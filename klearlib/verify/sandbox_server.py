"""The fork server of the program judge: ``main(TIER, DESCRIPTOR)`` in a bare interpreter.

Three kinds of process. The keeper makes the namespaces, starts the fork server, and clears up after
it. The fork server shuts itself in as far as its work allows, then forks a process for one program
after the other and waits for its end. Nothing of a program is ever in its memory, so the next one
inherits none. Its first message over the socket (SOCK_SEQPACKET) is ``{"folder": path}`` or
``{"fatal": reason}``; after that it only receives: the limits of a program as JSON, with the
descriptor of the socket that the program's process serves.

The process of one program holds its code, forks a child for each part of a test, keeps the clock,
and says how the child ended. It runs nothing of the program, and no input or output of a test is
ever in its memory: it passes descriptors on. Between two tests it does as little as it can, because
each page of memory that it touches after a fork is copied. Messages over its socket are
`REQUEST`s: a place in `REQUESTS`, a key, seconds. A word of `sandbox_child.ROLES` comes with the
descriptors of stdin, stdout, report and, for some, of the source or of a channel; ``load`` with
that of the compiled code, which later children inherit. `ENDING`s come back: key, status,
timed_out, folder_full, CPU seconds.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import importlib
import json
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from klearlib.verify import sandbox_child
from klearlib.verify import sandbox_kernel as kernel
from klearlib.verify import sandbox_paths as paths
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

REQUESTS = (*ROLES, "load", "stop")
REQUEST = struct.Struct("=Bqd")
ENDING = struct.Struct("=qi??d")
FOLDER_BYTES = 64 << 20
FOLDER_ENTRIES = 1000
MAX_STRETCH = 5.0  # times the limit, at most, where others have the cores
_LOOK_EVERY_S = 0.05
_PLACES = (0, 1, REPORT, CHANNEL)
_ANCILLARY_BYTES = socket.CMSG_SPACE(len(_PLACES) * array.array("i").itemsize)
FOLDER_PREFIX = "klear-program-"
OWN_FOLDER = "/program"
_NOBODY = 65534
_MAX_MESSAGE_BYTES = 1 << 16
_NEW_USER, _NEW_PID = 0x10000000, 0x20000000
# Mount, network, IPC, host name, cgroup.
_NEW_OTHERS = 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
# What most programs import: a child finds them loaded.
_PRELOADED = "bisect collections copy functools heapq itertools math operator re string typing"


def main(tier: str, descriptor: int) -> None:
    """Serve until the other end of the socket `descriptor` is closed; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # above the descriptors that children get
    control = socket.socket(fileno=fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64))
    os.close(descriptor)
    folder = None if tier == "namespaces" else _new_folder()  # in a root of its own it is gone too
    try:
        if folder is None:
            _new_namespaces()
        server = os.fork()
        if server:
            control.close()
            _keep(server, folder)
        confinement = _confine(tier, folder)
    except (OSError, KeyError) as error:
        control.send(json.dumps({"fatal": str(error)}).encode())
        _remove(folder)
        os._exit(1)
    control.send(json.dumps({"folder": folder}).encode())
    _serve(control, confinement)


def _keep(server: int, folder: str | None) -> NoReturn:
    """Wait for the fork server's end and clear up."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(server, signal.SIGKILL))
    os.waitpid(server, 0)
    _remove(folder)
    os._exit(0)


def _new_folder() -> str:
    # The module tempfile would be in the memory that every child copies.
    parent = os.environ.get("TMPDIR") or "/tmp"
    folder = os.path.join(parent, FOLDER_PREFIX + os.urandom(8).hex())
    os.mkdir(folder, 0o700)
    return folder


def _new_namespaces() -> None:
    """Namespaces for the next child; a plain user gets them within a user namespace."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 and kernel.libc.unshare(_NEW_PID) == 0:  # root needs no user namespace
        return
    kernel.check(
        kernel.libc.unshare(_NEW_USER | _NEW_PID), "unshare of a user and a process namespace"
    )
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _confine(tier: str, folder: str | None) -> Confinement:
    """Shut the fork server in as far as it can work; what is left is for each child to put on."""
    _import(_PRELOADED.split())
    with open("/proc/self/statm", encoding="ascii") as statm:
        address_space = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    sys.path[:] = paths.library_folders()
    has_own_root = folder is None
    if has_own_root:
        folder = OWN_FOLDER
        kernel.check(kernel.libc.unshare(_NEW_OTHERS), "unshare of the other namespaces")
        paths.enter_private_root(
            folder, folder_bytes=4 * FOLDER_BYTES, folder_entries=4 * FOLDER_ENTRIES
        )
    _drop_privileges(folder)
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder, MPLCONFIGDIR=folder)
    kernel.die_with_parent(os.getppid())
    kernel.forbid_new_privileges()
    kernel.hide_memory()
    sandbox_child.prepare()
    ruleset = None
    if tier == "landlock" or (has_own_root and kernel.landlock_abi()):
        ruleset = kernel.Ruleset(paths.readable_paths(), paths.DEVICES, folder)
    if tier != "none":
        kernel.template_filter().install()
    gc.disable()
    gc.collect()
    gc.freeze()  # so that collections in children copy no page
    return Confinement(
        has_own_root=has_own_root,
        ruleset=ruleset,
        filter=kernel.child_filter() if tier != "none" else None,
        address_space=address_space,
    )


def _import(modules: Iterable[str]) -> None:
    before = len(sys.modules)
    for name in modules:
        with contextlib.suppress(ImportError):  # the prelude will say so
            importlib.import_module(name)
    if len(sys.modules) > before:
        gc.freeze()


def _drop_privileges(folder: str) -> None:
    """From root to nobody where nobody can read Python and its packages, else to root without
    capabilities."""
    if os.geteuid() == 0 and _is_possible_as_nobody(folder):
        os.chown(folder, _NOBODY, _NOBODY)
        _become_nobody()
    else:
        kernel.drop_capabilities()


def _is_possible_as_nobody(folder: str) -> bool:
    child = os.fork()
    if child == 0:
        try:
            _become_nobody()
            with open(os.__file__, "rb"):
                os.stat(folder)
            for place in filter(os.path.isdir, paths.library_folders()):
                os.listdir(place)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _serve(control: socket.socket, confinement: Confinement) -> NoReturn:
    """One program after the other until the judge is gone."""
    parent = os.getpid()
    while True:
        message, received, _, _ = socket.recv_fds(control, _MAX_MESSAGE_BYTES, 1)
        if not message:
            os._exit(0)
        limits = Limits(**json.loads(message))
        _import(limits.modules)
        program = os.fork()
        if program == 0:
            os.close(control.detach())
            _serve_program(socket.socket(fileno=received[0]), limits, confinement, parent)
        os.close(received[0])
        os.waitpid(program, 0)
        _clear_up(os.listdir("."), confinement)


@dataclass
class _Child:
    key: int
    pid: int
    started: float
    timeout_s: float
    deadline: float
    timed_out: bool = False
    folder_full: bool = False


def _serve_program(
    control: socket.socket, limits: Limits, confinement: Confinement, parent_pid: int
) -> NoReturn:
    """Fork, watch and reap until the judge is done with the program."""
    kernel.die_with_parent(parent_pid)
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


def _clear_up(names: list[str], confinement: Confinement) -> None:
    """Leave no process and no file of the last test; `names` are the files of its folder."""
    if confinement.has_own_root:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    for name in names:
        try:
            os.unlink(name)
        except IsADirectoryError:  # only without a sandbox can a program make one
            _remove(name)


def _remove(folder: str | None) -> None:
    """Remove a folder, if there is one, with all that it holds."""
    if folder is not None:
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
        _clear_up(names, confinement)
    reply = ENDING.pack(
        child.key,
        os.waitstatus_to_exitcode(status),
        child.timed_out,
        folder_full,
        usage.ru_utime + usage.ru_stime,
    )
    with contextlib.suppress(BrokenPipeError):  # the next poll sees that the judge is gone
        control.send(reply)
