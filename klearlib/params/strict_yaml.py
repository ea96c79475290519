"""YAML as parameters are written in it: nothing in it reads as another value than it looks like."""

from __future__ import annotations

import math
import re
import typing

import yaml

MAX_DEPTH = 20
"""Lists and mappings within each other."""
MAX_DIGITS = 4000
"""Of an integer; Python reads no more than 4,300."""

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)$")
_NUMBER = re.compile(
    r"(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN))$"
)
_OTHERWISE = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "merge")}


class _Strict(yaml.SafeLoader):
    """Of YAML 1.1 it leaves out 1:30 for 90, 1_0 for 10 and 010 for 8, which are texts here, merge
    keys, anchors, aliases and tags; and it refuses a key written twice, of which plain YAML takes
    the last, and a number that would be read as 0 or as infinity."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as its base has it
        first: [(tag, pattern) for tag, pattern in known if tag not in _OTHERWISE]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0

    def compose_node(self, parent, index):
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            _refuse(event, f"*{event.anchor} stands for another value: write the value itself")
        if event.anchor is not None:
            _refuse(event, f"&{event.anchor} names a value for later: write the value alone")
        if event.tag is not None:  # and PyYAML fails on some of them: !!bool x
            _refuse(event, f"{event.tag} makes another value of it: write the value itself")
        if self.depth > MAX_DEPTH:
            _refuse(event, f"more than {MAX_DEPTH} lists and mappings within each other")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                _refuse(key, "a list or a mapping stands for a name: write the name")
            if key.value in seen:
                _refuse(key, f"{key.value} is written twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:  # the date 2025-99-99
            _refuse(node, f"{node.value}: {error}")

    def integer(self, node):
        if len(node.value) > MAX_DIGITS:
            _refuse(node, f"an integer of {len(node.value):,} digits: give at most {MAX_DIGITS:,}")
        return int(node.value)

    def number(self, node):
        number = self.construct_yaml_float(node)
        if number == 0 and re.search("[1-9]", re.split("[eE]", node.value)[0]):
            _refuse(node, f"{node.value} is too small for a number: write 0.0")
        if math.isinf(number) and "inf" not in node.value.lower():
            _refuse(node, f"{node.value} is too large for a number: write a smaller one")
        return number


def _refuse(place: yaml.Event | yaml.Node, problem: str) -> typing.NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


_Strict.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Strict.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789."))
_Strict.add_constructor("tag:yaml.org,2002:int", _Strict.integer)
_Strict.add_constructor("tag:yaml.org,2002:float", _Strict.number)


def parse_yaml(text: str) -> object:
    """The value that a YAML text stands for.

    Raises:
        ValueError: no YAML, or one of what `_Strict` refuses: the line and what is wrong there.
    """
    try:
        return yaml.load(text, Loader=_Strict)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from None
