"""What ``--set`` says: NAME=VALUE for all chosen notebooks that have the parameter."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from klearlib.errors import ParameterError
from klearlib.experiments import catalogue
from klearlib.params import did_you_mean
from klearlib.params.files import parse_yaml

_OPTIONS_OF_THEIR_OWN = ("profile", "workers")


def parsed_settings(names: Sequence[str], texts: Sequence[str]) -> dict[str, object]:
    """Parameter -> its value, by ``--set``.

    Raises:
        ParameterError: not NAME=VALUE, not YAML, or a parameter that none of the notebooks `names`
            has.
    """
    known = set().union(*map(parameters_of, names))
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise ParameterError(f"--set {text}: write NAME=VALUE, such as seeds=[0]")
        if name in _OPTIONS_OF_THEIR_OWN:
            raise ParameterError(f"--set {text}: give --{name} instead")
        if name in values:
            raise ParameterError(f"--set {text}: {name} is set twice")
        if "." in name:
            raise ParameterError(
                f"--set {text}: write NAME=VALUE, with --only for one notebook alone, and a "
                "mapping whole: options={dual_clip: 10.0}"
            )
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            raise ParameterError(
                f"--set {text}: no chosen notebook has a parameter {name!r}; {hint}"
            )
        try:
            values[name] = parse_yaml(value)
        except ValueError as error:
            raise ParameterError(f"--set {text:.100}: {error}") from None
    return values


def parameters_of(name: str) -> set[str]:
    """The names of the parameters of a notebook."""
    return {field.name for field in dataclasses.fields(catalogue.experiment_of(name).Params)}
