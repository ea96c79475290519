"""What the notebooks with RL share: knobs with the paper's value and the place that states it.

The defaults are those of the smoke profile. A notebook's record inherits these and states what
differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.params.fields import Record, amended, count, parameter
from klearlib.params.options import (
    LOCAL,
    NOT_STATED,
    VERL,
    WORKERS,
    FilterOptions,
    NotebookParams,
    RLOptions,
    check_schedule,
)

ALPHA = {"minimum": 0.0, "maximum": 1e6, "help": "weight of the LM loss on positives"}
RATE = {"above": 0.0, "maximum": 1.0, "help": "of the policy"}
MATHS_RATE = RATE | {"paper": 1.0e-6, "place": "RL settings, maths"}
"""Shared by fields that some notebooks have once and others as a list to compare."""


@dataclass(frozen=True)
class RLSchedule(Record):
    """How long a policy is trained, and on how much at once."""

    num_steps: int = count("RL steps", 2, NOT_STATED)
    num_problems: int = count(
        "problems per rollout batch",
        8,
        128,
        "batch size; that it counts problems is from the released script",
    )
    group_size: int = count("responses per problem", 4, 8, "RL settings", minimum=2)
    mini_batch_problems: int = count("problems per update", 2, place="RL settings")


@dataclass(frozen=True)
class PolicyParams(NotebookParams):
    """What every notebook with RL has."""

    seeds: list[int] = count("one run per arm and seed", [0], minimum=0, unique=True)
    eps_low: float = parameter(
        0.2,
        minimum=0.0,
        maximum=1.0,
        help="GPPO's clip range below 1",
        paper=NOT_STATED,
        place='"e.g. 0.2" where Eq. 3 is explained',
    )
    eps_high: float = parameter(
        0.28,
        minimum=0.0,
        maximum=1e6,
        help="GPPO's clip range above 1",
        paper=0.28,
        place="RL settings",
    )
    engine: str = parameter(LOCAL, choices=(LOCAL, VERL), help="who trains: local, or verl on Ray")
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=RLOptions, help="fields of RLOptions that differ")

    @property
    def rl_options(self) -> RLOptions:
        """`options` completed with the paper's values."""
        return RLOptions(**self.options)


@dataclass(frozen=True)
class FilteredParams(PolicyParams):
    """A notebook with RL on code problems with tests that a teacher's pass rate supports."""

    test_filter: dict = parameter(
        {"teacher_responses": 2, "threshold": 0.0, "keep_equal": True},
        record=FilterOptions,
        help="FilterOptions",
    )

    @property
    def filter_options(self) -> FilterOptions:
        """`test_filter` completed with the paper's values."""
        return FilterOptions(**self.test_filter)


@dataclass(frozen=True)
class RLParams(RLSchedule, PolicyParams):
    """A notebook that compares RL runs from one start."""

    eval_every: int = count("steps between evaluations", 2)
    eval_responses: int = count("responses per benchmark problem", 2)

    def __post_init__(self) -> None:
        check_schedule(
            num_problems=self.num_problems,
            mini_batch_problems=self.mini_batch_problems,
            options=self.options,
            eps_high=self.eps_high,
        )


@dataclass(frozen=True)
class MathsRLParams(RLParams):
    """What the notebooks on RL for mathematics share; an arm that two of them need is one run."""

    worlds: ClassVar[tuple[str, ...]] = ("miniature",)

    mini_batch_problems = amended(paper=16, place="RL settings, maths")
    eps_low = amended(help="clip range below 1")
    eps_high = amended(help="clip range above 1")


@dataclass(frozen=True)
class CodeRLParams(RLParams, FilteredParams):
    """What the notebooks on RL for code share; an arm that two of them need is one run."""

    worlds: ClassVar[tuple[str, ...]] = ("code_miniature",)

    seeds = amended(paper="1 run per arm", place="Figs. 3, 4: one line per arm, no error bars")
    num_steps = amended(3, paper=100, place="Figs. 3, 4: last plotted step")
    mini_batch_problems = amended(paper=32, place="RL settings, code")
    learning_rate: float = parameter(3.0e-4, **RATE, paper=5.0e-7, place="RL settings, code")
    alpha: float = parameter(
        0.1,
        **ALPHA,
        paper=NOT_STATED,
        place="Figs. 3, 4 do not say; 0.1 for the final model (Table 6)",
    )
    eval_every = amended(3, paper=5, place="Figs. 3a, 4: distance of the points")
    eval_responses = amended(1, paper=4, place="Figs. 3a, 4: avg@4")
