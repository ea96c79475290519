"""What a forked child does: shut itself in, then run one program or the tests of one.

It holds nothing worth stealing: no expected output, no token but in a tester's own process. What it
reports goes to a private file of its own, where a program can forge only its own failure: the
judge, outside, believes an exit status and an output, never the word of the child.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import contextlib
import gc
import io
import json
import marshal
import os
import random
import resource
import signal
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from klearlib.verify import sandbox_asserts, sandbox_proxies
from klearlib.verify.sandbox_kernel import Filter, Ruleset, die_with_parent

REPORT, CHANNEL = 3, 4
SOURCE = 4  # of a compiling child, which has no channel
FIRST_FREE = 5
FILE_NAME = "solution.py"
MAX_MESSAGE_CHARS = 300
NOT_SHUT_IN = 99  # exit status where the sandbox could not be closed: nothing has run then
_STACK_BYTES = 64 << 20
_MAX_OPEN_FILES = 64
_CLOSED_BELOW = 256  # the fork server's own descriptors lie above those of a child
_CHUNK_BYTES = 1 << 20
MOST_CODE_BYTES = 1 << 26


@dataclass(frozen=True)
class Confinement:
    """What a child puts on, None where the tier has no such thing; and whether a process namespace
    holds it, whose processes can all be killed at once."""

    has_own_root: bool
    ruleset: Ruleset | None
    filter: Filter | None
    address_space: int


@dataclass(frozen=True)
class Limits:
    """What all tests of a program have in common.

    memory_bytes, on top of what the fork server has; file_bytes for each file, standard output
    included; cpu_s whole seconds. entry_point: what ``call`` and ``asserts`` tests call.
    recursion_limit, int_digits: of `presets.Preset`. modules: those of the standard library that
    the prelude imports; the fork server has them ready for all children.
    """

    memory_bytes: int
    file_bytes: int
    cpu_s: int
    entry_point: str | None
    recursion_limit: int
    int_digits: int
    modules: list[str]


ROLES = ("compile", "script", "call", "serve", "test")
"""What a child can be asked to do."""


def shut_in(limits: Limits, confinement: Confinement, parent_pid: int, role: str) -> None:
    """Limits first, the system call filter last: it denies what the others need."""
    file_bytes = MOST_CODE_BYTES if role == "compile" else limits.file_bytes
    try:
        limit(resource.RLIMIT_FSIZE, file_bytes, file_bytes)  # SIGXFSZ: output_limit
        # a program that sleeps is the clock's
        limit(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)
        die_with_parent(parent_pid)
        if confinement.ruleset is not None:
            confinement.ruleset.restrict_self()
        os.closerange(FIRST_FREE, _CLOSED_BELOW)  # the tests' descriptors are not this child's
        if confinement.filter is not None:
            confinement.filter.install(os.getpid())
    except OSError:
        os._exit(NOT_SHUT_IN)


def prepare() -> None:
    """What all children have in common, done once in the fork server: it costs them nothing."""
    limit(resource.RLIMIT_CORE, 0, 0)  # no core files
    limit(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES, _MAX_OPEN_FILES)
    highest = resource.getrlimit(resource.RLIMIT_STACK)[1]  # a program may ask for more
    limit(resource.RLIMIT_STACK, _STACK_BYTES, highest)
    limit(resource.RLIMIT_MEMLOCK, 0, 0)  # memory that no limit counts
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [FILE_NAME]
    threading.excepthook = _report_thread
    for name in [name for name in sys.modules if name.split(".")[0] == "klearlib"]:
        del sys.modules[name]
    for descriptor in range(FIRST_FREE):  # files in memory, as the children's will be
        if descriptor != 2:
            os.dup2(os.memfd_create("placeholder"), descriptor)
    random.seed(0)  # equal for all programs
    sys.stdin = sys.__stdin__ = _stream(0, "r", "<stdin>")
    sys.stdout = sys.__stdout__ = _stream(1, "w", "<stdout>")


def _stream(descriptor: int, mode: str, name: str) -> io.TextIOWrapper:
    """Standard input or output as Python makes it."""
    buffer = os.fdopen(descriptor, f"{mode}b", closefd=False)
    buffer.raw.name = name
    stream = io.TextIOWrapper(buffer, encoding="utf-8", errors="surrogateescape")
    stream.mode = mode
    return stream


def limit(what: int, soft: int, hard: int) -> None:
    """Set a resource limit, or keep one that is lower already."""
    most = resource.getrlimit(what)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(what, (soft, hard))


def report(word: str, text: str = "") -> None:
    """Say how it went; the last word counts."""
    content = f"{word}\n{text}".encode(errors="backslashreplace")
    os.ftruncate(REPORT, 0)
    os.pwrite(REPORT, content, 0)


Codes = tuple[types.CodeType, types.CodeType]
"""The prelude and the program."""


def play(role: str, limits: Limits, codes: Codes | None) -> NoReturn:
    """Play a word of `ROLES` and end this process, as Python ends a script.

    codes: None before they are compiled.
    """
    sys.setrecursionlimit(limits.recursion_limit)
    sys.set_int_max_str_digits(limits.int_digits)
    if role == "compile":
        _compile()
    arguments = None
    if role in ("call", "test"):
        with _integers_of_any_length():
            arguments = json.loads(os.pread(0, os.fstat(0).st_size, 0))
        os.lseek(0, 0, os.SEEK_END)
    gc.enable()
    if role == "test":
        sandbox_proxies.test(arguments, limits.entry_point, CHANNEL, report, codes[0])
        os._exit(0)
    os._exit(_finish(_run(role, limits.entry_point, codes, arguments)))


def _run(role: str, entry_point: str | None, codes: Codes, arguments: list | None) -> int:
    """Run the program; its exit status."""
    report("running")
    module = types.ModuleType("__main__" if role == "script" else "solution")
    module.__builtins__ = builtins  # exec would put its dictionary there
    sys.modules[module.__name__] = module
    status = 0
    try:
        exec(codes[0], module.__dict__)
        given = dict(module.__dict__)  # what the prelude has brought
        exec(codes[1], module.__dict__)
        if role == "call":
            _call(module, entry_point, arguments)
        elif role == "serve":
            sandbox_asserts.serve(module.__dict__, entry_point, CHANNEL, given)
    except SystemExit as stop:
        status = _exit_status(stop)
    except BaseException as error:  # a program may raise anything
        status = 1
        report(*described(error))
        del error
    return status


def _compile() -> NoReturn:
    """Write `Codes` of standard input and the source to standard output, for the children that run
    them. A prelude in the program's own text would change the numbers of its lines."""
    try:
        codes = []
        for descriptor, name in ((0, "prelude.py"), (SOURCE, FILE_NAME)):
            text = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            source = text.decode("utf-8", "surrogatepass")
            codes.append(compile(source, name, "exec", dont_inherit=True))
        code = marshal.dumps(tuple(codes))
        for start in range(0, len(code), _CHUNK_BYTES):
            os.write(1, code[start : start + _CHUNK_BYTES])
        os._exit(0)
    except MemoryError:
        report("compile_error", "MemoryError: the source needs too much memory to compile")
    except BaseException as error:  # SyntaxError, ValueError, RecursionError, OverflowError
        report("compile_error", described(error)[1])
    os._exit(1)


def _call(module: types.ModuleType, entry_point: str, arguments: list) -> None:
    result = sandbox_asserts.find_entry_point(module.__dict__, entry_point)(*arguments)
    try:
        with _integers_of_any_length():
            text = json.dumps(result, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        report("runtime_error", f"the result of {entry_point} is not a JSON value: {error}"[:300])
        os._exit(1)
    report("value", text)


@contextmanager
def _integers_of_any_length() -> Iterator[None]:
    """For JSON of the judge's and for the judge."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def _plain(value: object) -> object:
    name, module = type(value).__name__, type(value).__module__
    if module == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    if (name, module) in (("Decimal", "decimal"), ("Fraction", "fractions")):
        for kind in (int, float):
            if kind(value) == value:
                return kind(value)
    raise TypeError(f"a {type(value).__name__}")


def _report_thread(arguments: object) -> None:
    if arguments.exc_type is not SystemExit:
        report(*described(arguments.exc_value))


def described(error: BaseException) -> tuple[str, str]:
    """The outcome that an uncaught exception means, and its last line with the program's line."""
    if isinstance(error, MemoryError):
        return "memory_limit", "MemoryError"
    line = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILE_NAME:
            line = step.tb_lineno
        step = step.tb_next
    if line is None:
        line = getattr(error, "lineno", None)
    try:
        is_syntax = isinstance(error, SyntaxError) and error.msg
        text = " ".join(str(error.msg if is_syntax else error).split())
    except BaseException:  # a program's own exception may fail at this too
        text = ""
    name = type(error).__name__
    message = f"{name}: {text}" if text else name
    where = f" (line {line})" if isinstance(line, int) else ""
    return "runtime_error", message[: MAX_MESSAGE_CHARS - len(where)] + where


def _exit_status(stop: SystemExit) -> int:
    code = stop.code
    if code is None:
        return 0
    status = code & 0xFF if isinstance(code, int) else 1
    if status:
        report("runtime_error", f"SystemExit: {code!r}"[:MAX_MESSAGE_CHARS])
    return status


def _finish(status: int) -> int:
    """What Python does at exit: threads, atexit, standard output, then the program's objects while
    its names are still there, and what they print."""
    try:
        if _thread._count():
            threading._shutdown()
        atexit._run_exitfuncs()
        if not _is_closed(stdout := getattr(sys, "stdout", None)):
            stdout.flush()
        del stdout
        for name in ("__main__", "solution"):
            sys.modules.pop(name, None)
        sys.stdin, sys.stdout = sys.__stdin__, sys.__stdout__
        gc.collect()  # files that the program left open write out what they hold
        for names in gc.get_referrers(builtins):  # kept by a cache, say of typing
            if type(names) is dict and names.get("__builtins__") is builtins:
                names.clear()
                gc.collect()
        with contextlib.suppress(ValueError):  # it is detached
            if not _is_closed(sys.__stdout__):
                sys.__stdout__.flush()
    except SystemExit as stop:
        status = status or _exit_status(stop)
    except BaseException as error:  # atexit callbacks and streams are the program's too
        report(*described(error))
        status = status or 120
    return status


def _is_closed(stream: object) -> bool:
    """As Python asks: a stream that does not say is open."""
    return stream is None or bool(getattr(stream, "closed", False))
