"""How a profile decides claims: ``params/<profile>/statistics.yaml``, all values required."""

from __future__ import annotations

from dataclasses import dataclass

from klearlib.params.fields import Record, count, parameter, require

ONE_WORLD, WORLDS = "one_world", "worlds"


@dataclass(frozen=True)
class StatisticsParams(Record):
    """What is fixed before any run, beside the rules of claims.yaml."""

    decides: bool = parameter(help="whether claims are decided; false for plumbing")
    design: str = parameter(
        choices=(ONE_WORLD, WORLDS),
        help="what a replicate is: a seed of training in one world, or a world of its own",
    )
    margin: float = parameter(above=0.0, help="smallest difference of scores that matters")
    students: int = count("replicates of students, the seeds 0 and on")
    maths_rl: int = count("replicates of RL on mathematics, the same")
    code_rl: int = count("replicates of RL on code, the same")
    headline: int = count("pipelines of notebook 10, the same")
    tuning: list[int] = count("seeds that tune and never decide", minimum=0)

    def __post_init__(self) -> None:
        most = max(self.students, self.maths_rl, self.code_rl, self.headline)
        deciding = sorted({seed for seed in self.tuning if seed < most})
        require(not deciding, f"tuning: {deciding} are seeds that decide (0 to {most - 1})")
