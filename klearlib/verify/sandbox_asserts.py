"""Assert tests: the program serves calls in one child, the test code runs in another.

They exchange JSON lines over a socket pair (see `sandbox_values`). The program never shares memory
with the test code nor with the token that proves that it ran to its end. This is the program's
side; that of the test code is `sandbox_proxies`.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import operator
import types
from collections.abc import Callable

from klearlib.verify.sandbox_values import (
    ChannelEnd,
    UnsendableError,
    decode,
    encode,
    is_container,
)


def find_entry_point(names: dict, entry_point: str) -> Callable:
    """The method of a class ``Solution`` that has this name, else the function; NameError."""
    solution = names.get("Solution")
    if isinstance(solution, type) and hasattr(solution, entry_point):
        return getattr(solution(), entry_point)
    if entry_point not in names:
        raise NameError(f"the program does not define {entry_point!r}")
    return names[entry_point]


class _Objects:
    """The program's objects that have no JSON form, by number."""

    def __init__(self, names: dict) -> None:
        self.names = names
        self._objects: list[object] = []
        self._numbers: dict[int, int] = {}  # id of an object -> its number

    def refer(self, value: object, *base: object) -> object:
        """base: its JSON as the immutable type from which its class is derived."""
        kind = type(value)
        if isinstance(value, type) and issubclass(value, Exception):
            return {"exception": bases_of(value)}
        if kind.__name__ in ("coroutine", "async_generator"):
            raise UnsendableError(f"the program returns an {kind.__name__.replace('_', ' ')}")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return {"reference": [self._numbers[id(value)], kind.__name__, *base]}

    def resolve(self, number: int) -> object:
        return self._objects[number]


def bases_of(kind: type) -> list:
    """The name of an exception's class and, where it is no builtin, those of its bases."""
    own = kind.__module__ != "builtins"
    return [kind.__name__, [bases_of(b) for b in kind.__bases__ if issubclass(b, Exception)] * own]


def _functions(module: types.ModuleType, names: str) -> dict[str, Callable]:
    return {name: getattr(module, name) for name in names.split()}


def _call(target: Callable, /, *arguments: object, **named: object) -> object:
    return target(*arguments, **named)


def _has(target: object, *names: str) -> bool:
    kind = type(target)
    return any(getattr(kind, name, None) is not getattr(object, name, None) for name in names)


ONE_SIDED = {
    **_functions(builtins, "len iter next bool str repr format int float complex round reversed"),
    **_functions(builtins, "setattr delattr"),
    **_functions(math, "floor ceil trunc"),
    **_functions(operator, "index abs neg pos invert getitem setitem delitem"),
    "instancecheck": lambda target, other: isinstance(other, target),
    "subclasscheck": lambda target, other: issubclass(other, target),
    "enter": lambda target: type(target).__enter__(target),
    "exit": lambda target, *error: type(target).__exit__(target, *error),
}
"""What the test code may ask of an object of the program by an operator: the answer is a value as
any other that the program returns."""
TWO_SIDED = {
    **_functions(operator, "add sub mul matmul truediv floordiv mod pow lshift rshift xor"),
    "and": operator.and_,
    "or": operator.or_,
    "divmod": divmod,
}
"""What it may ask of two of them. With a value of the test's own the program would see by what it
is judged: ``f(x) - 9 == 0``."""
_OPERATIONS = {**ONE_SIDED, **TWO_SIDED, "call": _call, "get": getattr, "has": _has}


def serve(names: dict, entry_point: str, descriptor: int, given: dict) -> None:
    """Answer calls of the entry point, and of what else the program defines, until nobody asks.

    given: the names that were there before the program.
    """
    channel, objects = ChannelEnd(descriptor), _Objects(names)
    # defined by the program, not by the prelude
    own = {n: v for n, v in names.items() if not n.startswith("__") and given.get(n) is not v}
    offered = {n: v for n, v in own.items() if callable(v)}
    offered[entry_point] = find_entry_point(names, entry_point)
    greeting = {n: encode(v, objects.refer) for n, v in offered.items()}
    channel.send({"offered": greeting, "kept": [n for n in own if n not in offered]})
    while True:
        try:
            request = channel.receive()
        except EOFError:
            return
        channel.send(_reply(request, objects))


def _reply(request: dict, objects: _Objects) -> dict:
    try:
        arguments = decode(request["arguments"], objects)
        named = decode(request["named"], objects)
        target = objects.resolve(request["target"])
        result = _OPERATIONS[request["operation"]](target, *arguments, **named)
        reply = {"result": encode(result, objects.refer)}
        if same := [n for n, each in enumerate(arguments) if each is result and is_container(each)]:
            reply["same"] = same[0]
        changed = encode(arguments, objects.refer)
        if changed != request["arguments"]:  # changed in place: the test sees it too
            reply["arguments"] = changed
        return reply
    except UnsendableError as error:
        return {"cannot": str(error)}
    except (Exception, SystemExit) as error:  # the test code decides what an exception means
        reply = {"error": bases_of(type(error)), "text": ""}
        reply |= {"arguments": [], "attributes": {"dict": [[]]}}
        with contextlib.suppress(Exception):  # a program's own exception is the program's code too
            reply["text"] = str(error)[:1000]
        with contextlib.suppress(Exception):
            arguments = encode(list(error.args), objects.refer)
            reply |= {"arguments": arguments, "attributes": encode(vars(error), objects.refer)}
        return reply
