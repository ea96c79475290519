"""The kernel's interfaces that Python does not wrap, by ctypes: prctl, capabilities, landlock; and
the system calls that a program may not make, as seccomp filters (classic BPF, no library needed).

Two filters stack. `template_filter` denies what neither the fork server nor any program needs and
is installed once; `child_filter` is installed in every forked child and denies what only the fork
server needs: new processes, and signals or settings for any process but the child itself. A call
that is denied gives EPERM, so that a program fails as it would under any other lack of rights.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import stat
import struct
from collections.abc import Iterable, Sequence

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


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends; exit where it has ended already.

    A change of user or capabilities takes it back, so those come first.
    """
    check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(1)


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


class Ruleset:
    """A landlock ruleset: read beneath `readable`, use `devices`, write files in `folder`.

    In `folder` only regular files can be made, so it stays flat. Rights and scopes that this
    kernel's landlock does not know are left out. OSError where it has none.
    """

    def __init__(self, readable: Iterable[str], devices: Iterable[str], folder: str) -> None:
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
        self._ruleset = system_call(
            _SYS_CREATE_RULESET, packed, len(packed), 0, what="landlock_create_ruleset"
        )
        # denials stay out of the audit log where it can be said
        self._flags = _LOG_SAME_EXEC_OFF if abi >= 7 else 0
        in_folder = _READ_FILE | _READ_DIR | _WRITE_FILE | _REMOVE_FILE | _MAKE_REG | _TRUNCATE
        rules = [(path, _READ_FILE | _READ_DIR) for path in readable]
        rules += [(path, _READ_FILE | _WRITE_FILE) for path in devices]
        for path, allowed in [*rules, (folder, in_folder)]:
            _add_rule(self._ruleset, path, allowed & rights)

    def restrict_self(self) -> None:
        """Put this process under it for good."""
        what = "landlock_restrict_self"
        system_call(_SYS_RESTRICT_SELF, self._ruleset, self._flags, what=what)


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


# System call filters

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

# The highest call that these tables know (mseal); a newer one could do anything.
_NEWEST = 462
_CLONE_THREAD = 0x00010000
# CLONE_PTRACE, CLONE_UNTRACED, CLONE_PIDFD, CLONE_PARENT and every CLONE_NEW*.
_CLONE_FORBIDDEN = 0x00002000 | 0x00800000 | 0x00001000 | 0x00008000 | 0x7E020000 | 0x80
_AF_UNIX, _SOCK_TYPE_MASK, _STREAM, _SEQPACKET = 1, 0xF, 1, 5
# F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY: a signal or a hold on somebody else.
_FCNTL_FORBIDDEN = (8, 10, 15, 1024, 1026)
_IOCTL_FORBIDDEN = (0x8901, 0x8902, 0x5412, 0x541C)  # FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX
# PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_GET_TIMERSLACK,
# PR_GET_NO_NEW_PRIVS, PR_SET_VMA (malloc names its maps)
_PRCTL_ALLOWED = (2, 3, 15, 16, 21, 30, 39, 0x53564D41)

_TABLE = {
    "new processes and programs": """
        fork 57/- vfork 58/- clone 56/220 clone3 435/435 execve 59/221 execveat 322/281
    """,
    "sockets, but for pairs of a process's own": """
        socket 41/198 connect 42/203 bind 49/200 listen 50/201 accept 43/202 accept4 288/242
        socketpair 53/199 sendto 44/206
    """,
    "other processes": """
        ptrace 101/117 process_vm_readv 310/270 process_vm_writev 311/271 process_madvise 440/440
        process_mrelease 448/448 pidfd_open 434/434 pidfd_send_signal 424/424 pidfd_getfd 438/438
        kcmp 312/272 get_robust_list 274/100 migrate_pages 256/238 move_pages 279/239 kill 62/129
        tkill 200/130 tgkill 234/131 rt_sigqueueinfo 129/138 rt_tgsigqueueinfo 297/240
        prlimit64 302/261 sched_setaffinity 203/122 sched_setscheduler 144/119
        sched_setparam 142/118 sched_setattr 314/274 setpriority 141/140 ioprio_set 251/30
        fcntl 72/25 ioctl 16/29 prctl 157/167
    """,
    "memory and queues that outlive a process, or that no limit counts": """
        memfd_create 319/279 memfd_secret 447/447 shmget 29/194 shmat 30/196 shmctl 31/195
        shmdt 67/197 semget 64/190 semop 65/193 semctl 66/191 semtimedop 220/192 msgget 68/186
        msgsnd 69/189 msgrcv 70/188 msgctl 71/187 mq_open 240/180 mq_unlink 241/181
        mq_timedsend 242/182 mq_timedreceive 243/183 mq_notify 244/184 mq_getsetattr 245/185
        keyctl 250/219 add_key 248/217 request_key 249/218
    """,
    "mounts, roots and namespaces": """
        mount 165/40 umount2 166/39 mount_setattr 442/442 move_mount 429/429 open_tree 428/428
        fsopen 430/430 fsconfig 431/431 fsmount 432/432 fspick 433/433 statmount 457/457
        listmount 458/458 pivot_root 155/41 chroot 161/51 unshare 272/97 setns 308/268
        name_to_handle_at 303/264 open_by_handle_at 304/265
    """,
    "ways around this filter, and wide doors into the kernel": """
        io_uring_setup 425/425 io_uring_enter 426/426 io_uring_register 427/427 bpf 321/280
        perf_event_open 298/241 userfaultfd 323/282 seccomp 317/277
        landlock_create_ruleset 444/444 landlock_add_rule 445/445
    """,
    "files that are not regular, and attributes of any": """
        chmod 90/- fchmod 91/52 fchmodat 268/53 fchmodat2 452/452 chown 92/- fchown 93/55
        lchown 94/- fchownat 260/54 utime 132/- utimes 235/- utimensat 280/88 futimesat 261/-
        setxattr 188/5 lsetxattr 189/6 fsetxattr 190/7 removexattr 197/14 lremovexattr 198/15
        fremovexattr 199/16 truncate 76/45 mknod 133/- mknodat 259/33 mkdir 83/- mkdirat 258/34
        symlink 88/- symlinkat 266/36 link 86/- linkat 265/37
    """,
    "watching and flushing file systems": """
        fanotify_init 300/262 fanotify_mark 301/263 inotify_init 253/- inotify_init1 294/26
        inotify_add_watch 254/27 sync 162/81 syncfs 306/267
    """,
    "the machine's own affairs": """
        reboot 169/142 settimeofday 164/170 clock_settime 227/112 adjtimex 159/171
        clock_adjtime 305/266 create_module 174/- init_module 175/105 finit_module 313/273
        delete_module 176/106 get_kernel_syms 177/- query_module 178/- kexec_load 246/104
        kexec_file_load 320/294 quotactl 179/60 quotactl_fd 443/443 swapon 167/224 swapoff 168/225
        acct 163/89 syslog 103/116 sethostname 170/161 setdomainname 171/162 iopl 172/-
        ioperm 173/- modify_ldt 154/- personality 135/92 vhangup 153/58 lookup_dcookie 212/18
        nfsservctl 180/42 uselib 134/- ustat 136/- sysfs 139/- _sysctl 156/-
    """,
    "users and capabilities": """
        setuid 105/146 setgid 106/144 setreuid 113/145 setregid 114/143 setresuid 117/147
        setresgid 119/149 setgroups 116/159 setfsuid 122/151 setfsgid 123/152 capset 126/91
    """,
}
"""The calls with a rule, by what they could reach: names and numbers on x86_64/aarch64, a dash
where the machine has no such call."""
_words = " ".join(_TABLE.values()).split()
_CALLS = {
    name: [int(number) if number != "-" else None for number in numbers.split("/")]
    for name, numbers in zip(_words[::2], _words[1::2], strict=True)
}
# The machine's name -> (column of _CALLS, AUDIT_ARCH_*)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# Calls that get rules of their own, or that the fork server makes itself.
_NOT_PLAIN = {"clone3", "socketpair", "sendto", "fcntl", "ioctl"}
_BY_CHILD_ONLY = {"fork", "vfork", "clone", "pidfd_open", "pidfd_send_signal", "prctl"}
_PID_FIRST = {"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"}
_PID_FIRST_OR_ZERO = {"prlimit64", "sched_setaffinity", "sched_setscheduler"}
_PID_FIRST_OR_ZERO |= {"sched_setparam", "sched_setattr"}

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant
_ALLOWED = (_RETURN, 0, 0, _ALLOW)


class _FilterCode(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint32),
    )


class _FilterProgram(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_FilterCode)))


class Filter:
    """A filter ready to be installed, with as little work as a forked child can have."""

    def __init__(self, code: ctypes.Array, pid_slots: tuple[int, ...]) -> None:
        self._program = _FilterProgram(len(code), code)
        self._address = ctypes.addressof(self._program)
        # Every instruction is two words, of which its constant is the second.
        self._words = memoryview(code).cast("B").cast("I")
        self._pid_words = tuple(2 * slot + 1 for slot in pid_slots)

    def install(self, pid: int = 0) -> None:
        """Put this thread, and all that it starts, under the filter; OSError where refused.

        `pid` is the process that may signal itself. The caller has set no_new_privs before.
        """
        for word in self._pid_words:
            self._words[word] = pid
        address = ctypes.c_void_p(self._address)
        check(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, address, 0, 0), "prctl(PR_SET_SECCOMP)")


def template_filter() -> Filter:
    """Denies what neither the fork server nor a program needs; OSError on an unknown machine."""
    separate = _NOT_PLAIN | _BY_CHILD_ONLY | _PID_FIRST | _PID_FIRST_OR_ZERO | {"setpriority"}
    rules = [
        _rule([name for name in _CALLS if name not in separate], [_deny()]),
        _rule("clone3", [_deny(errno.ENOSYS)]),  # its flags lie in memory; glibc falls back
        _rule(
            "socketpair",
            [
                _load_argument(0),
                (_EQUAL, 1, 0, _AF_UNIX),
                _deny(),
                _load_argument(1),
                (_AND, 0, 0, _SOCK_TYPE_MASK),
                (_EQUAL, 1, 0, _STREAM),  # a datagram could name a receiver
                (_EQUAL, 0, 1, _SEQPACKET),
                _ALLOWED,
                _deny(),
            ],
        ),
        _rule(
            "sendto",
            [
                _load_argument(4),
                (_EQUAL, 0, 2, 0),
                _load_argument(4, high=True),
                (_EQUAL, 1, 0, 0),
                _deny(),
                _ALLOWED,
            ],
        ),
        _rule("fcntl", _unless_in(1, _FCNTL_FORBIDDEN)),
        _rule("ioctl", _unless_in(1, _IOCTL_FORBIDDEN)),
    ]
    return _assemble(rules)


def child_filter() -> Filter:
    """Denies new processes, and signals and settings for any process but the child's own."""
    rules = [
        _rule(sorted(_BY_CHILD_ONLY - {"clone", "prctl"}), [_deny()]),
        _rule(
            "clone",
            [
                _load_argument(0),
                (_ANY_BIT, 1, 0, _CLONE_FORBIDDEN),
                (_ANY_BIT, 1, 0, _CLONE_THREAD),
                _deny(),
                _ALLOWED,
            ],
        ),
        _rule("prctl", [_load_argument(0), *_any_of(_PRCTL_ALLOWED, [_ALLOWED]), _deny()]),
        _rule("setpriority", [_load_argument(0), (_EQUAL, 1, 0, 0), _deny(), *_own_pid(1)]),
        _rule(sorted(_PID_FIRST), _own_pid(0, or_zero=False)),
        _rule(sorted(_PID_FIRST_OR_ZERO), _own_pid(0)),
    ]
    return _assemble(rules)


_PID = object()  # stands for the child's pid, which is known when the filter is installed


def _own_pid(argument: int, *, or_zero: bool = True) -> list:
    zero = [(_EQUAL, 0, 1, 0), _ALLOWED] if or_zero else []
    return [_load_argument(argument), *zero, (_EQUAL, 0, 1, _PID), _ALLOWED, _deny()]


def _unless_in(argument: int, values: tuple[int, ...]) -> list:
    return [_load_argument(argument), *_any_of(values, [_deny()]), _ALLOWED]


def _any_of(values: Sequence[int], body: list) -> list:
    """`body` where what was loaded is one of `values`, else what follows it."""
    left = len(values) - 1
    return [
        *((_EQUAL, left - i, 0, value) for i, value in enumerate(values[:-1])),
        (_EQUAL, 0, len(body), values[-1]),
        *body,
    ]


def _load_argument(index: int, *, high: bool = False) -> _Instruction:
    # Both machines are little-endian: the low half comes first.
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index + 4 * high)


def _deny(number: int = errno.EPERM) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _rule(names: str | Sequence[str], body: list) -> list:
    """`body` for the calls `names`, skipped for all others; it ends in a return on every way."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {machine}")
    column = _MACHINES[machine][0]
    numbers = [_CALLS[name][column] for name in ([names] if isinstance(names, str) else names)]
    known = [number for number in numbers if number is not None]
    return _any_of(known, body) if known else []


def _assemble(rules: list[list]) -> Filter:
    steps = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, _MACHINES[platform.machine()][1]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_ABOVE, 0, 1, _NEWEST),  # the x32 calls of x86_64 lie above it too
        _deny(errno.ENOSYS),
        *(step for rule in rules for step in rule),
        _ALLOWED,
    ]
    slots = tuple(i for i, step in enumerate(steps) if step[3] is _PID)
    code = (_FilterCode * len(steps))(
        *((op, jt, jf, 0 if k is _PID else k) for op, jt, jf, k in steps)
    )
    return Filter(code, slots)
