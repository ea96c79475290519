"""How programs are kept in: the tiers of isolation, tried for real, strongest first.

- ``namespaces``: a private root, process table and network, made once per judge process;
- ``landlock``: the kernel's access rules for an unprivileged process.

Both add the same system call filter, limits, and loss of privileges. Which of them works depends on
the kernel, the container and the user, so each is tried with a program that must run and one that
tries to get out.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from klearlib.errors import KlearError, MissingAsset
from klearlib.verify.program_judge import ProgramJudge
from klearlib.verify.sandbox_process import SandboxEndedError, SandboxProcess

TIERS = ("namespaces", "landlock")
FORCE = "KLEAR_SANDBOX"
UNSAFE = "KLEAR_RUN_UNTRUSTED_PROGRAMS_WITHOUT_SANDBOX"

_WORKS = "import json, math, random\nprint(json.dumps(sorted(input().split())))"
# Prints what it could do; {secret} and {folder} lie outside the sandbox.
_ESCAPES = """
import ctypes, os, socket
done = []
def attempt(name, action):
    try:
        action()
        done.append(name)
    except (OSError, ValueError):
        pass
attempt("read", lambda: open({secret!r}).read())
attempt("write", lambda: open({secret!r}, "a").close())
attempt("create", lambda: open(os.path.join({folder!r}, "escaped"), "w").close())
attempt("socket", lambda: socket.socket().close())
attempt("signal", lambda: os.kill(os.getppid(), 0))
attempt("limits", lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19))
attempt("kernel", lambda: open("/proc/sys/kernel/core_pattern", "r+").close())
attempt("memory", lambda: open(f"/proc/{{os.getppid()}}/mem", "rb").close())
def fork():
    if os.fork() == 0:
        os._exit(0)
attempt("fork", fork)
print(*done)
"""


class Tier(NamedTuple):
    """The isolation in use: ``namespaces``, ``landlock`` or ``none``; `detail` says more."""

    name: str
    detail: str


def active_tier() -> Tier:
    """The strongest tier that works here, tried once per process tree (about 0.2 s).

    ``KLEAR_SANDBOX=namespaces`` or ``landlock`` asks for that one and no other.

    Raises:
        KlearError: the tier asked for does not work here, or there is no tier of that name.
        MissingAsset: no tier works, and the environment does not say to go without.
    """
    return _find(os.environ.get(FORCE) or None, os.environ.get(UNSAFE))


@cache  # forked processes inherit what was found
def _find(forced: str | None, unsafe: str | None) -> Tier:
    if not sys.platform.startswith("linux"):
        raise MissingAsset("programs are judged on Linux only: use a Linux machine or container")
    if forced is not None:
        if forced not in TIERS:
            raise KlearError(f"{FORCE} must be one of {', '.join(TIERS)}, got {forced!r}")
        reason = _why_not(forced)
        if reason:
            raise KlearError(f"{FORCE}={forced} does not work here ({reason}): unset it")
        return Tier(forced, f"asked for by {FORCE}")
    reasons = []
    for name in TIERS:
        reason = _why_not(name)
        if not reason:
            return Tier(name, "; ".join(reasons))
        reasons.append(f"{name}: {reason}")
    if unsafe == "yes":
        return Tier("none", "; ".join(["NO ISOLATION", *reasons]))
    raise MissingAsset(
        f"no sandbox works here ({'; '.join(reasons)}): use Linux 5.13 or newer with landlock, or, "
        f"for programs that you trust as your own, set {UNSAFE}=yes"
    )


def _why_not(name: str) -> str:
    """Why a tier cannot be used here, "" where it can."""
    try:
        SandboxProcess(name).close()
    except SandboxEndedError as error:
        return str(error)
    with tempfile.TemporaryDirectory(prefix="klear-probe-") as folder:
        secret = Path(folder) / "secret"
        secret.write_text("secret", encoding="utf-8")
        Path(folder).chmod(0o777)
        secret.chmod(0o666)  # only the sandbox is in the way
        escapes = _ESCAPES.format(secret=str(secret), folder=folder)
        judge = ProgramJudge()
        try:
            for source, given, expected in ((_WORKS, "b a", '["a", "b"]'), (escapes, "", "")):
                reply = judge.judge(
                    {
                        "tier": name,
                        "source": source,
                        "entry_point": None,
                        "preset": "python",
                        "prelude": "",
                        "timeout_s": 10.0,
                        "memory_mb": 256,
                        "tests": [{"kind": "stdin", "given": given, "expected": expected}],
                    }
                )
                if reply["outcomes"] != ["passed"]:
                    what = "an escape succeeded" if source is escapes else "no program runs"
                    return f"{what}: {reply['outcomes'][0]} {reply['messages'][0]}".strip()
        finally:
            judge.close()
    return ""
