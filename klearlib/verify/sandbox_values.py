"""Python values as JSON that keeps their types: what a program and the tests of it exchange.

Only plain data comes out of `decode`, so a program cannot slip an object with an ``__eq__`` of its
own into a comparison. What has no such form stays where it is and travels as a reference.
"""

from __future__ import annotations

import builtins
import enum
import importlib
import json
import math
import os
import re
import sys
from array import array
from collections import deque, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

_MAX_JSON_INT = 1 << 63  # longer ones as text: parsing them takes the square of their length
_DTYPE = re.compile(r"[<>|=][biufcmMSUO]\d*(\[\w+\])?")
_OWN_MODULES = ("__main__", "solution")  # of the test code, and of the program


NONSENSE = (
    *(EOFError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(ImportError, NotImplementedError),
)
"""What a message that keeps to no protocol can raise."""


class UnsendableError(ValueError):
    """A value that the other side does not know."""


class ChannelEnd:
    """One JSON value a line, both ways, over a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._reader = os.fdopen(descriptor, "rb", closefd=False)
        self._writer = os.fdopen(descriptor, "wb", closefd=False)

    def send(self, value: object) -> None:
        self._writer.write(json.dumps(value).encode() + b"\n")
        self._writer.flush()

    def receive(self) -> object:
        """The next value; EOFError where the other side is gone."""
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)


class _Kind(NamedTuple):
    """A type in `module`: `fields` of its values, of which `make`, or else the type, makes one."""

    module: str
    fields: Callable[[Any], list]
    make: Callable | None = None


def _pairs(value: dict) -> list:
    return [list(pair) for pair in dict.items(value)]


def _whole(value: Any) -> list:
    return [list(value)]


def _text(value: Any) -> list:
    return [str(value)]


def _clock(name: str) -> Callable:
    def make(*fields: Any) -> object:
        return getattr(importlib.import_module("datetime"), name)(*fields[:-1], fold=fields[-1])

    return make


_KINDS = {
    "dict": _Kind("builtins", lambda v: [_pairs(v)]),
    "tuple": _Kind("builtins", _whole),
    "set": _Kind("builtins", _whole),
    "frozenset": _Kind("builtins", _whole),
    "bytes": _Kind("builtins", lambda v: [v.hex()], bytes.fromhex),
    "bytearray": _Kind("builtins", lambda v: [v.hex()], bytearray.fromhex),
    "complex": _Kind("builtins", lambda v: [v.real, v.imag]),
    "range": _Kind("builtins", lambda v: [v.start, v.stop, v.step]),
    "slice": _Kind("builtins", lambda v: [v.start, v.stop, v.step]),
    "dict_keys": _Kind("builtins", _whole, lambda v: dict.fromkeys(v).keys()),
    "dict_values": _Kind("builtins", _whole, lambda v: dict(enumerate(v)).values()),
    "dict_items": _Kind("builtins", lambda v: [[list(i) for i in v]], lambda v: dict(v).items()),
    "deque": _Kind("collections", lambda v: [list(v), v.maxlen]),
    "Counter": _Kind("collections", lambda v: [dict(v)]),
    "OrderedDict": _Kind("collections", lambda v: [_pairs(v)]),
    "defaultdict": _Kind("collections", lambda v: [v.default_factory, _pairs(v)]),
    "array": _Kind("array", lambda v: [v.typecode, list(v)]),
    "Decimal": _Kind("decimal", _text),
    "Fraction": _Kind("fractions", lambda v: [v.numerator, v.denominator]),
    "UUID": _Kind("uuid", _text),
    "PosixPath": _Kind("pathlib", _text),
    "PurePosixPath": _Kind("pathlib", _text),
    "PureWindowsPath": _Kind("pathlib", _text),
    "date": _Kind("datetime", lambda v: [v.year, v.month, v.day]),
    "time": _Kind(
        "datetime",
        lambda v: [v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold],
        _clock("time"),
    ),
    "datetime": _Kind(
        "datetime",
        lambda v: [*v.timetuple()[:6], v.microsecond, v.tzinfo, v.fold],
        _clock("datetime"),
    ),
    "timedelta": _Kind("datetime", lambda v: [v.days, v.seconds, v.microseconds]),
    "timezone": _Kind("datetime", lambda v: list(v.__getinitargs__())),
    "ZoneInfo": _Kind("zoneinfo", lambda v: [v.key]),
}
_MUTABLE = (list, dict, set, bytearray, deque, array)
IMMUTABLE = (int, float, str, tuple, frozenset, bytes, complex)


def encode(value: Any, refer: Callable[..., object]) -> object:
    """`value` as JSON.

    refer: gives the JSON of anything else, and of an object whose class is derived from an
        immutable type, then with the JSON of it as that type. Other derived classes become their
        base.

    >>> encode((1, {2: {3}}), refer=id)
    {'tuple': [[1, {'dict': [[[2, {'set': [[3]]}]]]}]]}
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if abs(value) < _MAX_JSON_INT else {"int": hex(value)}
    if kind is float:  # JSON has neither NaN nor infinity
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is list:
        return [encode(v, refer) for v in value]
    name, module = kind.__name__, kind.__module__.partition(".")[0]
    known = _KINDS.get(name)
    if known is not None and known.module == module:
        fields = [encode(field, refer) for field in known.fields(value)]
        if name in ("time", "datetime") and "reference" in (fields[-2] or ()):
            return refer(value)  # a time zone of its own
        return {name: fields}
    if isinstance(value, enum.Enum):
        base = _as_base(value, refer) if isinstance(value, IMMUTABLE) else refer(value)
        return {"enum": [kind.__module__, kind.__qualname__, value.name, base]}
    if kind is type and module == "builtins" and getattr(builtins, value.__name__, None) is value:
        return {"type": value.__name__}
    if module == "numpy":
        return _encode_numpy(value, refer)
    for base in _MUTABLE:
        if isinstance(value, base):
            if base is list:
                return [encode(v, refer) for v in value]
            return {base.__name__: [encode(v, refer) for v in _KINDS[base.__name__].fields(value)]}
    return _as_base(value, refer) if isinstance(value, IMMUTABLE) else refer(value)


def _as_base(value: object, refer: Callable[..., object]) -> object:
    base = next(base for base in IMMUTABLE if isinstance(value, base))
    plain = str.__str__(value) if base is str else base(value)  # str() is what its class says
    return refer(value, encode(plain, refer))


def _encode_numpy(value: Any, refer: Callable[..., object]) -> object:
    numpy = sys.modules["numpy"]
    is_array = type(value) is numpy.ndarray
    if not is_array and not isinstance(value, numpy.generic):
        return refer(value)
    kind, shape = value.dtype.kind, list(value.shape) if is_array else None
    if not _DTYPE.fullmatch(value.dtype.str):
        return refer(value)
    items = [encode(v, refer) for v in value.ravel()] if kind == "O" else value.tobytes().hex()
    return {"numpy": [value.dtype.str, shape, items]}


class Side(Protocol):
    """What one of the two knows of the other's objects, for `decode`."""

    names: dict[str, object]
    """Where an Enum that a test or a program defines is looked for."""

    def resolve(self, number: int, *how: object) -> object:
        """The object of a reference."""

    def exception(self, bases: list) -> type[Exception]:
        """The exception with this name and, where it is no builtin, these bases."""


def decode(coded: object, side: Side) -> Any:
    """The value of `encode`'s result. Raises one of `NONSENSE` where it is none."""
    if isinstance(coded, list):
        return [decode(c, side) for c in coded]
    if not isinstance(coded, dict):
        return coded
    ((tag, held),) = coded.items()
    if tag == "unknown":
        raise UnsendableError(held)
    if tag == "exception":
        return side.exception(held)
    if tag == "int":
        return int(held, 16)
    if tag == "float":
        return float(held)
    if tag == "type":
        kind = getattr(builtins, held)
        if not isinstance(kind, type):
            raise ValueError(f"{held!r} is not a type")
        return kind
    if tag == "enum":
        *path, base = held
        member = _member(*path, side.names)
        return decode(base, side) if member is None else member
    fields = [decode(h, side) for h in held]
    if tag == "reference":
        return side.resolve(*fields)
    if tag == "numpy":
        return _decode_numpy(*fields)
    if tag == "namedtuple":
        name, names, values = fields
        own = side.names.get(name)
        is_same = isinstance(own, type) and getattr(own, "_fields", None) == tuple(names)
        return (own if is_same else namedtuple(name, names))(*values)
    kind = _KINDS[tag]
    make = kind.make or getattr(importlib.import_module(kind.module), tag)
    return make(*fields)


def _member(module: str, path: str, name: str, names: dict) -> enum.Enum | None:
    """A member of an Enum by its name, None where this process has no such class.

    Nothing is imported for it: what an import does would be the other side's choice.
    """
    found: object = None
    scope = names if module in _OWN_MODULES else getattr(sys.modules.get(module), "__dict__", {})
    for step in path.split("."):
        found = scope.get(step)
        scope = vars(found) if isinstance(found, type) else {}
    return found.__members__.get(name) if isinstance(found, enum.EnumMeta) else None


def _decode_numpy(dtype: str, shape: list[int] | None, items: str | list) -> object:
    numpy = importlib.import_module("numpy")
    if not _DTYPE.fullmatch(dtype):  # no code in a dtype's metadata
        raise ValueError(f"not a dtype of plain values: {dtype!r}")
    if isinstance(items, str):
        flat = numpy.frombuffer(bytes.fromhex(items), dtype).copy()
    else:
        flat = numpy.empty(len(items), object)
        for place, item in enumerate(items):
            flat[place] = item
    return flat[0] if shape is None else flat.reshape(shape)


def take_changes(old: Any, new: Any) -> None:
    """Make the container `old` equal to `new`, a value of the same type, in place.

    Containers inside stay the same objects where they can, for names that the caller has for them.

    >>> rows = [[1], [2]]; first = rows[0]
    >>> take_changes(rows, [[1, 5], [2]])
    >>> first
    [1, 5]
    """
    if isinstance(old, list | deque):
        values = [*map(_changed, old, new), *list(new)[len(old) :]]
        old.clear()
        old.extend(values)
    elif isinstance(old, dict):
        items = {k: _changed(old[k], v) if k in old else v for k, v in new.items()}
        old.clear()
        old.update(items)
    elif isinstance(old, set):
        old.clear()
        old.update(new)
    elif isinstance(old, bytearray | array):
        old[:] = new
    elif _is_numpy(old) and old.shape == new.shape:
        old[...] = new


def _changed(old: Any, new: Any) -> Any:
    """The container `old` made equal to `new`, where they are of one type; else `new`."""
    if type(old) is not type(new) or not is_container(old):
        return new
    take_changes(old, new)
    return old


def is_container(value: object) -> bool:
    """Whether a value can be changed in place."""
    return isinstance(value, _MUTABLE) or _is_numpy(value)


def _is_numpy(value: object) -> bool:
    return type(value).__name__ == "ndarray" and type(value).__module__ == "numpy"
