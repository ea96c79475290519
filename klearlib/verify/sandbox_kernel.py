"""The kernel's interfaces that Python does not wrap, by ctypes: prctl, capabilities, landlock."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x20080522
_NUM_CAPABILITIES = 64

_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH, _LOG_SAME_EXEC_OFF = 1, 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_REG, _TRUNCATE = 1 << 5, 1 << 8, 1 << 14
# ABI -> the rights to files that exist from it on, as the number of bits in use.
_FILE_RIGHTS_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP_RIGHTS, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals


def check(result: int, what: str) -> int:
    """`result` of a C call, or OSError with errno where it is -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def system_call(number: int, *arguments: object, what: str) -> int:
    """A system call by its number; integers are passed as longs."""
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check(libc.syscall(ctypes.c_long(number), *passed), what)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send `signal_number` to this process when its parent ends.

    A change of user or capabilities takes it back, so those come first.
    """
    check(libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def forbid_new_privileges() -> None:
    """no_new_privs, without which neither seccomp nor landlock can be used without root."""
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def hide_memory() -> None:
    """Keep other processes of this user out of this one's memory, also by /proc."""
    check(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def drop_capabilities() -> None:
    """Give up all capabilities for good."""
    for capability in range(_NUM_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails where there is none to drop
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    number = _SYS_CAPSET[os.uname().machine]
    system_call(number, header, struct.pack("=6I", *[0] * 6), what="capset")


def landlock_abi() -> int:
    """The version of landlock that this kernel offers, 0 where it has none."""
    number, size, flags = map(ctypes.c_long, (_SYS_CREATE_RULESET, 0, _CREATE_RULESET_VERSION))
    return max(0, libc.syscall(number, None, size, flags))


def landlock_ruleset(readable: Iterable[str], devices: Iterable[str], folder: str) -> int:
    """A ruleset's descriptor: read beneath `readable`, use `devices`, write files in `folder`.

    In `folder` only regular files can be made, so it stays flat. Rights and scopes that this
    kernel's landlock does not know are left out. OSError where it has none.
    """
    abi = landlock_abi()
    if not abi:
        raise OSError(ctypes.get_errno(), "this kernel has no landlock, or it is switched off")
    rights = (1 << _FILE_RIGHTS_BITS[min(abi, max(_FILE_RIGHTS_BITS))]) - 1
    attributes = [rights]
    if abi >= 4:
        attributes.append(_TCP_RIGHTS)  # handled, so denied unless a rule allows them
    if abi >= 6:
        attributes.append(_SCOPES)  # no signals to, no sockets of, others
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    ruleset = system_call(
        _SYS_CREATE_RULESET, packed, len(packed), 0, what="landlock_create_ruleset"
    )
    in_folder = _READ_FILE | _READ_DIR | _WRITE_FILE | _REMOVE_FILE | _MAKE_REG | _TRUNCATE
    rules = [(path, _READ_FILE | _READ_DIR) for path in readable]
    rules += [(path, _READ_FILE | _WRITE_FILE) for path in devices]
    for path, allowed in [*rules, (folder, in_folder)]:
        _add_rule(ruleset, path, allowed & rights)
    return ruleset


def _add_rule(ruleset: int, path: str, allowed: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            allowed &= _READ_FILE | _WRITE_FILE | _TRUNCATE
        rule = struct.pack("=Qi", allowed, descriptor)
        system_call(
            _SYS_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0, what=f"landlock rule for {path}"
        )
    finally:
        os.close(descriptor)


def landlock_flags() -> int:
    """The flags for `restrict_self`: denials stay out of the audit log where it can be said."""
    return _LOG_SAME_EXEC_OFF if landlock_abi() >= 7 else 0


def restrict_self(ruleset: int, flags: int) -> None:
    """Put this process under a ruleset for good."""
    system_call(_SYS_RESTRICT_SELF, ruleset, flags, what="landlock_restrict_self")
