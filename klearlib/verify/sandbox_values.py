"""Python values as JSON that keeps their types: what a program and the tests of it exchange.

Only plain data comes out of `decode`, so a program cannot slip an object with an ``__eq__`` of its
own into a comparison. What has no such form stays where it is and travels as a reference.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Callable

_NUMBERS = {"Decimal": "decimal", "Fraction": "fractions"}
_MAX_JSON_INT = 1 << 63
_MUTABLE = (list, dict, set, bytearray, deque)


def encode(value: object, refer: Callable[[object], object]) -> object:
    """`value` as JSON; subclasses become their base, `refer` gives the key of anything else.

    >>> encode((1, {2: {3}}), refer=id)
    {'tuple': [1, {'dict': [[2, {'set': [3]}]]}]}
    """

    def many(values):
        return [encode(v, refer) for v in values]

    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) < _MAX_JSON_INT else {"int": hex(number)}
    if isinstance(value, float):
        number = float(value)
        return number if math.isfinite(number) else {"float": repr(number)}
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, list):
        return many(value)
    if isinstance(value, dict):
        return {"dict": [many(item) for item in dict.items(value)]}
    for kind in (tuple, set, frozenset, deque):
        if isinstance(value, kind):
            return {kind.__name__: many(value)}
    for kind in (bytes, bytearray):
        if isinstance(value, kind):
            return {kind.__name__: bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": many([value.real, value.imag])}
    if isinstance(value, range):
        return {"range": many([value.start, value.stop, value.step])}
    name, module = type(value).__name__, type(value).__module__
    if _NUMBERS.get(name) == module:
        return {name: str(value)}
    if module == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), refer)
    return {"reference": refer(value)}


def decode(coded: object, resolve: Callable[[object], object]) -> object:
    """The value of `encode`'s result; `resolve` gives the object behind a reference.

    Raises ValueError, TypeError or KeyError where it is no such result.
    """
    if isinstance(coded, list):
        return [decode(c, resolve) for c in coded]
    if not isinstance(coded, dict):
        return coded
    ((tag, held),) = coded.items()
    if tag == "reference":
        return resolve(held)
    if tag == "int":
        return int(held, 16)
    if tag == "float":
        return float(held)
    if tag in ("bytes", "bytearray"):
        return {"bytes": bytes, "bytearray": bytearray}[tag].fromhex(held)
    if tag in _NUMBERS:
        return getattr(importlib.import_module(_NUMBERS[tag]), tag)(held)
    if tag == "dict":
        return {decode(k, resolve): decode(v, resolve) for k, v in held}
    values = [decode(h, resolve) for h in held]
    if tag in ("complex", "range"):
        return {"complex": complex, "range": range}[tag](*values)
    return {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}[tag](values)


def take_changes(old: object, new: object) -> None:
    """Make the container `old` equal to `new`, a value of the same type, in place.

    Containers inside stay the same objects where they can, for names that the caller has for them.

    >>> rows = [[1], [2]]; first = rows[0]
    >>> take_changes(rows, [[1, 5], [2]])
    >>> first
    [1, 5]
    """
    if isinstance(old, list | deque):
        for i in range(min(len(old), len(new))):
            if _is_same_container(old[i], new[i]):
                take_changes(old[i], new[i])
            else:
                old[i] = new[i]
        while len(old) > len(new):
            old.pop()
        old.extend(list(new)[len(old) :])
    elif isinstance(old, dict):
        kept = {k: old[k] for k in new if k in old and _is_same_container(old[k], new[k])}
        for key, value in kept.items():
            take_changes(value, new[key])
        old.clear()
        old.update({**new, **kept})
    elif isinstance(old, set):
        old.clear()
        old.update(new)
    elif isinstance(old, bytearray):
        old[:] = new


def _is_same_container(old: object, new: object) -> bool:
    return type(old) is type(new) and isinstance(old, _MUTABLE)
