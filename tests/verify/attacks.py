"""Adversarial programs, each named by what it attacks.

A program that reaches for the outside prints ``escaped`` where it got there and ``blocked`` where
the system refused, and its test expects ``blocked``: it passes if, and only if, the sandbox holds.
`run_attacks` looks in addition at what the programs reached for. All others are cheats, output
games and bombs with the outcome that they must get.

In a source, ``@FOLDER@`` is a world-writable folder outside the sandbox (with ``secret``,
``gate.sock`` and ``packets.sock`` in it), ``@PORT@`` a port on which the machine listens,
``@FREE@`` one on which nobody does, ``@PID@`` a process of the judging user, ``@ROOT@`` this
repository.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace

from klearlib.records import TestCase


@dataclass(frozen=True)
class Attack:
    """`outcomes`: one word for each test, or several words with `why` they are all legitimate."""

    name: str
    source: str
    tests: tuple[TestCase, ...]
    outcomes: tuple[str | tuple[str, ...], ...]
    entry_point: str | None = None
    timeout_s: float = 10.0
    memory_mb: int = 256
    why: str = ""
    theme: str = "honest"


SQUARES = (TestCase("9", stdin="3"), TestCase("16", stdin="-4"))
ANSWERS = (TestCase("YES", stdin="1"), TestCase("NO", stdin="2"))
CALLS = (TestCase("9", call="[3]"), TestCase("16", call="[-4]"))
ASSERTS = (TestCase(asserts="assert square(3) == 9\nassert candidate(-4) == 16"),)
SECRET = "the expected output is 271828"


def prints(name, source, *outcomes, tests=SQUARES, **options) -> Attack:
    """A program that is tested by what it prints; one outcome stands for all tests."""
    words = outcomes * len(tests) if len(outcomes) == 1 else outcomes
    return Attack(name, textwrap.dedent(source).strip("\n") + "\n", tests, words, **options)


def returns(name, source, *outcomes, tests=CALLS, **options) -> Attack:
    """A program whose function ``square`` is tested, by call or by asserts."""
    return prints(name, source, *outcomes, tests=tests, entry_point="square", **options)


_REACH = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    if isinstance(function, str):
        function = getattr(libc, function)
    result = function(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def system_call(x86_64, aarch64, *arguments):
    number = aarch64 if os.uname().machine == "aarch64" else x86_64
    return call(libc.syscall, ctypes.c_long(number), *arguments)
def main():
%s
try:
    main()
    print("escaped")
except OSError:
    print("blocked")
"""


def reaches(name, body, **options) -> Attack:
    """A program that passes if `body` raises OSError."""
    body = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    tests = (TestCase("blocked", stdin=""),)
    return Attack(name, _REACH.lstrip("\n") % body, tests, ("passed",), **options)


FAKE_SUCCESS = [
    prints("sys.exit before printing", "import sys; sys.exit(0)", "wrong_answer"),
    prints("os._exit before printing", "import os; os._exit(0)", "wrong_answer"),
    prints("exit status of a failure hidden by atexit", """
        import atexit, os
        atexit.register(os._exit, 0)
        print(int(input()) ** 2 + 1)
        """, "wrong_answer"),
    prints("exec of a new interpreter with -O", """
        import os, sys
        os.execv(sys.executable, [sys.executable, "-O", "-c", "print(9)"])
        """, "runtime_error"),
    prints("subprocess that prints the answer", """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "print(9)"], check=True)
        """, "runtime_error"),
    prints("excepthook that exits with 0", """
        import os, sys
        sys.excepthook = lambda *_: os._exit(0)
        raise ValueError
        """, "runtime_error"),
    prints("SystemExit subclass with a lying code", """
        class Success(SystemExit):
            code = 0
        raise Success(1)
        """, ("wrong_answer", "runtime_error"), why="its code may be what it says"),
    prints("closing standard output", """
        import os
        os.close(1)
        """, ("wrong_answer", "runtime_error"), why="the last flush may fail"),
    prints("writing words of success to every descriptor", """
        import os
        for descriptor in range(3, 256):
            for text in (b"passed\\n", b'{"status": 0, "key": 1}\\n', b"value\\n9", b"token\\n"):
                try:
                    os.write(descriptor, text)
                    os.pwrite(descriptor, text, 0)
                except OSError:
                    pass
        """, ("wrong_answer", "runtime_error"), why="a forged report may only be its own failure"),
    returns("exit within an assert test", """
        import os
        def square(n):
            os._exit(0)
        """, "runtime_error", tests=ASSERTS),
    returns("AssertionError replaced", """
        import builtins
        builtins.AssertionError = type("Quiet", (Exception,), {})
        def square(n):
            return 0
        """, "wrong_answer", tests=ASSERTS),
    returns("frames of the caller set to success", """
        import sys
        def square(n):
            frame = sys._getframe()
            while frame:
                for name in list(frame.f_locals):
                    if name in ("status", "word", "passed", "result"):
                        frame.f_locals[name] = 0
                frame = frame.f_back
            return 0
        """, "wrong_answer"),
    returns("reply to an assert test before it asks", """
        import os
        for descriptor in range(3, 16):
            try:
                os.write(descriptor, b'{"result": 9}\\n{"result": 16}\\n')
            except OSError:
                pass
        os._exit(0)
        """, ("runtime_error", "wrong_answer"), tests=ASSERTS,
        why="a message out of turn is as good as a wrong result"),
]  # fmt: skip


STEALING = [
    prints("frames above the program", """
        import sys
        frame, seen = sys._getframe(), []
        while frame:
            seen += [str(v) for v in (*frame.f_locals.values(), *frame.f_globals.values())]
            frame = frame.f_back
        mark = str(271 * 1000 + 828)
        print(mark if any(mark in text for text in seen) else "nothing")
        """, "wrong_answer", tests=(TestCase("271828", stdin=""),)),
    prints("gc.get_objects", """
        import gc
        mark = str(271 * 1000 + 827)
        found = [o for o in gc.get_objects() if isinstance(o, (dict, list, tuple))]
        texts = [v for o in found for v in (o.values() if isinstance(o, dict) else o)]
        print(next((t for t in texts if isinstance(t, str) and t.startswith(mark)), "nothing"))
        """, "wrong_answer", tests=(TestCase("2718279", stdin=""),)),
    prints("own memory by /proc/self/mem", """
        import re
        try:
            maps = [line.split()[0].split("-") for line in open("/proc/self/maps") if " rw" in line]
            found = []
            with open("/proc/self/mem", "rb") as memory:
                for low, high in maps:
                    memory.seek(int(low, 16))
                    try:
                        text = memory.read(int(high, 16) - int(low, 16))
                    except OSError:
                        continue
                    found += re.findall(rb"EXPECTED-\\d\\d", text)
            print(found[0].decode() if found else "nothing")
        except OSError:
            print("nothing")
        """, "wrong_answer", tests=(TestCase("EXPECTED-31", stdin=""),)),
    prints("environment variables", f"""
        import os
        print({SECRET!r} if any("271828" in value for value in os.environ.values()) else "nothing")
        """, "wrong_answer", tests=(TestCase(SECRET, stdin=""),)),
    reaches("environment and command line of all processes", """
        import re
        for pid in [p for p in os.listdir("/proc") if p.isdigit() and p != str(os.getpid())]:
            text = open(f"/proc/{pid}/environ", "rb").read()
            if re.search(b"KLEAR|PWD|USER", text + open(f"/proc/{pid}/cmdline", "rb").read()):
                return
        raise OSError
        """),
    reaches("memory of the parent", 'open(f"/proc/{os.getppid()}/mem", "rb").close()'),
    reaches("memory of any other process", """
        for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
            try:
                return open(f"/proc/{pid}/mem", "rb").close()
            except OSError:
                pass
        raise OSError
        """),
    reaches("descriptors of any other process", """
        for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
            for number in range(8):
                try:
                    return os.close(os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY))
                except OSError:
                    pass
        raise OSError
        """),
    reaches("descriptors that were left open", """
        import stat
        for number in range(3, 1024):
            try:
                kind = os.fstat(number).st_mode
            except OSError:
                continue
            if not stat.S_ISREG(kind) or os.pread(number, 1 << 16, 0).strip() != b"running":
                return
        raise OSError
        """),
    reaches("process_vm_readv of the parent", """
        data = ctypes.create_string_buffer(8)
        class Span(ctypes.Structure):
            _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
        ours, theirs = Span(ctypes.addressof(data), 8), Span(id(None), 8)
        call("process_vm_readv", os.getppid(), ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        """),
    reaches("ptrace of the parent", 'call("ptrace", 16, os.getppid(), None, None)'),
    reaches("ptrace of a process of the user", 'call("ptrace", 16, @PID@, None, None)'),
    reaches("pidfd_getfd from the parent", """
        descriptor = system_call(434, 434, os.getppid(), 0)
        system_call(438, 438, descriptor, 0, 0)
        """),
    reaches("kcmp with the parent", "system_call(312, 272, os.getpid(), os.getppid(), 0, 0, 0)"),
    reaches("a file outside", 'open("@FOLDER@/secret").close()'),
    reaches("a file outside by a path through the folder", """
        open("../" * 20 + "@FOLDER@".lstrip("/") + "/secret").close()
        """),
    reaches("a file outside by a symbolic link", """
        os.symlink("@FOLDER@/secret", "link")
        open("link").close()
        """),
    reaches("a file outside by a hard link", """
        os.link("@FOLDER@/secret", "link")
        open("link").close()
        """),
    reaches("a file outside by /proc/self/root", 'open("/proc/self/root@FOLDER@/secret").close()'),
    reaches("a file outside by the parent's root",
        'open(f"/proc/{os.getppid()}/root@FOLDER@/secret").close()'),
    reaches("a file outside by openat2 and O_PATH", """
        descriptor = os.open("@FOLDER@/secret", os.O_PATH)
        open(f"/proc/self/fd/{descriptor}").close()
        """),
    reaches("a file outside by its handle", """
        handle = ctypes.create_string_buffer(136)
        ctypes.c_uint.from_buffer(handle).value = 128
        mount = ctypes.c_int()
        at = b"@FOLDER@/secret"
        system_call(303, 264, -100, at, handle, ctypes.byref(mount), 0)
        """),
    reaches("a file outside by io_uring", """
        setup = ctypes.create_string_buffer(120)
        system_call(425, 425, 8, setup)
        """),
    reaches("the repository", 'open("@ROOT@/klearlib/records.py").close()'),
    reaches("a folder listing outside", 'os.listdir("@FOLDER@")'),
    reaches("the repository by its import", """
        try:
            import klearlib.records
        except ImportError:
            raise OSError from None
        """),
    reaches("names and passwords of users", 'open("/etc/passwd").close()'),
    reaches("home folders", """
        for folder in ("/root", "/home", os.path.expanduser("~nobody")):
            try:
                return os.listdir(folder)
            except OSError:
                pass
        raise OSError
        """),
    returns("token of the test by the program's memory", """
        import gc
        def square(n):
            words = [o for o in gc.get_objects() if isinstance(o, dict) and "token" in o]
            return words[0]["token"] if words else 0
        """, "wrong_answer", tests=ASSERTS),
    returns("test code by the frames of its caller", """
        import sys
        def square(n):
            frame = sys._getframe()
            while frame:
                for value in list(frame.f_locals.values()):
                    if "".join(["candi", "date(-4)"]) in str(value):
                        return 9 if n == 3 else 16
                frame = frame.f_back
            return 0
        """, "wrong_answer", tests=ASSERTS),
    returns("result channel of another process", """
        import os
        def square(n):
            try:
                for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
                    if int(pid) in (os.getpid(), os.getppid()):
                        continue
                    with open(f"/proc/{pid}/fd/3", "r+b") as report:
                        report.write(b"token\\n")
                    return 9 if n == 3 else 16
            except OSError:
                pass
            return 0
        """, "wrong_answer", tests=ASSERTS),
]  # fmt: skip


EQUALITY = [
    returns("str subclass with a lying repr", """
        class Text(str):
            def __eq__(self, other): return True
            __hash__ = str.__hash__
            def __repr__(self): return "'nine'"
            def __str__(self): return "nine"
            def __iter__(self): return iter("nine!")
        def square(n): return Text("ten")
        """, "wrong_answer", tests=(TestCase('"nine"', call="[3]"),
            TestCase(asserts='assert candidate(3) == "nine"'))),
    returns("StopIteration that ends a loop of the test", """
        class Stop(StopIteration): pass
        class Lazy:
            @property
            def value(self): raise Stop
        def square(n):
            if n < 0: return Lazy()
            raise Stop
        """, "runtime_error", tests=(
            TestCase(asserts="for n, nine in zip(map(square, [3]), [9]): assert n == nine"),
            TestCase(asserts="assert all(map(lambda n: square(n) == n * n, [3, 4]))"),
            TestCase(asserts="assert all(map(lambda n: square(n).value == n * n, [-3, -4]))"))),
    returns("builtins replaced", """
        import builtins
        builtins.abs = builtins.len = builtins.all = builtins.isinstance = lambda *a: True
        builtins.float = builtins.int = builtins.str = lambda *a: 0
        def square(n): return 0
        """, ("wrong_answer", "runtime_error", "memory_limit"), tests=ASSERTS,
        why="nothing in its own process works any more"),
    returns("all, len, set and sorted replaced for the test code", """
        def all(x): return True
        def len(x): return 1
        def set(x): return None
        def sorted(x): return None
        def square(n): return [n]
        """, "wrong_answer", tests=tuple(TestCase(asserts=text) for text in (
            "assert all(x == 9 for x in candidate(3))",
            "assert len(candidate(3)) == len([1, 2])",
            "assert set(candidate(3)) == set([9])",
            "assert sorted(candidate(3)) == sorted([9])"))),
    returns("check function of the test replaced", """
        def check(candidate): pass
        def square(n): return 0
        """, "wrong_answer", tests=(TestCase(
            asserts="def check(candidate):\n    assert candidate(3) == 9\ncheck(square)"),)),
    returns("in-place change of the expected list", """
        def square(rows):
            rows.clear()
            return rows
        """, "wrong_answer",
        tests=(TestCase(asserts="goal = [9]\nassert candidate(list(goal)) == goal"),)),
    returns("StopIteration and GeneratorExit out of a call", """
        def square(n): raise (StopIteration if n == 3 else GeneratorExit)
        """, "runtime_error"),
    returns("result of a hundred million digits", """
        def square(n): return 1 << 300_000_000
        """, ("runtime_error", "output_limit", "time_limit", "memory_limit", "wrong_answer"),
        timeout_s=1.0, why="which limit meets it first is open"),
    prints("decimal context changed", """
        import decimal
        decimal.getcontext().prec = 1
        decimal.setcontext(decimal.Context(prec=1, Emax=9, Emin=-9))
        print("16.4")
        """, "wrong_answer"),
    prints("sys.stdout replaced", """
        import io, sys
        sys.stdout = io.StringIO()
        print(int(input()) ** 2)
        """, "wrong_answer"),
]  # fmt: skip


_THREE = (TestCase("3", stdin=""),)

OUTPUT = [
    prints("output on standard error only", """
        import sys
        print(int(input()) ** 2, file=sys.stderr)
        """, "wrong_answer"),
    prints("a million short lines", "print('3\\n' * 500_000)", "wrong_answer", tests=_THREE),
    prints("a million numbers", "print('3.0 ' * 250_000)", "wrong_answer", tests=_THREE),
    prints("blanks without end", "print('3' + ' ' * 1_000_000)", "passed", tests=_THREE),
    prints("answer taken back", """
        import os
        os.write(1, b"4")
        os.ftruncate(1, 0)
        """, "wrong_answer", tests=_THREE),
]  # fmt: skip


RESOURCES = [
    prints("waiting for input that never comes", """
        import select, sys
        sys.stdin.read()
        select.select([], [], [], 1000)
        """, "time_limit", tests=_THREE, timeout_s=0.5),
    prints("atexit loop after the right answer", """
        import atexit
        @atexit.register
        def stay():
            while True:
                pass
        print(3)
        """, "time_limit", tests=_THREE, timeout_s=0.5),
    prints("regular expression that backtracks",
        "import re; re.match('(a+)+b', 'a' * 60)", "time_limit", tests=_THREE, timeout_s=0.5),
    prints("huge power", "print(len(str(9 ** 9 ** 9)))", ("time_limit",
     "memory_limit"), tests=_THREE, timeout_s=0.5, why="which limit meets it first is open"),
    returns("endless iterator in an assert test", """
        import itertools
        def square(n): return itertools.count()
        """, ("time_limit", "wrong_answer"), timeout_s=0.5,
        tests=(TestCase(asserts="assert list(candidate(3)) == [9]"),),
        why="it is a test's own choice to read on"),
    prints("memory, with the error swallowed", """
        rows = []
        try:
            while True:
                rows.append(bytearray(1 << 20))
        except MemoryError:
            print(len(rows) < 300)
        """, "passed", tests=(TestCase("True", stdin=""),)),
    prints("a string that unpacks to gigabytes", """
        import zlib
        data = zlib.compress(bytes(1 << 20), 9)
        for _ in range(2):
            data = zlib.compress(data * 1000, 9)
        while True:
            data = zlib.decompress(data) * 100
        """, ("memory_limit", "runtime_error"), tests=_THREE,
        why="it ends by zlib's error where the memory is enough"),
    prints("fork bomb that never gives up", """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
        """, "time_limit", tests=_THREE, timeout_s=0.5),
    prints("thread bomb", """
        import threading, time
        while True:
            threading.Thread(target=time.sleep, args=(1000,)).start()
        """, ("time_limit", "memory_limit", "runtime_error"), tests=_THREE, timeout_s=0.5,
        why="a thread that cannot start is a RuntimeError; those that did are waited for"),
    prints("many open files", "files = [open(0, closefd=False) for _ in [0]]\n"
        "import os\nwhile True: os.dup(0)", "runtime_error", tests=_THREE),
    prints("raising its limits", """
        import resource
        for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE"):
            number = getattr(resource, name)
            before = resource.getrlimit(number)
            try:
                resource.setrlimit(number, (resource.RLIM_INFINITY,) * 2)
            except (ValueError, OSError):
                pass
            if resource.getrlimit(number)[1] != before[1]:
                print("escaped", name)
        print("blocked")
        """, "passed", tests=(TestCase("blocked", stdin=""),)),
    prints("source of calls and dots", "x" + ".x()" * 100_000, ("compile_error",
     "runtime_error"), tests=_THREE, why="a compiler that can take it leaves a NameError"),
    prints("constant that is folded", "x = ((1,) * 10**8) * 10**3",
        ("compile_error", "memory_limit"), tests=_THREE, why="by compiler or at run time"),
    prints("source of a bomb of constants", "x = " + "+".join(["'a' * 4000"] * 3000),
     ("wrong_answer", "compile_error"), tests=_THREE, why="the compiler's recursion may end first"),
]  # fmt: skip


PERSISTENCE = [
    prints("daemon by double fork", """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
        print(3)
        """, "runtime_error", tests=_THREE),
    prints("thread that writes after the end", """
        import threading, time
        def later():
            time.sleep(0.3)
            print(3, flush=True)
        threading.Thread(target=later, daemon=True).start()
        """, "wrong_answer", tests=_THREE),
    prints("background thread that stays", """
        import threading, time
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        print(3)
        """, "passed", tests=_THREE),
    reaches("clone by a system call of its own", "system_call(56, 220, 17, 0, 0, 0, 0)"),
    *(reaches(f"file in {folder}",
        f'open("{folder}/klear-attack", "w").close()')
        for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", "/", "/dev", "@FOLDER@",
            "@ROOT@", "/dev/mqueue", "/etc/cron.d")),
    reaches("file in the parent folder", 'open("../klear-attack", "w").close()'),
    reaches("folder in the folder", """
        try:
            os.mkdir("klear-attack")
        finally:
            os.chdir("/")
        """),
    reaches("named pipe", 'os.mkfifo("klear-attack")'),
    reaches("device", 'os.mknod("klear-attack", 0o20666, os.makedev(1, 3))'),
    reaches("changing a file outside", 'open("@FOLDER@/secret", "a").write("x")'),
    reaches("truncating a file outside", 'os.truncate("@FOLDER@/secret", 0)'),
    reaches("deleting a file outside", 'os.unlink("@FOLDER@/secret")'),
    reaches("renaming a file outside", 'os.rename("@FOLDER@/secret", "@FOLDER@/klear-attack")'),
    reaches("moving a file in from outside", 'os.rename("@FOLDER@/secret", "mine")'),
    reaches("moving a file out", """
        open("mine", "w").close()
        os.rename("mine", "@FOLDER@/klear-attack")
        """),
    reaches("chmod of a file outside", 'os.chmod("@FOLDER@/secret", 0o777)'),
    reaches("chown of a file outside", 'os.chown("@FOLDER@/secret", -1, -1)'),
    reaches("times of a file outside", 'os.utime("@FOLDER@/secret", (1, 1))'),
    reaches("attributes of a file outside", 'os.setxattr("@FOLDER@/secret", "user.klear", b"1")'),
    reaches("symbolic link outside", 'os.symlink("/etc", "@FOLDER@/klear-attack")'),
    reaches("POSIX shared memory", """
        from multiprocessing import shared_memory
        shared_memory.SharedMemory("klear-attack-memory", create=True, size=1024)
        """),
    reaches("POSIX semaphore", """
        import multiprocessing
        multiprocessing.Semaphore()
        """),
    reaches("SysV shared memory", 'call("shmget", 0x6B6C6561, 4096, 0o1666)'),
    reaches("SysV semaphores and queues", """
        try:
            call("semget", 0x6B6C6561, 1, 0o1666)
        except OSError:
            call("msgget", 0x6B6C6561, 0o1666)
        """),
    reaches("message queue", 'call("mq_open", b"/klear-attack", 0o102, 0o666, None)'),
    reaches("keyring", 'system_call(248, 217, b"user", b"klear-attack", b"x", 1, -4)'),
    reaches("modifying the standard library", 'open(os.__file__, "a").write("# klear-attack")'),
    reaches("byte code in the standard library", """
        folder = os.path.dirname(os.__file__)
        open(os.path.join(folder, "__pycache__", "klear-attack.pyc"), "w").close()
        """),
    reaches("sitecustomize for later interpreters", """
        import sys
        for folder in filter(None, sys.path):
            try:
                return open(os.path.join(folder, "klear-attack.pth"), "w").close()
            except OSError:
                pass
        raise OSError
        """),
    reaches("memfd", 'os.memfd_create("klear-attack")'),
]  # fmt: skip


NETWORK = [
    reaches("TCP connection", """
        import socket
        socket.create_connection(("127.0.0.1", @PORT@), timeout=2).close()
        """),
    reaches("TCP server", """
        import socket
        server = socket.socket()
        server.bind(("127.0.0.1", @FREE@))
        server.listen()
        """),
    reaches("UDP packet", """
        import socket
        socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", @PORT@))
        """),
    reaches("netlink socket", "import socket; socket.socket(16, 3, 0).close()"),
    reaches("name service", """
        import socket
        socket.getaddrinfo("example.org", 80)
        """),
    reaches("abstract unix socket", """
        import socket
        socket.socket(socket.AF_UNIX).connect("\\0klear-attack-gate-@PORT@")
        """),
    reaches("unix socket by its path", """
        import socket
        socket.socket(socket.AF_UNIX).connect("@FOLDER@/gate.sock")
        """),
    reaches("datagram from a socket pair to a path", """
        import socket
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.sendto(b"x", "@FOLDER@/packets.sock")
        """),
    reaches("vsock", "import socket; socket.socket(40, 1).close()"),
]  # fmt: skip


_REMEMBER = """
import os, sys, random, builtins, json, math
folder = sorted(os.listdir("."))
marks = [m for m in (getattr(sys, "mark", ""), getattr(builtins, "mark", ""), os.environ.get("M"))]
changed = math.pi == 3 or json.dumps(1) != "1" or not __debug__
first = random.random()
is_fresh = not folder and not any(marks) and not changed
print("fresh" if is_fresh else "stale", first == 0.8444218515250481)
sys.mark = builtins.mark = os.environ["M"] = "left"
math.pi = 3
json.dumps = lambda *a, **k: "left"
sys.modules["decimal"] = None
random.seed(5)
open("left", "w").write("left")
os.chdir("/")
"""

CROSS_TALK = [
    prints("state left for the next test", _REMEMBER, "passed",
        tests=(TestCase("fresh True", stdin=""),) * 3),
    prints("state left for the next program", "import decimal\n" + _REMEMBER,
        "passed", tests=(TestCase("fresh True", stdin=""),) * 2),
    prints("answers kept in a file", """
        import os
        number = len(os.listdir("."))
        open(f"seen{number}", "w").close()
        print(["YES", "NO"][number])
        """, "passed", "wrong_answer", tests=ANSWERS),
    prints("answers kept in the folder's own mode", """
        import os
        try:
            os.chmod(".", 0o700)
        except OSError:
            pass
        print(3)
        """, "passed", tests=_THREE * 2),
]  # fmt: skip


SIGNALS = [
    reaches("signal to everybody", "os.kill(-1, 15)"),
    reaches("killing the parent", "os.kill(os.getppid(), 9)"),
    reaches("killing the first process", "os.kill(1, 9)"),
    reaches("killing a process of the user", "os.kill(@PID@, 9)"),
    reaches("stopping a process of the user", "os.kill(@PID@, 19)"),
    reaches("killing the parent's group", "os.killpg(os.getpgid(os.getppid()) or 1, 9)"),
    reaches("tgkill of the parent", "system_call(234, 131, os.getppid(), os.getppid(), 9)"),
    reaches("queued signal to the parent", 'call("sigqueue", os.getppid(), 10, None)'),
    reaches("signal by a pidfd", """
        import signal
        signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)
        """),
    reaches("limits of the parent", """
        import resource
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))
        """),
    reaches("limits of a process of the user", """
        import resource
        resource.prlimit(@PID@, resource.RLIMIT_CPU, (1, 1))
        """),
    reaches("priority of the parent", "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)"),
    reaches("priority of all processes of the user", "os.setpriority(os.PRIO_USER, 0, 19)"),
    reaches("cores of the parent", "os.sched_setaffinity(os.getppid(), {0})"),
    reaches("signals of a descriptor to others", """
        import fcntl
        fcntl.fcntl(0, 8, @PID@)
        """),
]  # fmt: skip


PRIVILEGE = [
    reaches("setuid to root", "os.setuid(0)"),
    reaches("setresgid to root", "os.setresgid(0, 0, 0)"),
    reaches("setgroups", "os.setgroups([0])"),
    reaches("mount", 'call("mount", b"none", b"@FOLDER@", b"tmpfs", 0, None)'),
    reaches("bind mount of the root", 'call("mount", b"/", b".", None, 4096, None)'),
    reaches("umount of the program's folder", 'call("umount2", b".", 2)'),
    reaches("new mount calls", 'system_call(430, 430, b"tmpfs", 0)'),
    reaches("open_tree", 'system_call(428, 428, -100, b"/", 1)'),
    reaches("new user namespace", 'call("unshare", 0x10000000)'),
    reaches("new mount namespace", 'call("unshare", 0x20000)'),
    reaches("namespace of the parent", """
        call("setns", system_call(434, 434, os.getppid(), 0), 0x20000)
        """),
    reaches("chroot", 'os.chroot(".")'),
    reaches("pivot_root", 'system_call(155, 41, b".", b".")'),
    reaches("a filter of its own", """
        call("prctl", 22, 1, 0, 0, 0)
        """),
    reaches("capabilities", """
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        system_call(126, 91, header, (ctypes.c_uint32 * 6)(-1, -1, 0, 511, 511, 0))
        """),
    reaches("bpf", "system_call(321, 280, 0, (ctypes.c_uint32 * 32)(1, 4, 4, 1), 128)"),
    reaches("userfaultfd", "system_call(323, 282, 1)"),
    reaches("perf_event_open", """
        system_call(298, 241, (ctypes.c_uint32 * 32)(1, 128, 9, 0), 0, -1, -1, 0)
        """),
    reaches("system time", "import time; time.clock_settime(0, time.time())"),
    reaches("host name", 'import socket; socket.sethostname("klear-attack")'),
    reaches("kernel log", "system_call(103, 116, 3, ctypes.create_string_buffer(9), 8)"),
    reaches("personality without address randomisation", 'call("personality", 0x40000)'),
]  # fmt: skip


THEMES = {
    "exits": FAKE_SUCCESS,
    "stealing": STEALING,
    "equality": EQUALITY,
    "output": OUTPUT,
    "resources": RESOURCES,
    "persistence": PERSISTENCE,
    "network": NETWORK,
    "cross-talk": CROSS_TALK,
    "signals": SIGNALS,
    "privilege": PRIVILEGE,
}
ATTACKS = tuple(replace(attack, theme=name) for name, group in THEMES.items() for attack in group)
