"""Worlds of seconds, how each is made, and what is in their files."""

import json
from importlib import import_module
from pathlib import Path

from tiny_world import TINY_CODE_WORLD, TINY_WORLD

from klearlib.run.folder import RunFolder

JOINT = {
    "seed": 0,
    "modulus": 5,
    "max_difficulty": 4,
    "long_max_difficulty": 9,
    "code_max_difficulty": 3,
    "base_maths": 30,
    "base_long_maths": 12,
    "base_code": 60,
    "sft_long_maths": 10,
    "num_deciding": 7,
    "num_validation": 8,
}
SOURCES = {
    "seed": 0,
    "modulus": 7,
    "max_difficulty": 4,
    "code_max_difficulty": 4,
    "num_tests": 16,
    "slip_seed": 0,
    "code_slip_seed": 0,
    "slip_rate": 0.55,
    "num_maths": 30,
    "num_code": 30,
    "num_pool": 20,
    "max_generations": 4,
    "num_contaminated": 6,
    "duplicate_share": 0.2,
    "broken_share": 0.1,
    "few_tests_share": 0.2,
}
# The module that makes it, its parameters, and the worlds that it is made of.
WORLDS = {
    "maths": ("world", TINY_WORLD, {}),
    "maths 7": ("world", TINY_WORLD | {"modulus": 7}, {}),
    "code": ("code_world", TINY_CODE_WORLD, {}),
    "joint": ("joint", JOINT, {"maths": "maths", "code": "code"}),
    "sources": ("sources", SOURCES, {"math": "maths 7", "code": "code"}),
}


def build(name: str, path: Path, inputs: dict[str, Path], **changes) -> None:
    """Make a world of `WORLDS` in a folder, some of its parameters otherwise."""
    module, params, _ = WORLDS[name]
    import_module(f"klearlib.miniature.{module}").build(RunFolder(path), inputs, **params | changes)


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def printed(program: str, stdin: str) -> str:
    """What a program prints. It is our own text, so it may run here."""
    lines: list[str] = []
    exec(program, {"input": lambda: stdin, "print": lambda number: lines.append(str(number))})
    return "\n".join(lines)
