"""Fields of a parameter record with their meaning and limits, and the strict check of plain values.

Papermill checks neither names nor types: an unknown parameter is logged and the run goes on, and
YAML turns ``1e-4`` into text. Every value therefore passes through here before it is used.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import math
import types
import typing

from klearlib.errors import ParameterError, did_you_mean

_WORDS = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
MAX_ITEMS = 256
"""Values of a list: each is an arm or a run of its own."""
MAX_INTEGER = 2**63
_PLURALS = {int: "integers", float: "numbers", str: "texts", bool: "truth values"}


def parameter(default=dataclasses.MISSING, *, help: str, **limits):
    """A field with its meaning and limits; without `default` a value must be given.

    Limits: `minimum`, `maximum` (inclusive), `above` (exclusive), `choices` (for each element of a
    list too), `unique` (a list's elements differ, numbers in six digits, by
    which arms are named), `record` (a dict is checked against this record), `entries` (a dict maps
    names to dicts that are checked and completed by this record), `may_be_empty` (of `entries` and
    lists, which have an element otherwise),
    `paper` and `place` (the paper's value and where it says so), `keyed` (False: the value cannot
    change a result, so it is no part of a cache key), `asset` ("model": the value names one, None
    names none), `check` (of an object, for which no other limit holds: a function that gives it or
    raises ParameterError).
    """
    metadata = {"help": help, **limits}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def count(help: str, minimum: int = 1, **more):
    """A number of things, or a list of numbers: a `parameter` that is at least `minimum`."""
    return parameter(minimum=minimum, help=help, **more)


def choice(help: str, *words: str, default: str = "", **more):
    """One of `words`: a `parameter` that is the first of them by default."""
    return parameter(default or words[0], choices=words, help=help, **more)


def rate(help: str, **more):
    """A `parameter` above 0."""
    return parameter(above=0.0, help=help, **more)


class Record:
    """The base of parameter records. A subclass restates what differs in an inherited field as
    ``name = amended(...)``; type, default and limits are the inherited ones otherwise."""

    def __init_subclass__(cls) -> None:
        restated = {name: each for name, each in vars(cls).items() if isinstance(each, _Amended)}
        bases = [base for base in reversed(cls.__mro__[1:]) if dataclasses.is_dataclass(base)]
        fields = {field.name: field for base in bases for field in dataclasses.fields(base)}
        for name, (default, limits) in restated.items():
            inherited = default_of(fields[name]) if default is dataclasses.MISSING else default
            setattr(cls, name, parameter(inherited, **fields[name].metadata | limits))
        kinds = inspect.get_annotations(cls) | {name: fields[name].type for name in restated}
        cls.__annotations__ = {name: kinds[name] for name in [*vars(cls), *kinds] if name in kinds}


class _Amended(typing.NamedTuple):
    default: object
    limits: dict


def amended(default=dataclasses.MISSING, **limits) -> typing.Any:
    """An inherited field of a `Record` with another default or other limits."""
    return _Amended(default, limits)


def check_values(record: type, values: dict, where: str):
    """`record` built from `values` after every name, type and range is checked.

    `where` opens each message. An integer is accepted for a number and becomes a float; a bool is
    no integer. A record of plain fields checks its ranges itself.

    Raises:
        ParameterError: one line that names the parameter and the fix; all unknown names, or all
            that are missing, at once.
    """
    fields = {field.name: field for field in shown_fields(record)}
    unknown = [
        f"{name!r}: {did_you_mean(str(name), fields)}" for name in values if name not in fields
    ]
    if unknown:
        raise ParameterError(f"{where}: unknown parameter {'; '.join(unknown)}")
    missing = [
        f"{name} is missing" + (f" ({field.metadata['help']})" if field.metadata else "")
        for name, field in fields.items()
        if name not in values and default_of(field) is dataclasses.MISSING
    ]
    if missing:
        raise ParameterError(f"{where}: {'; '.join(missing)}")
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


def default_of(field: dataclasses.Field):
    """A field's default, made anew for lists and dicts; ``dataclasses.MISSING`` where required."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def shown_fields(record: type) -> list[dataclasses.Field]:
    """The fields of `record` in the order for people: profile, then those that the record states
    itself, then those that it inherits from each of its bases in turn."""
    stated = [name for base in record.__mro__ for name in inspect.get_annotations(base)]
    place = {name: i for i, name in reversed([*enumerate(["profile", *stated])])}
    return sorted(dataclasses.fields(record), key=lambda field: place[field.name])


def parameters_cell(record: type) -> str:
    """The source of the cell tagged ``parameters``: one typed literal per line, help as comment.

    Papermill's ``--help-notebook`` reads this form and no other.
    """
    lines = []
    for field in shown_fields(record):
        default = default_of(field)
        text = json.dumps(default) if isinstance(default, (str, list)) else repr(default)
        lines.append(f"{field.name}: {field.type} = {text}  # {field.metadata['help']}")
    return "\n".join(lines)


def _checked(value, kind, where: str, limits):
    """`value` as `kind`, or ParameterError; a list's limits hold for each of its elements."""
    if kind is object:
        return value
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        if value is None:
            return None
        (kind,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
    if dict in (kind, typing.get_origin(kind)):
        return _checked_dict(value, where, limits)
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        if not isinstance(value, (list, tuple)):
            given = " ".join(str(value).split())
            fix = "give at least one" if value is None else f"write [{given}]"
            if isinstance(value, str) and value.lstrip().startswith("["):
                name = where.rpartition(" ")[2]
                fix = f"papermill's -p gives a text, write -y '{{{name}: {value}}}'"
            raise ParameterError(
                f"{where} must be a list of {_PLURALS[item]}, got {value!r}: {fix}"
            )
        if not value and limits and not limits.get("may_be_empty"):
            raise ParameterError(f"{where} is empty: give at least one")
        if len(value) > MAX_ITEMS:
            raise ParameterError(f"{where} has {len(value)} values: give at most {MAX_ITEMS}")
        checked = [_checked(each, item, f"{where}[{i}]", limits) for i, each in enumerate(value)]
        if limits.get("unique"):
            _require_unique(checked, where)
        return checked
    return _in_range(_of_kind(value, kind, where, limits), where, limits)


def _checked_dict(value, where: str, limits) -> dict:
    if not isinstance(value, dict):
        raise ParameterError(f"{where} must be a mapping of names to values, got {value!r}")
    if "record" in limits:
        complete = check_values(limits["record"], value, where)
        return {name: getattr(complete, name) for name in value}
    if "entries" in limits:
        if not value and not limits.get("may_be_empty"):
            raise ParameterError(f"{where} is empty: name at least one")
        for name in value:
            if not isinstance(name, str):
                raise ParameterError(f'{where} has the name {name!r}: write it in quotes, "{name}"')
        return {name: _entry(name, each, where, limits["entries"]) for name, each in value.items()}
    return dict(value)


def _entry(name: str, values, where: str, record: type) -> dict:
    if not isinstance(values, dict):
        raise ParameterError(
            f"{where}: {name} must be a mapping of names to values, got {values!r}: write {{}} for "
            "one that needs no values"
        )
    return dataclasses.asdict(check_values(record, values, f"{where}: {name}"))


def _require_unique(values: list, where: str) -> None:
    if len(set(values)) < len(values):
        raise ParameterError(f"{where} names a value twice: {values}")
    printed = [f"{value:g}" if isinstance(value, float) else value for value in values]
    alike = [value for value, text in zip(values, printed, strict=True) if printed.count(text) > 1]
    if alike:
        raise ParameterError(
            f"{where} {alike} print alike, so their arms would have one name: "
            "give values that differ in six digits"
        )


def _of_kind(value, kind: type, where: str, limits):
    if isinstance(value, int) and abs(value) >= MAX_INTEGER:  # it may be too long to print
        raise ParameterError(f"{where} must be {_WORDS[kind]}, got an integer beyond 2**63")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        if kind is float and not math.isfinite(value):
            raise ParameterError(f"{where} must be a finite number, got {value}")
        return value
    raise ParameterError(
        f"{where} must be {_WORDS[kind]}, got {value!r}{_hint(value, kind, limits)}"
    )


def _hint(value, kind: type, limits) -> str:
    """What most likely went wrong on the way through YAML or a command line."""
    if kind is str and value is False and "off" in limits.get("choices", ()):
        return ': YAML reads off as false, write "off"'
    if not isinstance(value, str):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    mantissa, mark, exponent = value.strip().lower().partition("e")
    if kind is float and mark:
        mantissa += "" if "." in mantissa else ".0"
        exponent = exponent if exponent[0] in "+-" else f"+{exponent}"
        return f": YAML reads it as text, write {mantissa}e{exponent}"
    if kind is float or (kind is int and number.is_integer()):
        plain = str(int(number)) if number.is_integer() else repr(number)
        return ": write it without quotes" if plain == value.strip() else f": write {plain}"
    return ""


def _in_range(value, where: str, limits):
    choices = limits.get("choices")
    if choices and value not in choices:
        raise ParameterError(f"{where} is {value!r}; {did_you_mean(str(value), choices)}")
    for name, holds, words in (
        ("minimum", lambda limit: value >= limit, "at least"),
        ("maximum", lambda limit: value <= limit, "at most"),
        ("above", lambda limit: value > limit, "above"),
    ):
        if name in limits and not holds(limits[name]):
            raise ParameterError(f"{where} must be {words} {limits[name]}, got {value!r}")
    return value
