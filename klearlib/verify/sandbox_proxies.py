"""The side of the test code in assert tests, see `sandbox_asserts`.

Proxies stand for what stays in the program's process. A proxy asks the program for what a call, an
attribute or an operator gives: a value as any other that the program returns. A comparison is never
left to it. What a test does that cannot be put to the program, or must not be decided by it, ends
the test as the judge's failure.
"""

from __future__ import annotations

import _thread
import builtins
import enum
import json
import re
import types
from collections.abc import Callable

from klearlib.verify.sandbox_asserts import ONE_SIDED, TWO_SIDED
from klearlib.verify.sandbox_values import (
    IMMUTABLE,
    NONSENSE,
    ChannelEnd,
    decode,
    encode,
    is_container,
    take_changes,
)

_SHOWN = ("__name__", "__qualname__", "__dict__")
_TEXT = "_klear_text"
_OF_THE_PROCESS = re.compile(
    r"\b(?:redirect_std(?:out|err)|sys\.std(?:in|out|err)|capsys|monkeypatch|patch(?=\())\b"
)


class _ProgramEnded(BaseException):
    """The program's process is gone, or does not keep to the protocol.

    No Exception: test code could take that for what the program raised.
    """


class _CannotPut(BaseException):
    """The test does what cannot be put to the program."""


class _Program:
    """The program's process as the test code sees it; `names` are those of the test code."""

    def __init__(self, descriptor: int) -> None:
        self._channel = ChannelEnd(descriptor)
        self._proxies: dict[int, object] = {}
        self._classes: dict[tuple, type] = {}
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.kept: list[str] = []  # names of the program that the test code does not get
        self.raised: list[BaseException] = []
        self.fault = ""
        self.is_gone = False
        self._lock = _thread.RLock()  # a test may have threads
        self._num_asked = 0
        self._copies: dict[tuple, tuple] = {}  # of the program's containers, by where they are

    def greet(self, entry_point: str) -> None:
        """Take over what the program defines. It must not choose what the test's own names mean."""
        try:
            greeting = self._channel.receive()
            offered, self.kept = greeting["offered"], greeting["kept"]
            own = {*self.names, *dir(builtins)}
            taken = [n for n in offered if not n.startswith("__") and n not in own]
            self.names |= {n: decode(offered[n], self) for n in {*taken, entry_point}}
        except NONSENSE as error:
            self.is_gone = True
            raise _ProgramEnded from error
        self.names["candidate"] = self.names[entry_point]

    def ask(self, operation: str, target: int, /, *arguments: object, **named: object) -> object:
        with self._lock:
            return self._ask(operation, target, *arguments, **named)

    def _ask(self, operation: str, target: int, /, *arguments: object, **named: object) -> object:
        request = {
            "operation": operation,
            "target": target,
            "arguments": encode(list(arguments), self._refer),
            "named": encode(named, self._refer),
        }
        self._num_asked += 1
        try:
            self._channel.send(request)
            reply = self._channel.receive()
            if "cannot" in reply:
                self.cannot(str(reply["cannot"]))
            if "error" not in reply:
                result = decode(reply["result"], self)
                changed = decode(reply.get("arguments", []), self)
                for old, new in zip(arguments, changed, strict=False):
                    if type(old) is type(new):
                        take_changes(old, new)
                if "same" in reply and type(arguments[reply["same"]]) is type(result):
                    result = arguments[reply["same"]]
                if operation in ("get", "getitem") and is_container(result):
                    place = operation, target, json.dumps(request["arguments"])
                    self.look_at_copies(place)
                    self._copies[place] = result, encode(result, self._refer), self._num_asked
                return result
            error = self._error(reply)
        except NONSENSE as failure:
            self.is_gone = True  # kept, as the fault is
            raise _ProgramEnded from failure
        if isinstance(error, StopIteration) and operation != "next":  # would end the test's loops
            error = RuntimeError("the program raised StopIteration")  # as in PEP 479
        self.raised.append(error)
        raise error

    def look_at_copies(self, *places: tuple) -> None:
        """End the test if it has changed a container of an object of the program and asked more:
        the program's own has stayed as it was. Without places, look at all of them."""
        for place in places or list(self._copies):
            copy, before, num_asked = self._copies.pop(place, (None, None, self._num_asked))
            if num_asked < self._num_asked and encode(copy, self._refer) != before:
                self.cannot(f"a test changes a {type(copy).__name__} of an object of the program")

    def cannot(self, what: str) -> None:
        """End the test. The fault is kept, since test code may catch whatever is raised."""
        self.fault = self.fault or what
        raise _CannotPut

    def resolve(self, number: int, name: str, *base: object) -> object:
        """The proxy for an object of a class of this name; with its value as an immutable type,
        that value, which asks for all else."""
        if type(number) is not int:
            raise ValueError("a reference is a number")
        if base:
            (plain,) = base
            if type(plain) not in IMMUTABLE:
                raise ValueError(f"not a value of an immutable type: {plain!r}")
            derived = self._class(name, _Derived, type(plain))(plain)
            vars(derived).update(_klear_program=self, _klear_number=number)
            return derived
        if number not in self._proxies:
            self._proxies[number] = self._class(name, _Proxy)(self, number)
        return self._proxies[number]

    def exception(self, bases: list) -> type[Exception]:
        name, above = bases
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, Exception | SystemExit):
            return known
        return self._class(name, *map(self.exception, above or [["Exception", []]]))

    def _class(self, name: str, *bases: type) -> type:
        if (name, bases) not in self._classes:
            own = {"__slots__": ()} if bases == (_Proxy,) else {}
            own |= {"__str__": _said} if issubclass(bases[0], Exception) else {}
            self._classes[name, bases] = type(name, bases, own)
        return self._classes[name, bases]

    def _error(self, reply: dict) -> Exception:
        arguments = decode(reply["arguments"], self)
        for kind in self.exception(reply["error"]).__mro__:
            try:
                error = kind(*arguments)
                break
            except TypeError:  # it wants other arguments than it keeps
                continue
        vars(error).update(decode(reply["attributes"], self), **{_TEXT: reply["text"]})
        return error

    def _refer(self, value: object, *base: object) -> object:
        if isinstance(value, _Proxy | _Derived):
            return {"reference": [_number(value)]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": [type(value).__name__, list(value._fields), *base]}
        what = f"a test passes a {type(value).__name__}, which cannot be sent"
        if isinstance(value, enum.Enum):  # the program may have the same
            return base[0] if base else {"unknown": what}
        return self.cannot(what)


def _said(error: Exception) -> str:
    return vars(error).get(_TEXT, Exception.__str__(error))


def _program(proxy: object) -> _Program:
    return object.__getattribute__(proxy, "_klear_program")


def _number(proxy: object) -> int:
    return object.__getattribute__(proxy, "_klear_number")


def _ask(operation: str) -> Callable:
    def method(self: object, /, *arguments: object, **named: object) -> object:
        return _program(self).ask(operation, _number(self), *arguments, **named)

    return method


_get = _ask("get")


def _left_open(proxy: _Proxy, *names: str) -> object:
    """What Python makes of an operator that a class does not define. Of one that it does, no
    program can be asked."""
    if _ask("has")(proxy, *names):
        kind = type(proxy).__name__
        _program(proxy).cannot(f"a test needs {names[0]} of the program's own class {kind}")
    return NotImplemented


class _Derived:
    """An immutable value of a class that the program derived from a builtin one. It is compared as
    what it is in the builtin one."""

    __slots__ = ()
    __repr__, __str__, __format__ = _ask("repr"), _ask("str"), _ask("format")

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name not in _SHOWN:
            raise AttributeError(name)
        return _get(self, name)


class _Proxy:
    """An object of the program that stays in its process."""

    __slots__ = ("_klear_number", "_klear_program")
    __call__ = _ask("call")
    __getattr__ = _Derived.__getattr__

    def __init__(self, program: _Program, number: int) -> None:
        object.__setattr__(self, "_klear_program", program)
        object.__setattr__(self, "_klear_number", number)

    def __eq__(self, other: object) -> object:
        if other is self or other is None:
            return other is self
        return _left_open(self, "__eq__", "__ne__")

    def __hash__(self) -> int:
        _left_open(self, "__hash__")
        return hash(_number(self))

    def __contains__(self, item: object) -> bool:
        _left_open(self, "__contains__")
        return any(each is item or each == item for each in self)

    def __mro_entries__(self, bases: object) -> object:
        return _program(self).cannot("a test derives a class from one of the program")

    def __reduce_ex__(self, protocol: object) -> object:
        return _program(self).cannot(f"a test copies a {type(self).__name__} of the program")


def _define_operators() -> None:
    def two_sided(name: str) -> Callable:
        def method(self: _Proxy, other: object, *more: object) -> object:
            if isinstance(other, _Proxy | _Derived) and not more:
                return _ask(name)(self, other)
            return _left_open(self, f"__{name}__", f"__i{name}__")

        return method

    def left_open(name: str) -> Callable:
        return lambda self, other: _left_open(self, name)

    for name in ONE_SIDED:
        setattr(_Proxy, f"__{name}__", _ask(name))
    for name in TWO_SIDED:
        setattr(_Proxy, f"__{name}__", two_sided(name))
        setattr(_Proxy, f"__r{name}__", left_open(f"__r{name}__"))
    for name in ("lt", "le", "gt", "ge"):
        setattr(_Proxy, f"__{name}__", left_open(f"__{name}__"))
    asked = _Proxy.__instancecheck__
    _Proxy.__instancecheck__ = lambda self, other: (
        isinstance(type(other), type)
        and isinstance(other, _Proxy | _Derived)
        and asked(self, other)
    )
    _Proxy.__exit__ = lambda self, *error: bool(_ask("exit")(self, None, None, None)) and False


_define_operators()


def test(
    job: dict, entry_point: str, descriptor: int, report: Callable, prelude: types.CodeType
) -> None:
    """Run the test code of `job` and report its token where it ran to its end.

    `job`: ``{"asserts": Python statements, "token": text that only this process knows}``. What the
    program finds defined by its prelude the test code finds too.
    """
    program = _Program(descriptor)
    if match := _OF_THE_PROCESS.search(job["asserts"]):
        report("judge_error", f"a test uses {match[0]}, and the program has a process of its own")
        return
    try:
        code = compile(job["asserts"], "tests.py", "exec", dont_inherit=True)
    except Exception as error:
        report("judge_error", f"the test itself does not compile: {error}"[:300])
        return
    error = None
    try:
        exec(prelude, program.names)
        program.greet(entry_point)
        try:
            exec(code, program.names)
        finally:
            program.look_at_copies()
    except BaseException as raised:
        error = raised
    report(*_outcome(error, program, job["token"]))


test.__test__ = False


def _outcome(error: BaseException | None, program: _Program, token: str) -> tuple[str, ...]:
    if program.is_gone:
        return ("program_ended",)
    if program.fault or error is None:
        return ("judge_error", program.fault) if program.fault else ("token", token)
    line = " ".join(f"{type(error).__name__}: {error}".split())[:300].removesuffix(":")
    if any(error is raised for raised in program.raised):
        return ("memory_limit" if isinstance(error, MemoryError) else "runtime_error"), line
    if isinstance(error, ImportError):
        return "judge_error", f"the test imports a module that is not installed: {line}"
    if isinstance(error, NameError) and error.name in program.kept:
        return "judge_error", f"the test uses the program's {error.name}, which is not a function"
    return "wrong_answer", line
