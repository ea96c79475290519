"""The fork server of the program judge: ``main(TIER, DESCRIPTOR)`` in a bare interpreter.

Two processes. The keeper makes the namespaces, starts the fork server, and clears up after it. The
fork server shuts itself in as far as its work allows, then forks a process for one program after
the other (`sandbox_program`) and waits for its end. Nothing of a program is ever in its memory, so
the next one inherits none.

Its first message over the socket (SOCK_SEQPACKET) is ``{"folder": path}`` or ``{"fatal": reason}``.
After that it only receives: the limits of a program as JSON, with the descriptor of the socket that
the program's process serves.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from typing import NoReturn

from klearlib.verify import sandbox_child, sandbox_program
from klearlib.verify import sandbox_kernel as kernel
from klearlib.verify import sandbox_paths as paths
from klearlib.verify.sandbox_child import Confinement, Limits
from klearlib.verify.sandbox_filter import child_filter, template_filter
from klearlib.verify.sandbox_program import FOLDER_BYTES, FOLDER_ENTRIES, clear_up, remove

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
    has_own_root = tier == "namespaces"
    folder = OWN_FOLDER if has_own_root else _new_folder()
    try:
        if has_own_root:
            _new_namespaces()
        server = os.fork()
        if server:
            control.close()
            _keep(server, None if has_own_root else folder)
        confinement = _confine(tier, folder, has_own_root=has_own_root)
    except (OSError, KeyError) as error:
        control.send(json.dumps({"fatal": str(error)}).encode())
        if not has_own_root:
            remove(folder)
        os._exit(1)
    control.send(json.dumps({"folder": None if has_own_root else folder}).encode())
    _serve(control, confinement)


def _keep(server: int, folder: str | None) -> NoReturn:
    """Wait for the fork server's end and clear up."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(server, signal.SIGKILL))
    os.waitpid(server, 0)
    if folder is not None:
        remove(folder)
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


def _confine(tier: str, folder: str, *, has_own_root: bool) -> Confinement:
    """Shut the fork server in as far as it can work; what is left is for each child to put on."""
    _import(_PRELOADED.split())
    with open("/proc/self/statm", encoding="ascii") as statm:
        address_space = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    sys.path[:] = paths.library_folders()
    if has_own_root:
        kernel.check(kernel.libc.unshare(_NEW_OTHERS), "unshare of the other namespaces")
        paths.enter_private_root(
            folder, folder_bytes=4 * FOLDER_BYTES, folder_entries=4 * FOLDER_ENTRIES
        )
    _drop_privileges(folder)
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    kernel.die_with_parent(signal.SIGKILL)
    kernel.forbid_new_privileges()
    kernel.hide_memory()
    sandbox_child.prepare()
    ruleset = None
    if tier == "landlock" or (has_own_root and kernel.landlock_abi()):
        ruleset = kernel.landlock_ruleset(paths.readable_paths(), paths.DEVICES, folder)
    if tier != "none":
        template_filter().install()
    gc.disable()
    gc.collect()
    gc.freeze()  # so that collections in children copy no page
    return Confinement(
        has_own_root=has_own_root,
        ruleset=ruleset,
        ruleset_flags=kernel.landlock_flags() if ruleset is not None else 0,
        filter=child_filter() if tier != "none" else None,
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
            sandbox_program.serve(socket.socket(fileno=received[0]), limits, confinement, parent)
        os.close(received[0])
        os.waitpid(program, 0)
        clear_up(os.listdir("."), confinement)
