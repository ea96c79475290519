"""How a profile decides claims: ``params/<profile>/statistics.yaml``, all values required."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from klearlib.errors import ParameterError
from klearlib.params.fields import Record, count, parameter, require

ONE_WORLD, WORLDS = "one_world", "worlds"
REPLICATES = "KLEAR_REPLICATES"
"""The environment variable that names a piece of a profile's replicates, as ``--replicates`` does:
"200-203,207"."""


@dataclass(frozen=True)
class StatisticsParams(Record):
    """What is fixed before any run, besides the rules of claims.yaml."""

    decides: bool = parameter(help="whether claims are decided; false for plumbing")
    design: str = parameter(
        choices=(ONE_WORLD, WORLDS),
        help="what a replicate is: a seed of training in one world, or a world of its own",
    )
    margin: float = parameter(above=0.0, help="smallest difference of scores that matters")
    students: list[int] = count("seeds that decide on students", minimum=0, unique=True)
    maths_rl: list[int] = count("the same of RL on mathematics", minimum=0, unique=True)
    code_rl: list[int] = count("the same of RL on code", minimum=0, unique=True)
    headline: list[int] = count("the same of notebook 10's pipelines", minimum=0, unique=True)
    tuning: list[int] = count(
        "seeds that tune and never decide; none: the other seeds choose the rates of each",
        minimum=0,
        unique=True,
        may_be_empty=True,
    )

    def __post_init__(self) -> None:
        deciding = {*self.students, *self.maths_rl, *self.code_rl, *self.headline}
        both = sorted(deciding & {*self.tuning})
        require(not both, f"tuning: {both} are among the seeds that decide: name other seeds")


def replicates_asked() -> list[int] | None:
    """The replicates that the environment variable `REPLICATES` names; None for all.

    Raises ParameterError for a text not of the form "200-203,207".
    """
    if not (text := os.environ.get(REPLICATES)):
        return None
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ParameterError(f"--replicates {text}: write seeds or worlds, such as 200-203,207")
        first, last = int(match[1]), int(match[2] or match[1])
        require(first <= last, f"--replicates {text}: {part.strip()} begins after its end")
        found += range(first, last + 1)
    return found
