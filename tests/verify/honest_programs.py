"""Honest programs that do things in an unusual way, and must pass."""

from __future__ import annotations

from attacks import SQUARES, Attack, prints, returns

from klearlib.records import TestCase

_TWO_LINES = (TestCase("3\n4", stdin=""),)
_SUM = (TestCase("60", stdin="10 20\n30\n"), TestCase("60", stdin="10 20\r\n30"))
_ANY = (TestCase("3", stdin=""),)


def passes(name, source, tests=SQUARES, **options) -> Attack:
    return prints(name, source, "passed", tests=tests, **options)


HONEST = (
    passes("sys.stdin.buffer and sys.stdout.buffer", """
        import sys
        numbers = map(int, sys.stdin.buffer.read().split())
        sys.stdout.buffer.write(str(sum(numbers)).encode() + b"\\n")
        """, _SUM),
    passes("open(0)", "print(sum(map(int, open(0).read().split())))", _SUM),
    passes("open(1)", "print(sum(map(int, open(0))) if 0 else 3, file=open(1, 'w'))", _ANY),
    passes("/dev/stdin", "print(sum(map(int, open('/dev/stdin').read().split())))", _SUM),
    passes("os.read and os.write", """
        import os
        os.write(1, b"%d" % sum(map(int, os.read(0, 10**6).split())))
        """, _SUM),
    passes("input by its size", """
        import io, os, sys
        data = io.BytesIO(os.read(0, os.fstat(0).st_size))
        sys.stdin = io.TextIOWrapper(data)
        print(sum(map(int, sys.stdin.read().split())))
        """, _SUM),
    passes("os._exit after a flush", """
        import os, sys
        print(int(input()) ** 2)
        sys.stdout.flush()
        os._exit(0)
        """),
    passes("input until EOFError", """
        total = 0
        try:
            while True:
                total += sum(map(int, input().split()))
        except EOFError:
            print(total)
        """, _SUM),
    passes("modes and names of the streams", """
        import os, sys
        streams = sys.stdin, sys.stdout, sys.__stdin__, sys.__stdout__
        assert [s.mode for s in streams] == ["r", "w", "r", "w"] and "w" in sys.stderr.mode
        assert [s.buffer.mode for s in streams] == ["rb", "wb", "rb", "wb"]
        assert [s.name for s in streams[:2]] == ["<stdin>", "<stdout>"]
        with os.fdopen(0) as given, os.fdopen(os.dup(1), "w") as printed:
            assert given.mode == "r" and printed.mode == "w"
            printed.write(str(int(given.read()) ** 2))
        """),
    passes("iterating over sys.stdin", """
        import sys
        print(sum(int(x) for line in sys.stdin for x in line.split()))
        """, _SUM),
    passes("readline and readlines", """
        import sys
        input = sys.stdin.readline
        first = input().split()
        print(sum(map(int, first)) + sum(map(int, sys.stdin.readlines())))
        """, _SUM),
    passes("fileinput", """
        import fileinput
        print(sum(int(x) for line in fileinput.input() for x in line.split()))
        """, _SUM),
    passes("reading nothing of an empty input", """
        import sys
        print(len(sys.stdin.read()) + len(sys.stdin.buffer.read()) + 3)
        """, _ANY),
    passes("not reading a large input", "print(3)", (TestCase("3", stdin="1 " * 2_000_000),)),
    passes("reading a large input", "print(sum(map(int, input().split())))",
        (TestCase("300000", stdin="1 " * 300_000),)),
    passes("closing standard input", "import sys; sys.stdin.close(); print(3)", _ANY),
    passes("recursion in a thread with a large stack", """
        import sys, threading
        sys.setrecursionlimit(10**6)
        threading.stack_size(1 << 26)
        def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
        def main(): print(depth(50_000) - 50_000 + int(input()) ** 2)
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
        """),
    passes("recursion without a thread", """
        import sys
        sys.setrecursionlimit(20_000)
        def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
        print(depth(10_000) - 10_000 + int(input()) ** 2)
        """),
    passes("larger stack by its limit", """
        import resource, sys
        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, hard))
        resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY,) * 2)
        print(int(input()) ** 2)
        """),
    passes("thread that prints and is not joined", """
        import threading, time
        def main():
            time.sleep(0.05)
            print(int(input()) ** 2)
        threading.Thread(target=main).start()
        """),
    passes("computing in many threads", """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            print(sum(pool.map(lambda n: n * n, range(4))) - 14 + int(input()) ** 2)
        """),
    passes("asyncio.run", """
        import asyncio
        async def main():
            await asyncio.gather(*[asyncio.sleep(0.001) for _ in range(10)])
            return await asyncio.to_thread(int, input())
        print(asyncio.run(main()) ** 2)
        """),
    passes("dataclasses, typing, enum and pattern matching", """
        from __future__ import annotations
        import enum
        from dataclasses import dataclass, field
        from typing import NamedTuple
        class Kind(enum.Enum):
            SQUARE = 2
        class Pair(NamedTuple):
            n: int
            kind: Kind
        @dataclass(order=True)
        class Box:
            pairs: list[Pair] = field(default_factory=list)
        match Box([Pair(int(input()), Kind.SQUARE)]):
            case Box([Pair(n, Kind.SQUARE)]):
                print(n**2)
        """),
    passes("pickle of its own class", """
        import copy, pickle
        class Number:
            def __init__(self, n): self.n = n
        number = pickle.loads(pickle.dumps(copy.deepcopy(Number(int(input())))))
        print(number.n ** 2)
        """),
    passes("big integers", "import sys\nsys.set_int_max_str_digits(0)\nprint(3 ** 20_000 % 10**9)",
        (TestCase(str(3**20_000 % 10**9), stdin=""),)),
    passes("file in the folder", """
        with open("notes.txt", "w") as file:
            print(int(input()) ** 2, file=file)
        with open("notes.txt") as file:
            print(file.read())
        import os
        os.rename("notes.txt", "other.txt")
        os.remove("other.txt")
        """),
    passes("temporary file", """
        import tempfile
        with tempfile.TemporaryFile("w+") as file:
            file.write(input())
            file.seek(0)
            print(int(file.read()) ** 2)
        """),
    passes("Windows line ends", "print('3\\r\\n4', end='\\r\\n')", _TWO_LINES),
    passes("sys.stdout.write and writelines", """
        import sys
        sys.stdout.writelines(["3", "\\n"])
        sys.stdout.write("4")
        """, _TWO_LINES),
    passes("standard output under another name", """
        import io, os, sys
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), write_through=True)
        print(3)
        print(4)
        """, _TWO_LINES),
    passes("output kept in a string", """
        import atexit, io, sys
        real, sys.stdout = sys.stdout, io.StringIO()
        atexit.register(lambda: real.write(sys.stdout.getvalue()))
        print(3)
        print(4)
        """, _TWO_LINES),
    passes("output kept in an object that writes it when flushed", """
        import os, sys
        from io import BytesIO, IOBase
        class FastIO(IOBase):
            def __init__(self, file):
                self._fd, self.buffer = file.fileno(), BytesIO()
                self.write = self.buffer.write
            def flush(self):
                if self.buffer.tell():
                    os.write(self._fd, self.buffer.getvalue())
                    self.buffer.truncate(0), self.buffer.seek(0)
        class Wrapper(IOBase):
            def __init__(self, file):
                self.buffer = FastIO(file)
                self.flush = self.buffer.flush
                self.write = lambda text: self.buffer.write(text.encode())
        sys.stdout = Wrapper(sys.stdout)
        print(3)
        sys.stdout.flush()
        print(4)
        """, _TWO_LINES),
    passes("writer that does not say whether it is closed", """
        import os, sys
        class Out:
            def __init__(self): self.held = []
            def write(self, text): self.held.append(text)
            def flush(self):
                os.write(1, "".join(self.held).encode())
                self.held.clear()
        sys.stdout = Out()
        print(int(input()) ** 2)
        """),
    passes("standard streams detached", """
        import io, sys
        sys.stdin = io.TextIOWrapper(sys.stdin.detach(), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8")
        print(int(input()) ** 2)
        """),
    passes("open file of a program that a cache keeps alive", """
        from typing import List
        class Node:
            def next(self): return held
        numbers: List[Node] = []
        held = open(1, "w")
        held.write(str(int(input()) ** 2))
        """),
    passes("no standard output left", """
        import os, sys
        os.write(1, b"3")
        del sys.stdout
        """, _ANY),
    passes("warnings on standard error", """
        import sys, warnings
        warnings.warn("careful")
        print("working", file=sys.stderr)
        print(int(input()) ** 2)
        """),
    passes("sys.exit()", "import sys\nprint(int(input()) ** 2)\nsys.exit()"),
    passes("exit()", "print(int(input()) ** 2)\nexit()"),
    passes("raise SystemExit", "print(int(input()) ** 2)\nraise SystemExit"),
    passes("own name and arguments", """
        import sys
        print(3 if __name__ == "__main__" and len(sys.argv) == 1 else 4)
        """, _ANY),
    passes("unicode", "print('größer ≥ 三 😀')", (TestCase("größer ≥ 三 😀", stdin=""),)),
    passes("unicode echoed", "print(input()[::-1])", (TestCase("ñüß", stdin="ßüñ"),)),
    passes("byte order mark and coding line", "# -*- coding: utf-8 -*-\nprint(3)", _ANY),
    passes("tabs and form feeds", "if True:\n\tprint(3)\n\x0c\n", _ANY),
    passes("Windows line ends in the source", "n = int(input())\r\nprint(n ** 2)\r\n"),
    passes("builtins by their module", "__builtins__.print(__builtins__.int(input()) ** 2)"),
    passes("judge that says what it is", """
        import os, sys
        if not os.environ.get("ONLINE_JUDGE"):
            sys.stdin = open("input.txt")
        print(int(input()) ** 2)
        """),
    passes("exec and eval", "exec('n = int(input())')\nprint(eval('n ** 2'))"),
    passes("module of its own name", """
        import __main__, sys
        n = int(input())
        print(sys.modules["__main__"].n * __main__.n)
        """),
    passes("garbage with a finaliser", """
        class Last:
            def __del__(self): print(4)
        last = Last()
        print(3)
        """, _TWO_LINES),
    passes("finaliser and generator that need the program's names", """
        import os
        class Last:
            def __del__(self): os.write(1, b"3\\n")
        def last():
            try: yield
            finally: print(text)
        text = "4"
        kept, generator = Last(), last()
        next(generator)
        """, _TWO_LINES),
    passes("catching its own signal", """
        import signal, time
        def ring(*_):
            print(int(input()) ** 2)
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        time.sleep(0.1)
        """),
    passes("raising its own signal", """
        import os, signal
        signal.signal(signal.SIGUSR1, lambda *_: print(int(input()) ** 2))
        os.kill(os.getpid(), signal.SIGUSR1)
        """),
    passes("numpy", "import numpy as np\nprint(int(np.arange(4).sum()) - 6 + int(input()) ** 2)",
        memory_mb=1024),
    passes("many modules", """
        import array, base64, collections.abc, contextlib, csv, hashlib, inspect, json, operator
        import numbers, pprint, secrets, struct, sqlite3, string, tempfile, textwrap, uuid, zlib
        import xml.etree.ElementTree, unittest, logging, locale, argparse, calendar, cmath, ctypes
        print(int(input()) ** 2)
        """),
    passes("a time zone", "import zoneinfo; zoneinfo.ZoneInfo('UTC'); print(3)", _ANY),
    passes("pipe and pair of sockets", """
        import os, socket
        r, w = os.pipe()
        os.write(w, b"1")
        a, b = socket.socketpair()
        a.send(b"2")
        print(int(os.read(r, 9)) + int(b.recv(9)))
        """, _ANY),
    passes("its own priority and cores", """
        import os
        os.nice(1)
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        print(3)
        """, _ANY),
    passes("closing what it has not opened", "import os; os.closerange(3, 256); print(3)", _ANY),
    passes("memory within the limit", "x = bytearray(150 << 20)\nprint(int(input()) ** 2)"),
    returns("lambda, partial and callable object", """
        import functools
        class Power:
            def __call__(self, k, n): return n ** k
        square = functools.partial(Power(), 2)
        """, "passed"),
    returns("helper function of the program used by the test", """
        def root(n): return n ** 0.5
        def square(n): return n * n
        """, "passed", tests=(TestCase(asserts="assert root(candidate(3)) == 3"),)),
)  # fmt: skip
