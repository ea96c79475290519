"""YAML as parameters are written in it: nothing in it reads as another value than it looks like."""

from __future__ import annotations

import re

import yaml

MAX_DEPTH = 20
"""Lists and mappings within each other."""

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)$")
_NUMBER = re.compile(
    r"(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN))$"
)
_OTHERWISE = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "merge")}


class _Strict(yaml.SafeLoader):
    """Of YAML 1.1 it leaves out 1:30 for 90, 1_0 for 10 and 010 for 8, which are texts here, merge
    keys, aliases and tags; and it refuses a key written twice, of which plain YAML takes the
    last."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as its base has it
        first: [(tag, pattern) for tag, pattern in known if tag not in _OTHERWISE]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0

    def compose_node(self, parent, index):
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            problem = f"*{event.anchor} stands for another value: write the value itself"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        if event.tag is not None:  # and PyYAML fails on some of them: !!bool x
            problem = f"{event.tag} makes another value of it: write the value itself"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        if self.depth > MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} lists and mappings within each other"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                problem = f"{key.value} is written twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Strict.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Strict.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789."))


def parse_yaml(text: str) -> object:
    """The value that a YAML text stands for.

    Raises:
        yaml.YAMLError: no YAML, or one of what `_Strict` refuses. ValueError: the date 2025-99-99.
    """
    return yaml.load(text, Loader=_Strict)
