"""YAML in which no name is written twice, of which plain YAML takes the last."""

from __future__ import annotations

import yaml


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"{key.value} is written twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        return super().construct_mapping(node, deep=deep)


def parse_yaml(text: str) -> object:
    """The value that a YAML text stands for.

    Raises:
        ValueError: no YAML, or a name written twice: the line and what is wrong there.
    """
    try:
        return yaml.load(text, Loader=_Strict)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # a letter that no file has; the date 2025-99-99
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None
