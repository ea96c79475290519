"""Fields of a parameter record with their meaning and limits, and the strict check of plain values.

Papermill checks neither names nor types: an unknown parameter is logged and the run goes on, and
YAML turns ``1e-4`` into text. Every value therefore passes through here before it is used.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import json
import math
import operator
import types
import typing

import yaml

from klearlib.errors import ParameterError, did_you_mean

MISSING = dataclasses.MISSING
_WORDS = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    bool: ("true or false", "truth values"),
}
_RANGES = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "above": ("above", operator.gt),
}


def parameter(default=MISSING, *, help: str, **limits):
    """A field with its meaning and limits; without `default` a value must be given.

    Limits: `minimum`, `maximum` (inclusive), `above` (exclusive), `choices` (for each element of a
    list too), `unique` (a list's elements differ, to six digits), `record` (a dict is checked
    against this record), `entries` (a dict maps names to dicts that are checked and completed by
    this record), `may_be_empty` (for `entries` and lists, which otherwise need an element), `paper`
    and `place` (the paper's value and where it is stated), `keyed` (False: the value cannot change
    a result, so it is not part of a cache key), `asset` ("model": the value names one, None names
    none), `check` (for an object, which has no other limits: a function that returns it or raises
    ParameterError).
    """
    metadata = {"help": help, **limits}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def count(help: str, default=MISSING, paper=MISSING, place=MISSING, *, minimum=1, **more):
    """A number of things, or a list of numbers: a `parameter` that is at least `minimum`."""
    stated = {"paper": paper, "place": place, "minimum": minimum, **more}
    stated = {name: value for name, value in stated.items() if value is not MISSING}
    return parameter(default, help=help, **stated)


def rate(help: str, default=MISSING, paper=MISSING, place=MISSING, **more):
    """A `parameter` above 0."""
    return count(help, default, paper, place, **{"minimum": MISSING, "above": 0.0} | more)


def choice(help: str, *words: str, default: str = "", **more):
    """One of `words`: a `parameter` that is the first of them by default."""
    return parameter(default or words[0], choices=words, help=help, **more)


def require(holds: object, message: str) -> None:
    """Raises ParameterError with `message` where a rule between parameters does not hold."""
    if not holds:
        raise ParameterError(message)


class Record:
    """The base of parameter records. A subclass states what differs in an inherited field as
    ``name = amended(...)``; otherwise type, default and limits are inherited."""

    def __init_subclass__(cls) -> None:
        restated = {name: each for name, each in vars(cls).items() if isinstance(each, _Amended)}
        bases = [base for base in reversed(cls.__mro__[1:]) if dataclasses.is_dataclass(base)]
        fields = {field.name: field for base in bases for field in dataclasses.fields(base)}
        for name, (default, limits) in restated.items():
            inherited = default_of(fields[name]) if default is MISSING else default
            setattr(cls, name, parameter(inherited, **fields[name].metadata | limits))
        kinds = inspect.get_annotations(cls) | {name: fields[name].type for name in restated}
        cls.__annotations__ = {name: kinds[name] for name in [*vars(cls), *kinds] if name in kinds}


class _Amended(typing.NamedTuple):
    default: object
    limits: dict


def amended(default=MISSING, **limits) -> typing.Any:
    """An inherited field of a `Record` with another default or other limits."""
    return _Amended(default, limits)


def check_values(record: type, values: dict, where: str):
    """`record` built from `values` after every name, type and range is checked.

    `where` opens each message. An integer is accepted for a number and becomes a float; a bool is
    no integer. A record of plain fields checks its ranges itself.

    Raises ParameterError: one line that names the parameter and the fix; all unknown names, or all
    that are missing, at once.
    """
    is_dict = isinstance(values, dict)
    require(is_dict, f"{where} must be a mapping of names to values, got {values!r}")
    fields = {field.name: field for field in shown_fields(record)}
    unknown = [f"{name!r}: {_instead(name, fields)}" for name in values if name not in fields]
    require(not unknown, f"{where}: unknown parameter {'; '.join(unknown)}")
    missing = [
        f"{name} is missing" + (f" ({field.metadata['help']})" if field.metadata else "")
        for name, field in fields.items()
        if name not in values and default_of(field) is MISSING
    ]
    require(not missing, f"{where}: {'; '.join(missing)}")
    kinds = typing.get_type_hints(record)
    checked = {
        name: _checked(values[name], kinds[name], f"{where}: {name}", field.metadata)
        for name, field in fields.items()
        if name in values
    }
    try:
        for name in checked:
            if "check" in fields[name].metadata:
                checked[name] = fields[name].metadata["check"](checked[name])
        return record(**checked)
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def _instead(name: object, fields: dict[str, dataclasses.Field]) -> str:
    """What to write for an unknown name: a field of an option belongs inside that option."""
    for field in fields.values():
        record = field.metadata.get("record")
        if record and name in {each.name for each in dataclasses.fields(record)}:
            return f"write it as {field.name}={{{name}: ...}}"
    return did_you_mean(str(name), fields)


def default_of(field: dataclasses.Field):
    """A field's default, a new one for lists and dicts; ``dataclasses.MISSING`` if required."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def shown_fields(record: type) -> list[dataclasses.Field]:
    """The fields of `record` in the order for people: profile, then the record's own, then those
    inherited from each of its bases in turn."""
    stated = [name for base in record.__mro__ for name in inspect.get_annotations(base)]
    place = {name: i for i, name in reversed([*enumerate(["profile", *stated])])}
    return sorted(dataclasses.fields(record), key=lambda field: place[field.name])


def parameters_cell(record: type) -> str:
    """The source of the cell tagged ``parameters``: one typed literal per line, help as comment.

    Papermill reads only this form, and warns of every parameter that it does not read; it reads no
    union either, so ``dict | None`` is written as ``dict``.
    """
    lines = []
    for field in shown_fields(record):
        default = default_of(field)
        text = json.dumps(default) if isinstance(default, (str, list)) else repr(default)
        kind = field.type.removesuffix(" | None")
        lines.append(f"{field.name}: {kind} = {text}  # {field.metadata['help']}")
    return "\n".join(lines)


def _checked(value, kind, where: str, limits):
    """`value` as `kind`, or ParameterError; a list's limits hold for each of its elements."""
    if kind is object:
        return value
    if isinstance(kind, types.UnionType):  # with None
        if value is None:
            return None
        kind = typing.get_args(kind)[0]
    if dict in (kind, typing.get_origin(kind)):
        return _checked_dict(value, where, limits)
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        if not isinstance(value, (list, tuple)):
            fix = "give at least one" if value is None else f"write [{value}]"
            if isinstance(value, str) and value.lstrip().startswith("["):
                name = where.rpartition(" ")[2]
                fix = f"papermill's -p passes a string, write -y '{{{name}: {value}}}'"
            words = _WORDS[item][1]
            raise ParameterError(f"{where} must be a list of {words}, got {value!r}: {fix}")
        may_be_empty = not limits or limits.get("may_be_empty")
        require(value or may_be_empty, f"{where} is empty: give at least one")
        checked = [_checked(each, item, f"{where}[{i}]", limits) for i, each in enumerate(value)]
        named = {f"{each:g}" if item is float else each for each in checked}  # as arms are
        twice = limits.get("unique") and len(named) < len(checked)
        require(not twice, f"{where} has a value twice (to six digits): {checked}")
        return checked
    return _plain(value, kind, where, limits)


def _checked_dict(value, where: str, limits) -> dict:
    if "record" in limits:
        complete = check_values(limits["record"], value, where)
        return {name: getattr(complete, name) for name in value}
    is_dict = isinstance(value, dict)
    require(is_dict, f"{where} must be a mapping of names to values, got {value!r}")
    if "entries" not in limits:
        return dict(value)
    require(value or limits.get("may_be_empty"), f"{where} is empty: name at least one")
    checked = {}
    for name, each in value.items():
        is_text = isinstance(name, str)
        require(is_text, f'{where} has the name {name!r}: write it in quotes, "{name}"')
        complete = check_values(limits["entries"], each, f"{where}: {name}")
        checked[name] = dataclasses.asdict(complete)
    return checked


def _plain(value, kind: type, where: str, limits):
    """A number, string or boolean within its limits."""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        hint = _hint(value, kind, limits)
        raise ParameterError(f"{where} must be {_WORDS[kind][0]}, got {value!r}{hint}")
    finite = kind is not float or math.isfinite(value)
    require(finite, f"{where} must be a finite number, got {value}")
    choices = limits.get("choices")
    if choices and value not in choices:
        raise ParameterError(f"{where} is {value!r}; {did_you_mean(str(value), choices)}")
    for name, (words, holds) in _RANGES.items():
        fits = name not in limits or holds(value, limits[name])
        require(fits, f"{where} must be {words} {limits.get(name)}, got {value!r}")
    return value


def _hint(value, kind: type, limits) -> str:
    """The likely cause, if the value came through YAML or a command line."""
    if kind is str and value is False and "off" in limits.get("choices", ()):
        return ': YAML reads off as false, write "off"'
    if isinstance(value, str) and kind in (int, float):
        with contextlib.suppress(ValueError):  # YAML reads 1e-4, without a point, as a string
            return f": a string; write {yaml.safe_dump(kind(value)).split()[0]} without quotes"
    return ""
