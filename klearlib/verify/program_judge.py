"""The process that judges programs, see `judge_loop`.

It alone knows the tests and what they expect: it hands inputs to a fork server (`sandbox_process`),
takes outputs from it and compares. A job is ``{"tier", "source", "entry_point", "preset",
"prelude", "timeout_s", "memory_mb", "tests": [{"kind", "given", "expected"}, ...]}``, a reply
``{"outcomes": [...], "messages": [...]}``.
"""

from __future__ import annotations

import ast
import fcntl
import json
import math
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache

from klearlib.verify.compare import same_output, same_value
from klearlib.verify.judge_loop import serve
from klearlib.verify.presets import PRESETS
from klearlib.verify.sandbox_child import MOST_CODE_BYTES, NOT_SHUT_IN, Limits
from klearlib.verify.sandbox_process import (
    Ending,
    SandboxEndedError,
    SandboxProcess,
    SandboxProgram,
)

_ATTEMPTS = 3
_LEAST_CAP_BYTES = 1 << 20
_FAILURES = ("runtime_error", "compile_error", "memory_limit")
_DEFAULT_INT_DIGITS = sys.int_info.default_max_str_digits
_NOT_RUN = ("judge_error", "the sandbox could not be closed")

Outcome = tuple[str, str]  # a word of records.OUTCOMES, and a message or ""


class ProgramJudge:
    """Judges jobs one after the other; `close` ends its fork server, which is started when it is
    needed and again when it is lost."""

    def __init__(self) -> None:
        self._server: SandboxProcess | None = None
        self._tier = ""

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def judge(self, job: dict) -> dict:
        """The outcomes and messages of all tests of a job, in a sandbox that lasts until they are
        run."""
        limits, reason = _limits(job), ""
        for _ in range(_ATTEMPTS):
            try:
                with closing(self._fork_server(job["tier"]).program(limits)) as sandbox:
                    pairs = _Program(sandbox, job, limits).outcomes()
                break
            except SandboxEndedError as error:
                reason = str(error)
                self.close()
        else:
            failure = "judge_error", f"the sandbox died {_ATTEMPTS} times: {reason}"
            pairs = [failure] * len(job["tests"])
        return {"outcomes": [p[0] for p in pairs], "messages": [p[1] for p in pairs]}

    def _fork_server(self, tier: str) -> SandboxProcess:
        if self._tier != tier:  # a fork server is of one tier
            self.close()
        if self._server is None:
            self._server, self._tier = SandboxProcess(tier), tier
        return self._server


class _Program:
    """The program of a job in its sandbox."""

    def __init__(self, sandbox: SandboxProgram, job: dict, limits: Limits) -> None:
        self._sandbox, self._job, self._limits = sandbox, job, limits
        self._timeout_s = job["timeout_s"]

    def outcomes(self) -> list[Outcome]:
        with _memory_file() as code:
            failure = self._compile(self._job["source"], code)
            if failure is None:
                _seal(code)  # no later child can change it
                if not self._sandbox.load(code):
                    message = "MemoryError: the program needs too much memory to load"
                    failure = "compile_error", message
        if failure is not None:
            return [failure] * len(self._job["tests"])
        return [self._outcome(test) for test in self._job["tests"]]

    def _compile(self, source: str, code: int) -> Outcome | None:
        """Compile prelude and program into the file `code`; None where that went well.

        A child does it that runs nothing of the program, once for all tests.
        """
        limits = replace(self._limits, file_bytes=MOST_CODE_BYTES)
        with (
            _sealed(source) as program,
            _sealed(_prelude(self._job)) as prelude,
            _memory_file() as record,
        ):
            files = [prelude, code, record, program]
            key = self._sandbox.start("compile", files, timeout_s=self._timeout_s)
            ending = self._sandbox.ending(key)
            if ending.status == 0 and not ending.timed_out:
                return None
            return _failure(ending, limits, code, record)

    def _outcome(self, test: dict) -> Outcome:
        judge = self._judge_asserts if test["kind"] == "asserts" else self._judge_output
        outcome = judge(test)
        if outcome == _NOT_RUN:
            with _memory_file() as code:
                if self._compile("", code) is None:  # the sandbox closes: the program said this
                    return "runtime_error", f"exit status {NOT_SHUT_IN}"
        return outcome

    def _judge_output(self, test: dict) -> Outcome:
        """A test by stdin or by call: one child, whose output or result is compared here."""
        by_call = test["kind"] == "call"
        with (
            _sealed(test["given"]) as given,
            _memory_file() as stdout,
            _memory_file() as record,
        ):
            key = self._sandbox.start(
                "call" if by_call else "script",
                [given, stdout, record],
                timeout_s=self._timeout_s,
            )
            failure = _failure(self._sandbox.ending(key), self._limits, stdout, record)
            if failure is not None:
                return failure
            if by_call:
                return _compare_value(record, test["expected"])
            printed = os.pread(stdout, _size(stdout), 0).decode("utf-8", "replace")
            if same_output(printed, test["expected"]):
                return "passed", ""
            word, text = _report(record)
            return (word, text) if word in _FAILURES else ("wrong_answer", "")

    def _judge_asserts(self, test: dict) -> Outcome:
        """The program serves calls in one child, the test code makes them in another."""
        token = secrets.token_hex(16)  # only test code that ran to its end knows it
        given_text = json.dumps({"asserts": test["given"], "token": token})
        with ExitStack() as stack:
            files = [stack.enter_context(_memory_file()) for _ in range(4)]
            stdout, record, test_stdout, test_record = files
            nothing = stack.enter_context(_sealed(""))
            given = stack.enter_context(_sealed(given_text))
            ends = socket.socketpair()
            try:
                serving = self._sandbox.start(
                    "serve",
                    [nothing, stdout, record, ends[0].fileno()],
                    timeout_s=self._timeout_s,
                )
                testing = self._sandbox.start(
                    "test",
                    [given, test_stdout, test_record, ends[1].fileno()],
                    timeout_s=2 * self._timeout_s + 1,  # its own work comes on top
                )
            finally:
                for end in ends:
                    end.close()
            test_ending = self._sandbox.ending(testing)
            word, text = _report(test_record)
            has_ended = word == "program_ended"
            if not has_ended:  # it would wait for calls for ever
                self._sandbox.stop(serving)
            ending = self._sandbox.ending(serving)
            if word == "token" and text == token and test_ending.status == 0:
                return "passed", ""
            if word in ("wrong_answer", "runtime_error", "memory_limit", "judge_error"):
                return word, " ".join(text.split())[:300]
            failure = _failure(ending, self._limits, stdout, record)
            if ending.timed_out or test_ending.timed_out:
                return "time_limit", ""
            if has_ended:
                return failure or ("runtime_error", "the program exited during the test")
            return _failure(test_ending, self._limits, test_stdout, test_record) or (
                "wrong_answer",
                "the test code exited before its last statement",
            )


def _failure(ending: Ending, limits: Limits, output: int, record: int) -> Outcome | None:
    """Why a child that did not end well did not; None where it did."""
    cap = limits.file_bytes
    if ending.status == NOT_SHUT_IN and not _size(record):
        return _NOT_RUN
    if ending.folder_full:  # told before the exit status, which the kill made
        return "output_limit", "too many or too large files"
    if ending.status == -signal.SIGXFSZ or _size(output) >= cap or _size(record) >= cap:
        return "output_limit", f"more than {cap} bytes"
    word, text = _report(record)
    # the kernel's hard CPU limit
    used_up = ending.status == -signal.SIGKILL and ending.cpu_s >= limits.cpu_s
    if ending.timed_out or ending.status == -signal.SIGXCPU or used_up:
        return "time_limit", ""
    if word == "compile_error":
        return word, text
    if ending.status == 0 and word:  # it ended well, and had begun
        return None
    if ending.status < 0:
        name = signal.Signals(-ending.status).name
        if ending.status == -signal.SIGKILL:
            return "memory_limit", "killed by itself, or because the machine ran out of memory"
        return ("runtime_error" if word else "compile_error"), f"killed by {name}"
    if word in _FAILURES:
        return word, text
    return "runtime_error", f"exit status {ending.status}"


def _report(record: int) -> Outcome:
    word, _, text = os.pread(record, _size(record), 0).decode("utf-8", "replace").partition("\n")
    if word in _FAILURES:
        text = " ".join(text.split())[:300]
    return word, text


def _compare_value(record: int, expected: str) -> Outcome:
    word, text = _report(record)
    if word in _FAILURES:
        return word, text
    if word != "value":
        return "runtime_error", "the program exited before returning a result"
    # No integer that is right has more digits: a longer one would only cost time.
    sys.set_int_max_str_digits(max(_DEFAULT_INT_DIGITS, len(expected)))
    try:
        returned = json.loads(text)
        equal = same_value(returned, json.loads(expected))
    except (ValueError, RecursionError) as error:
        return "runtime_error", f"the result is not a readable JSON value: {error}"[:300]
    return ("passed" if equal else "wrong_answer"), ""


def _limits(job: dict) -> Limits:
    # A program can read its limits: they are the same for all tests of a job, in steps of powers of
    # two, so that they do not tell one expected output from another.
    longest = max(len(test["expected"].encode("utf-8", "replace")) for test in job["tests"])
    preset = PRESETS[job["preset"]]
    return Limits(
        memory_bytes=job["memory_mb"] << 20,
        file_bytes=_LEAST_CAP_BYTES << (2 * longest // _LEAST_CAP_BYTES).bit_length(),
        cpu_s=math.ceil(job["timeout_s"]) + 1,
        entry_point=job["entry_point"],
        recursion_limit=preset.recursion_limit,
        int_digits=preset.int_digits,
        modules=_modules(_prelude(job)),
    )


def _prelude(job: dict) -> str:
    return PRESETS[job["preset"]].prelude + job["prelude"]


@cache
def _modules(prelude: str) -> list[str]:
    try:
        nodes = list(ast.walk(ast.parse(prelude)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # the compiler will say so
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return sorted(name for name in names if name.partition(".")[0] in sys.stdlib_module_names)


@contextmanager
def _memory_file() -> Iterator[int]:
    descriptor = os.memfd_create("memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _sealed(text: str) -> Iterator[int]:
    """A file in memory that nobody can change, read from its start."""
    with _memory_file() as descriptor:
        left = memoryview(text.encode("utf-8", "surrogatepass"))
        while left:
            left = left[os.write(descriptor, left) :]
        _seal(descriptor)
        yield descriptor


def _seal(descriptor: int) -> None:
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    os.lseek(descriptor, 0, os.SEEK_SET)


def _size(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


if __name__ == "__main__":
    with closing(ProgramJudge()) as judge:
        sys.exit(serve(judge.judge))
