"""What ``--set`` says: NAME=VALUE for all chosen notebooks that have the parameter, NN.NAME=VALUE
for one of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from klearlib.errors import ParameterError
from klearlib.experiments import catalogue
from klearlib.params import did_you_mean
from klearlib.params.strict_yaml import parse_yaml

_OPTIONS_OF_THEIR_OWN = ("profile", "workers")


def with_settings(names: Sequence[str], texts: Sequence[str]) -> dict[str, dict[str, object]]:
    """The values that ``--set`` gives to each of the notebooks `names`; a notebook to which it
    gives none is left out. NN.NAME comes before NAME.

    Raises:
        ParameterError: not NAME=VALUE, not YAML, or nothing that one of the notebooks has.
    """
    fields = {name: parameters_of(name) for name in names}
    values: dict[tuple[str, str], object] = {}
    for text in texts:
        number, parameter, value = _parsed(text)
        if parameter in _OPTIONS_OF_THEIR_OWN:
            raise ParameterError(f"--set {text}: give --{parameter} instead")
        if (number, parameter) in values:
            raise ParameterError(f"--set {text}: {parameter} is set twice")
        asked = [name for name in names if number in ("", name.partition("_")[0])]
        if not asked:
            numbers = " ".join(name.partition("_")[0] for name in names)
            raise ParameterError(
                f"--set {text}: {number!r} is none of the chosen notebooks ({numbers}); write "
                "NAME=VALUE or NN.NAME=VALUE, and a mapping whole: options={dual_clip: 10.0}"
            )
        known = set().union(*(fields[name] for name in asked))
        if parameter not in known:
            who = f"{asked[0]} has no" if len(asked) == 1 else "none of the chosen notebooks has a"
            hint = did_you_mean(parameter, sorted(known))
            raise ParameterError(f"--set {text}: {who} parameter {parameter!r}; {hint}")
        values[number, parameter] = value
    given = {}
    for name in names:
        number = name.partition("_")[0]
        general = {p: value for (n, p), value in values.items() if not n and p in fields[name]}
        given[name] = general | {p: value for (n, p), value in values.items() if n == number}
    return {name: each for name, each in given.items() if each}


def parameters_of(name: str) -> set[str]:
    return {field.name for field in dataclasses.fields(catalogue.experiment_of(name).Params)}


def _parsed(text: str) -> tuple[str, str, object]:
    """Number of the notebook ("" for all), name and value."""
    left, equals, right = text.partition("=")
    number, _, parameter = left.strip().rpartition(".")
    if not equals or not parameter:
        raise ParameterError(f"--set {text}: write NAME=VALUE, such as seeds=[0]")
    try:
        return number, parameter, parse_yaml(right)
    except ValueError as error:
        raise ParameterError(f"--set {text:.100}: {error}") from None
