"""What a program's tests give: outcomes, kinds of tests, ways to read and print, batches."""

import json
import subprocess
import sys
import textwrap

import pytest
from honest_programs import HONEST
from processes import one_tier_is_slow

from klearlib.errors import KlearError
from klearlib.records import TestCase
from klearlib.verify import pool, programs
from klearlib.verify.pool import Pool
from klearlib.verify.presets import USUAL_IMPORTS
from klearlib.verify.programs import ProgramJob, run_many, run_tests

LIMITS = {"timeout_s": 5.0, "memory_mb": 256}


def by_stdin(stdin: str, expected: str) -> TestCase:
    return TestCase(stdin=stdin, expected=expected)


def by_call(arguments: object, expected: object) -> TestCase:
    return TestCase(call=json.dumps(arguments), expected=json.dumps(expected))


def outcome(source: str, test: TestCase, **settings) -> str:
    return run_tests(textwrap.dedent(source), [test], **{**LIMITS, **settings}).outcomes[0]


@one_tier_is_slow
def test_honest_programs_pass(tier):
    jobs = [ProgramJob(p.source, p.tests, p.timeout_s, p.memory_mb, p.entry_point) for p in HONEST]
    wrong = {
        p.name: (report.outcomes, report.messages)
        for p, report in zip(HONEST, run_many(jobs, workers=2), strict=True)
        if report.pass_rate < 1 or any(report.messages)
    }
    if "No module named 'numpy'" in str(wrong.get("numpy")):
        del wrong["numpy"]  # programs of this interpreter have none
    assert wrong == {}


# source, outcome, what the message holds
FAILURES = {
    "wrong": ("print(7)", "wrong_answer", ""),
    "nothing": ("", "wrong_answer", ""),
    "prefix": ("print(6, end='')\nprint(6)", "wrong_answer", ""),
    "exit status": ("import sys; print(6); sys.exit(1)", "runtime_error", "SystemExit: 1"),
    "_exit": ("import os; print(6, flush=True); os._exit(3)", "runtime_error", "exit status 3"),
    "exception": ("print(6)\n1 / 0", "runtime_error",
     "ZeroDivisionError: division by zero (line 2)"),
    "interrupt": ("raise KeyboardInterrupt", "runtime_error", "KeyboardInterrupt"),
    "input past the end": ("input(); input()", "runtime_error", "EOFError"),
    "odd exception": ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E",
     "runtime_error", "E (line 3)"),
    "long exception": ("raise ValueError('x\\n' * 1000)", "runtime_error", "ValueError: x x x"),
    "thread": ("import threading\nthreading.Thread(target=lambda: 1 / 0).start()",
     "runtime_error", "ZeroDivisionError"),
    "atexit": ("import atexit; atexit.register(lambda: 1 / 0)", "wrong_answer", ""),
    "segfault": ("import ctypes; ctypes.string_at(0)", "runtime_error", "SIGSEGV"),
    "abort": ("import os; os.abort()", "runtime_error", "SIGABRT"),
    "deep recursion": (
        "import sys; sys.setrecursionlimit(10**9)\nclass A:\n"
        "    def __repr__(self): return repr([self])\nrepr(A())",
        "runtime_error",
        "",
    ),
    "no process": ("import os; os.fork()", "runtime_error", "PermissionError"),
    "no module": ("import klearlib", "runtime_error", "klearlib"),
    "syntax": ("print(6", "compile_error", "SyntaxError: '(' was never closed (line 1)"),
    "null byte": ("print(6)\x00", "compile_error", "null byte"),
    "surrogate": ("print('\ud800')", "compile_error", ""),
    "nesting": ("(" * 10_000 + ")" * 10_000, "compile_error", ""),
    "large literal": ("x = " + "9" * 5000, "compile_error", "integer"),
    "loop": ("while True: pass", "time_limit", ""),
    "sleep": ("import time; time.sleep(99)", "time_limit", ""),
    "ignores signals": (
        "import signal\nfor s in (1, 2, 14, 15, 24): signal.signal(s, signal.SIG_IGN)\n"
        "while True: pass",
        "time_limit",
        "",
    ),
    "stops": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "time_limit", ""),
    "prints and loops": ("print(6, flush=True)\nwhile True: pass", "time_limit", ""),
    "memory at once": ("x = bytearray(10**9)", "memory_limit", "MemoryError"),
    "memory in steps": ("x = []\nwhile True: x.append(' ' * 10**6)", "memory_limit", ""),
    "memory of the kernel": ("import mmap\nx = [mmap.mmap(-1, 10**8) for _ in range(99)]",
     "runtime_error", ""),
    "output": ("while True: print('6' * 1000)", "output_limit", ""),
    "output, signal ignored": (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n    while True: print('6' * 1000)\nexcept OSError: pass\nimport os; os._exit(0)",
        "output_limit",
        "",
    ),
    "output far away": ("import os; os.lseek(1, 10**12, 0); os.write(1, b'6')", "output_limit", ""),
    "large file": ("open('a', 'wb').write(b'0' * 10**8)", "output_limit", ""),
    "many files": ("for i in range(5000): open(str(i), 'w').close()", "output_limit", "files"),
}  # fmt: skip
SHORT = {"loop", "sleep", "ignores signals", "stops", "prints and loops"}


@one_tier_is_slow
def test_failures(tier):
    test = by_stdin("1 2 3", "6")
    jobs = [
        ProgramJob(source, [test], timeout_s=0.4 if name in SHORT else 10.0, memory_mb=128)
        for name, (source, _, _) in FAILURES.items()
    ]
    reports = run_many(jobs, workers=2)
    for (name, (_, outcome, said)), report in zip(FAILURES.items(), reports, strict=True):
        (message,) = report.messages
        assert (report.outcomes, report.pass_rate) == ((outcome,), 0.0), (name, message)
        assert said in message and len(message) <= 300 and "\n" not in message, name


@one_tier_is_slow
def test_undecodable_output_is_compared_not_raised(tier):
    write = "import sys; sys.stdout.buffer.write(b'\\xff\\xfe6')"
    assert outcome(write, by_stdin("", "6")) == "wrong_answer"
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert outcome(echo, by_stdin("é\ud800", "x")) == "wrong_answer"
    assert outcome(echo, by_stdin("naïve ✓", "naïve ✓")) == "passed"


# source, arguments, expected, outcome
CALLS = {
    "a rounded number": ("def f(): return [0.1 + 0.2]", [], [0.3], "wrong_answer"),
    "function": ("def f(a, b): return a + b", [1, 2], 3, "passed"),
    "method": ("class Solution:\n    def f(self, a): return a", [1], 1, "passed"),
    "method before function": ("class Solution:\n    def f(self): return 1\ndef f(): return 2",
     [], 1, "passed"),
    "class without it": ("class Solution: pass\ndef f(): return 2", [], 2, "passed"),
    "lambda": ("f = lambda a: a * 2", ["x"], "xx", "passed"),
    "tuple for list": ("def f(): return (1, (2,))", [], [1, [2]], "passed"),
    "float for integer": ("def f(): return 2.0", [], 2, "passed"),
    "true for one": ("def f(): return True", [], 1, "passed"),
    "text for number": ("def f(): return '1'", [], 1, "wrong_answer"),
    "exact numbers": (
        "from fractions import Fraction as F\nfrom decimal import Decimal as D\n"
        "def f(): return [D('3.0'), F(3, 2), D('1e30'), D('-0.25')]",
        [],
        [3, 1.5, 10**30, -0.25],
        "passed",
    ),
    "a third": ("from fractions import Fraction\ndef f(): return Fraction(1, 3)", [], 1 / 3,
     "runtime_error"),
    "a tenth": ("from decimal import Decimal\ndef f(): return Decimal('0.1')", [], 0.1,
     "runtime_error"),
    "number keys": ("def f(): return {1: 2}", [], {"1": 2}, "passed"),
    "too long an integer": ("def f(): return 10**5000", [], 1, "runtime_error"),
    "prints": ("print('noise')\ndef f():\n    print('noise')\n    return 1", [], 1, "passed"),
    "reads nothing": ("import sys\ndef f(): return sys.stdin.read()", [1][:0], "", "passed"),
    "main is not run": ("def f(): return 1\nif __name__ == '__main__': raise SystemExit(1)", [],
     1, "passed"),
    "none": ("def f(): pass", [], None, "passed"),
    "not a number": ("def f(): return float('nan')", [], float("nan"), "wrong_answer"),
    "set": ("def f(): return {1}", [], [1], "runtime_error"),
    "object": ("def f(): return object()", [], 1, "runtime_error"),
    "circle": ("def f():\n    x = []\n    x.append(x)\n    return x", [], [], "runtime_error"),
    "deep": ("def f():\n    x = []\n    for _ in range(10**5): x = [x]\n    return x", [], [],
     "runtime_error"),
    "missing": ("def g(): return 1", [], 1, "runtime_error"),
    "no function": ("f = 1", [], 1, "runtime_error"),
    "arguments": ("def f(a): return a", [1, 2], 1, "runtime_error"),
    "exit": ("def f(): raise SystemExit(0)", [], 1, "runtime_error"),
    "_exit": ("import os\ndef f(): os._exit(0)", [], 1, "runtime_error"),
    "equal to all": (
        "class E(int):\n    def __eq__(self, other): return True\ndef f(): return E(7)",
        [],
        1,
        "wrong_answer",
    ),
    "no JSON by hand": ("import os\nos.pwrite(3, b'value\\nnonsense', 0); os._exit(0)", [], 1,
     "runtime_error"),
    "lying json": ("import json\njson.dumps = lambda *a, **k: '[['\ndef f(): return 1", [], 1,
     "runtime_error"),
    "too much": ("def f(): return 'x' * 10**7", [], "x", "output_limit"),
    "loop": ("def f():\n    while True: pass", [], 1, "time_limit"),
    "memory": ("def f(): return [0] * 10**9", [], 1, "memory_limit"),
    "syntax": ("def f(:", [], 1, "compile_error"),
}  # fmt: skip


@one_tier_is_slow
def test_calls(tier):
    jobs = [
        ProgramJob(
            source,
            [by_call(arguments, expected)],
            timeout_s=0.4 if name == "loop" else 10.0,
            memory_mb=128,
            entry_point="f",
        )
        for name, (source, arguments, expected, _) in CALLS.items()
    ]
    found = zip(CALLS.items(), run_many(jobs, workers=2), strict=True)
    assert [(n, r.messages) for (n, call), r in found if r.outcomes != (call[3],)] == []


DEPTHS = {
    "calls": "g = lambda k: 0 if k == 0 else 1 + g(k - 1)",
    "two functions": "def h(k): return g(k - 1) + 1\ndef g(k): return 0 if k == 0 else h(k)",
    "a closure": "def g(k):\n    def go(k): return 1 + go(k - 1) if k else 0\n    return go(k)",
}
if sys.version_info < (3, 12):  # later ones bound recursion through C by themselves
    DEPTHS |= {
        "a cache": "import functools\n@functools.cache\ndef g(k): return 1 + g(k - 1) if k else 0",
        "sums": "def g(k): return sum(1 + g(k - 1) for _ in [0]) if k else 0",
        "maps": "def g(k): return [*map(lambda k: 1 + g(k), [k - 1])][0] if k else 0",
        "operators": "class A:\n    def __init__(self, k): self.k = k\n"
        "    def __int__(self): return 1 + int(A(self.k - 1)) if self.k else 0\n"
        "def g(k): return int(A(k))",
    }
# source, stdin, output: what LiveCodeBench's grader accepts and a bare interpreter does not
LCB = {
    **{
        f"recursion by {name}": (f"{source}\nprint(g(int(input())))", "15000", "15000")
        for name, source in DEPTHS.items()
    },
    "recursion to its end": (f"{DEPTHS['calls']}\nprint(g(int(input())))", "49900", "49900"),
    "digits printed": ("print(10 ** int(input()))", "49999", f"1{'0' * 49_999}"),
    "digits read": ("print(int(input()) + 1)", f"1{'0' * 49_999}", f"1{'0' * 49_998}1"),
    "digits in the source": (f"print(1{'0' * 9000})", "", f"1{'0' * 9000}"),
    "modules": (
        "n = int(sys.stdin.readline())\nprint(math.gcd(n, 6), re.sub('a', 'b', 'a'))",
        "4",
        "2 b",
    ),
    "modules again": (
        "print(collections.Counter('aa')['a'], datetime.date(2020, 1, 1), string.digits, "
        "json.dumps([1]), [*itertools.chain([1])], bisect.bisect([1], 1), operator.add(1, 1))",
        "",
        "2 2020-01-01 0123456789 [1] [1] 1 2",
    ),
    "names": (
        "q = deque([3, 1])\nheapify(q := list(q))\nd = defaultdict(list)\nxs: List[int] = []\n"
        "@lru_cache(None)\ndef f(n): return n\n"
        "print(heappop(q), gcd(4, 6), ceil(1.5), bisect_left([1], 1), *accumulate([1, 2]), f(1), "
        "reduce(add, [1, 2]), ascii_lowercase[0], mean([1, 3]), deepcopy(d), loads('1'), "
        "itemgetter(0)([5]), pow(2, 3, 5), Counter('a')['a'], stdin.readline(), maxsize > 1)",
        "x",
        "1 2 2 0 1 3 1 3 a 2 defaultdict(<class 'list'>, {}) 1 5 3 1 x True",
    ),
    "the future": (
        "from __future__ import annotations\ndef f(x: what): return gcd(4, 6)\nprint(f(1))",
        "",
        "2",
    ),
}


@one_tier_is_slow
def test_lcb_runs_what_its_grader_accepts(tier):
    jobs = [
        ProgramJob(source, [by_stdin(given, expected)], 20.0, 256, preset=preset)
        for preset in ("lcb", "python")
        for source, given, expected in LCB.values()
    ]
    reports = run_many(jobs, workers=2)
    told = list(zip([*LCB] * 2, [(r.outcomes[0], r.messages[0]) for r in reports], strict=True))
    assert [each for each in told[: len(LCB)] if each[1] != ("passed", "")] == []
    assert [each for each in told[len(LCB) :] if each[1][0] == "passed"] == []


@one_tier_is_slow
def test_lcb_by_call(tier):
    calls = {
        f"class Solution:\n    def f(self, k):\n{textwrap.indent(DEPTHS['calls'], ' ' * 8)}\n"
        "        return g(k)": (15_000, 15_000),
        f"{DEPTHS['a closure']}\nf = g": (15_000, 15_000),
        "def f(xs: List[int]) -> Optional[int]: return Counter(xs).most_common(1)[0][0]": (
            [1, 1],
            1,
        ),
        "def f(n): return str(10 ** n)": (20_000, f"1{'0' * 20_000}"),
    }
    for source, (argument, expected) in calls.items():
        test = by_call([argument], expected)
        assert outcome(source, test, entry_point="f", preset="lcb") == "passed", source
        assert outcome(source, test, entry_point="f") == "runtime_error", source


def test_lcb_has_an_end(tier):
    beyond = {DEPTHS["calls"] + "\ng(10**6)": "RecursionError", "str(10**60_000)": "ValueError"}
    for source, error in beyond.items():
        report = run_tests(source, [by_stdin("", "")], preset="lcb", **LIMITS)
        assert report.outcomes == ("runtime_error",) and error in report.messages[0]


@one_tier_is_slow
@pytest.mark.parametrize("around", [{}, {"preset": "lcb"}, {"prelude": "import re\n" * 30}])
def test_lines_are_the_program_s_own(tier, around):
    failing = {
        "x = 1\n1 / 0": "ZeroDivisionError: division by zero (line 2)",
        "def f():\n\n    return {}[0]\nf()": "KeyError: 0 (line 3)",
        '"""Doc."""\nfrom __future__ import annotations\nraise ValueError': "ValueError (line 3)",
        "import json\n\njson.loads('')": "(line 3)",
        "x = 1\ndef f(:": "SyntaxError: invalid syntax (line 2)",
        "x = 1\nfrom __future__ import annotations": "(line 2)",
        "x = 1\nreturn x": "(line 2)",
    }
    for source, said in failing.items():
        (message,) = run_tests(source, [by_stdin("", "")], **LIMITS, **around).messages
        assert message.endswith(said), source


def test_a_prelude_is_the_test_code_s_too(tier):
    """A program cannot change what a test finds there, nor does a test ask it for that."""
    source = "gcd = gcd\ndef Counter(x): return 0\nclass math: floor = abs\ndef f(x): return x"
    asserts = "import math as own\nassert gcd is own.gcd and Counter([f(1)]) == Counter({1: 1})"
    test = TestCase(asserts=f"{asserts}\nassert math.floor(0.5) == 0")
    for around in ({"preset": "lcb"}, {"prelude": USUAL_IMPORTS}):
        assert outcome(source, test, entry_point="f", **around) == "passed"
        own = TestCase(asserts="assert gcd(4, 6) == candidate(4, 6) == 24")  # its entry point
        assert outcome("def gcd(a, b): return a * b", own, entry_point="gcd", **around) == "passed"
    broken = {"prelude": "1 / 0"}
    assert outcome("print(1)", by_stdin("", "1"), **broken) == "runtime_error"
    assert outcome("print(1)", by_stdin("", "1"), prelude="1 +") == "compile_error"
    assert outcome("print(1)", by_stdin("", "1"), prelude="import no_such") == "runtime_error"


def test_integers_of_any_length(tier):
    test = TestCase(call=f"[1{'0' * 5000}]", expected=f"1{'0' * 4999}1")
    assert outcome("def f(n): return n + 1", test, entry_point="f") == "passed"


COUNTER = """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
def f(x): return x
def add(pairs): return sum(p.a * p.b for p in pairs)
def sort(values): values.sort(); values[0] = -1
def fail(): raise AssertionError('no')
def count():
    count.n += 1
    return count.n
count.n = 0
def len(x): return 7
def leave(): raise SystemExit(0)
def spin():
    while True: pass
class OddInt(int):
    __eq__ = lambda self, other: True
"""
# statements, outcome
ASSERTS = {
    "right": ("assert candidate(1) == 1 and f(2) == 2", "passed"),
    "wrong": ("assert f(1) == 2, 'one is not two'", "wrong_answer"),
    "wrong at last": ("assert f(1) == 1\nassert f(1) == 2", "wrong_answer"),
    "check": ("def check(c):\n    assert c('x') == 'x'\ncheck(f)", "passed"),
    "in place": ("a = [3, 1, 2]\nassert sort(a) is None\nassert a == [-1, 2, 3]", "passed"),
    "inner in place": (
        "row = [3]\nrows = [[9], row]\nsort(rows)\nassert rows == [-1, [9]]",
        "passed",
    ),
    "state": ("assert count() == 1 and count() == 2", "passed"),
    "fresh state": ("assert count() == 1", "passed"),
    "objects": ("assert add([Pair(1, 2), Pair(3, 4)]) == 14", "passed"),
    "assertion of the program": ("fail()", "runtime_error"),
    "error of the test": ("f(1)\nundefined", "wrong_answer"),
    "exit of the test": ("import sys\nsys.exit(0)", "wrong_answer"),
    "exit of the program": ("leave()", "runtime_error"),
    "loop": ("spin()", "time_limit"),
    "loop of the test": ("while True: pass", "time_limit"),
    "builtins stay": ("assert len([1]) == 1", "passed"),
    "subclasses become their base": ("assert f(OddInt(1)) == 2", "wrong_answer"),
    "test that does not compile": ("assert f(", "judge_error"),
    "own helper wins": ("def add(x): return 0\nassert add([Pair(1, 2)]) == 0", "passed"),
}


@one_tier_is_slow
def test_asserts(tier):
    tests = [TestCase(asserts=text) for text, _ in ASSERTS.values()]
    report = run_tests(COUNTER, tests, timeout_s=0.6, memory_mb=128, entry_point="f")
    found = dict(zip(ASSERTS, report.outcomes, strict=True))
    assert found == {name: outcome for name, (_, outcome) in ASSERTS.items()}, report.messages


def answering(*lines: str) -> str:
    """A program that writes these lines to the test code before it is asked."""
    return f"import os\nfor line in {lines!r}: os.write(4, line.encode() + b'\\n')"


# What equals everything, what calls what it likes, what is no value.
FORGED = [
    *(
        f'{{"result": {result}}}'
        for result in (
            '{"enum": ["unittest.mock", "_ANY", "x", {"reference": [1, "_ANY"]}]}',
            '{"reference": [1, "int", {"dict": [[]]}]}',
            '{"reference": [1, "int", {"reference": [2, "A"]}]}',
            '{"reference": ["1", "A"]}',
            '{"type": "eval"}',
            '{"type": "__import__"}',
            '{"numpy": ["|O", [1], "00"]}',
            '{"numpy": ["O8", null, [2]]}',
            '{"PosixPath": [{"reference": [1, "A"]}]}',
            '{"timedelta": [1e300]}',
            '{"Decimal": ["two"]}',
            '{"eval": ["2"]}',
            '{"unknown": "x"}',
            '{"exception": ["E"]}',
            '{"tuple": 2}',
            "{}",
            "nonsense",
        )
    ),
    '{"error": ["E", 1]}',
    '{"error": 2}',
]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x): return x + 1", "passed"),
        ("class Solution:\n    def f(self, x): return x + 1", "passed"),
        ("def f(x):", "compile_error"),
        ("1 / 0", "runtime_error"),
        ("raise SystemExit(0)", "runtime_error"),
        ("def g(x): return x", "runtime_error"),
        ("import os\nos._exit(0)", "runtime_error"),
        ("def f(x): return bytearray(10**9)", "memory_limit"),
        ("def f(x):\n    while True: print('x' * 1000)", "output_limit"),
        ("while True: pass", "time_limit"),
        # Answers on the channel by hand: a name that is none of its own, nonsense, silence.
        (answering('{"offered": {"f": {"reference": [0, "f"]}, "__builtins__": 0}, "kept": []}'),
         "runtime_error"),
        *((answering('{"offered": {"f": {"reference": [0, "f"]}}, "kept": []}', result),
           "runtime_error") for result in FORGED),
        ("import os\nos.write(4, b'nonsense\\n')", "runtime_error"),
        ("import os\nos.write(4, b'[' * 10**5 + b'\\n')", "wrong_answer"),
        ("import os\nfor fd in range(256):\n    try: os.write(fd, b'token\\n')\n"
         "    except OSError: pass", "runtime_error"),
    ],
)  # fmt: skip
@one_tier_is_slow
def test_programs_under_assert_tests(tier, source, expected):
    test = TestCase(asserts="assert f(1) == 2\nassert f(2) == 3")
    report = run_tests(source, [test], timeout_s=0.6, memory_mb=128, entry_point="f")
    assert report.outcomes == (expected,), report.messages


def told(source: str, expected: str) -> str:
    """What a program says by an exception: its output itself stays in the judge."""
    report = run_tests(source, [by_stdin("", expected)], **LIMITS)
    assert report.outcomes == ("runtime_error",)
    return report.messages[0]


@one_tier_is_slow
def test_the_same_program_gives_the_same_result_and_sees_nothing_of_the_judge(tier, monkeypatch):
    source = """
        import os, random
        found = [random.random(), list({str(i) for i in range(9)}), os.listdir()]
        found += [os.getcwd() == os.environ["HOME"], sorted(os.environ)]
        raise ValueError(found)
    """
    monkeypatch.setenv("KLEAR_SECRET", "secret")
    first = told(textwrap.dedent(source), "")
    assert "KLEAR" not in first and "PYTHONPATH" not in first
    pool.close_pool()
    assert told(textwrap.dedent(source), "") == first


@one_tier_is_slow
def test_limits_tell_nothing_of_what_is_expected(tier):
    source = "import resource as r; raise ValueError([r.getrlimit(i) for i in range(16)])"
    assert told(source, "YES") == told(source, "NO" * 1000)


def test_equal_jobs_are_run_once_and_all_are_reported(monkeypatch):
    submitted = []
    submit = pool.Pool.submit
    monkeypatch.setattr(pool.Pool, "submit", lambda *a, **k: submitted.append(1) or submit(*a, **k))
    jobs = [{"source": f"print({n % 2})", "tests": [by_stdin("", "1")], **LIMITS} for n in range(9)]
    reports = run_many(jobs, workers=2)
    assert [r.pass_rate for r in reports] == [0, 1] * 4 + [0]
    assert len(submitted) == 2


STDIN = by_stdin("", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"memory_mb": 0}, "memory_mb"),
        ({"tests": [STDIN, by_call([], 1)]}, r"tests\[1\].*entry_point"),
        ({"tests": [TestCase(asserts="assert f()")]}, r"tests\[0\].*entry_point"),
        ({"tests": [TestCase(call="{}", expected="1")], "entry_point": "f"},
         r"tests\[0\].call .*array"),
        ({"tests": [TestCase(call="[1", expected="1")], "entry_point": "f"}, r"tests\[0\].call"),
        ({"tests": [TestCase(call="[]", expected="one")], "entry_point": "f"},
         r"tests\[0\].expected"),
        ({"preset": "livecodebench"}, "preset must be one of python, lcb, got 'livecodebench'"),
    ],
)  # fmt: skip
def test_bad_jobs_are_refused_before_anything_runs(monkeypatch, changes, message):
    monkeypatch.setattr(pool, "shared_pool", None)
    job = {"source": "print(1)", "tests": [STDIN], **LIMITS, **changes}
    with pytest.raises(KlearError, match=message):
        run_many([job])


def test_a_change_of_any_judging_module_changes_the_code_s_fingerprint():
    """Fingerprints follow imports, so what runs in other processes must be imported here too."""
    code = "import sys, klearlib.verify.programs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = "sandbox_child sandbox_server sandbox_asserts sandbox_proxies"
    names += " sandbox_values presets program_judge compare answer_judge judge_loop pool"
    assert {f"klearlib.verify.{name}" for name in names.split()} <= set(done.stdout.split())


def test_remembered_reports_are_those_of_settled_runs(monkeypatch):
    """An equal job is not run again, unless a limit or a failure of the judge was involved, or
    nobody asked to remember."""
    monkeypatch.setattr(programs, "_remembered", {})
    right = ProgramJob("print(input())", [TestCase("a", stdin="a")], 5.0, 256)
    slow = ProgramJob("while True: pass", [TestCase("a", stdin="a")], 0.2, 256)
    failed = ProgramJob("def f(): pass", [TestCase(asserts="assert f(")], 5.0, 256, "f")
    asked = []
    submit = Pool.submit
    monkeypatch.setattr(Pool, "submit", lambda *a, **k: asked.append(1) or submit(*a, **k))
    first = run_many([right, slow, failed], remember=True)
    assert [report.outcomes[0] for report in first] == ["passed", "time_limit", "judge_error"]
    assert run_many([right, slow, failed, right], remember=True) == [*first, first[0]]
    assert len(asked) == 5
    run_many([right])
    assert len(asked) == 6
    monkeypatch.setattr(programs, "_MOST_REMEMBERED", 2)
    run_many([ProgramJob(f"print({n})", right.tests, 5.0, 256) for n in range(4)], remember=True)
    assert 1 <= len(programs._remembered) <= 2
