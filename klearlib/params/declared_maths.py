"""The parameters of the three notebooks on RL with mathematics: 05, 06 and 09."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.errors import ParameterError
from klearlib.params.checking import parameter
from klearlib.params.declared_data import NOT_STATED, WORKERS
from klearlib.params.declared_options import ENGINE, LOCAL, RLOptions, check_schedule

_PROFILE = {"help": "folder in params/ and results/"}
_SEEDS = {"minimum": 0, "unique": True, "help": "one run per arm and seed"}
_STEPS = {"minimum": 1, "help": "RL steps"}
_PROBLEMS = {
    "minimum": 1,
    "help": "problems per rollout batch",
    "paper": 128,
    "place": "batch size; that it counts problems is from the released script",
}
_GROUP = {"minimum": 2, "help": "responses per problem", "paper": 8, "place": "RL settings"}
_MINI_BATCH = {
    "minimum": 1,
    "help": "problems per update",
    "paper": 16,
    "place": "RL settings, maths",
}
_RATE = {
    "above": 0.0,
    "help": "of the policy",
    "paper": 1.0e-6,
    "place": "RL settings, maths",
}
_EPS_LOW = {
    "minimum": 0.0,
    "maximum": 1.0,
    "help": "clip range below 1",
    "paper": NOT_STATED,
    "place": '"e.g. 0.2" where Eq. 3 is explained',
}
_EPS_HIGH = {"minimum": 0.0, "help": "clip range above 1", "paper": 0.28, "place": "RL settings"}
_ALPHA = {"minimum": 0.0, "help": "weight of the LM loss on positives"}
_EVERY = {"minimum": 1, "help": "steps between validations"}
_EVALUATION = {"minimum": 1, "help": "responses per validation problem"}
_OPTIONS = {"record": RLOptions, "help": "fields of RLOptions that differ"}


@dataclass(frozen=True)
class _MathsRL:
    worlds: ClassVar[tuple[str, ...]] = ("miniature",)

    def __post_init__(self) -> None:
        check_schedule(
            num_problems=self.num_problems,
            mini_batch_problems=self.mini_batch_problems,
            options=self.options,
            eps_high=self.eps_high,
        )

    @property
    def rl_options(self) -> RLOptions:
        """`options` completed with the paper's way for all that is not named."""
        return RLOptions(**self.options)


def _check_printed(name: str, values: list[float]) -> None:
    printed = [f"{value:g}" for value in values]
    alike = [value for value, text in zip(values, printed, strict=True) if printed.count(text) > 1]
    if alike:
        raise ParameterError(
            f"{name} {alike} print alike, so their arms would have one name: "
            "give values that differ in six digits"
        )


@dataclass(frozen=True)
class ClippingParams(_MathsRL):
    """Notebook 05: GPPO, Clip-Higher and CISPO from the same start (Section 5.2.1, Fig. 2)."""

    profile: str = parameter("smoke", **_PROFILE)
    rules: list[str] = parameter(
        ["clip_higher", "gppo", "cispo"],
        choices=("clip_higher", "gppo", "cispo"),
        unique=True,
        help="clipping rules, one arm each",
        paper="GRPO w/ Clip-Higher, GPPO, CISPO",
        place="Fig. 2",
    )
    seeds: list[int] = parameter(
        [0, 1],
        **_SEEDS | {"help": "one run per rule and seed", "paper": "1 run per rule"},
        place="Fig. 2: one line per rule, no error bars",
    )
    num_steps: int = parameter(2, **_STEPS, paper=240, place="Fig. 2: last plotted step")
    num_problems: int = parameter(8, **_PROBLEMS)
    group_size: int = parameter(4, **_GROUP)
    mini_batch_problems: int = parameter(2, **_MINI_BATCH)
    learning_rates: list[float] = parameter(
        [3.0e-4],
        **_RATE | {"help": "of the policy; each rule keeps its best"},
        unique=True,
    )
    eps_low: float = parameter(0.2, **_EPS_LOW)
    eps_high: float = parameter(0.28, **_EPS_HIGH)
    alpha: float = parameter(
        0.0,
        **_ALPHA,
        paper=NOT_STATED,
        place="Fig. 2 does not say; 0.1 for the final model (Table 6)",
    )
    eval_every: int = parameter(2, **_EVERY, paper=10, place="Fig. 2a, 2b: distance of the points")
    eval_responses: int = parameter(2, **_EVALUATION, paper=32, place="Fig. 2a: avg@32 (2b: avg@4)")
    engine: str = parameter(LOCAL, **ENGINE)
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, **_OPTIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_printed("learning_rates", self.learning_rates)
        if self.mini_batch_problems == self.num_problems and len(self.rules) > 1:
            raise ParameterError(
                f"mini_batch_problems {self.mini_batch_problems} makes one update per rollout, "
                "where every ratio is 1 and all clipping rules are equal: "
                f"give less than num_problems {self.num_problems}"
            )


@dataclass(frozen=True)
class AlphaSweepParams(_MathsRL):
    """Notebook 06: the weight alpha of the loss on correct responses (Section 5.2.2, Table 6)."""

    profile: str = parameter("smoke", **_PROFILE)
    alphas: list[float] = parameter(
        [0.0, 0.05, 0.1, 0.2],
        **_ALPHA | {"help": "weights of the LM loss on positives, one arm each"},
        unique=True,
        paper="0, 0.05, 0.1, 0.2",
        place="Table 6",
    )
    seeds: list[int] = parameter(
        [0],
        **_SEEDS | {"help": "one run per alpha and seed", "paper": "1 run per alpha"},
        place="Table 6: one number per cell, no error bars",
    )
    num_steps: int = parameter(2, **_STEPS, paper=100, place="Table 6")
    num_problems: int = parameter(8, **_PROBLEMS)
    group_size: int = parameter(4, **_GROUP)
    mini_batch_problems: int = parameter(2, **_MINI_BATCH)
    learning_rate: float = parameter(3.0e-4, **_RATE)
    eps_low: float = parameter(0.2, **_EPS_LOW)
    eps_high: float = parameter(0.28, **_EPS_HIGH)
    eval_every: int = parameter(2, **_EVERY, paper="only the end is shown", place="Table 6")
    eval_responses: int = parameter(2, **_EVALUATION, paper=32, place="Table 6: avg@32")
    engine: str = parameter(LOCAL, **ENGINE)
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, **_OPTIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_printed("alphas", self.alphas)


@dataclass(frozen=True)
class ZeroAdvantageParams(_MathsRL):
    """Notebook 09: groups without advantage, dropped or kept (Section 5.2.5, Fig. 5)."""

    worlds: ClassVar[tuple[str, ...]] = ("miniature", "code_miniature")
    # The runs on the soft code reward have the settings of this notebook's file.
    reads: ClassVar[tuple[str, ...]] = ("07_soft_reward",)

    profile: str = parameter("smoke", **_PROFILE)
    seeds: list[int] = parameter(
        [0],
        **_SEEDS | {"paper": "1 run per arm"},
        place="Fig. 5: one line per arm, no error bars",
    )
    alphas: list[float] = parameter(
        [0.0, 0.1],
        **_ALPHA | {"help": "weights of the LM loss, each with and without filter"},
        unique=True,
        paper=NOT_STATED,
        place="Fig. 5 does not say; 0.1 for the final model (Table 6)",
    )
    soft_filters: list[str] = parameter(
        ["advantage", "accuracy"],
        choices=("off", "advantage", "accuracy"),
        unique=True,
        help="filters compared on 07's soft reward",
        paper="advantage (text), accuracy (released code)",
        place="5.2.5",
    )
    num_steps: int = parameter(2, **_STEPS, paper=100, place="Fig. 5: last plotted step")
    num_problems: int = parameter(8, **_PROBLEMS)
    group_size: int = parameter(4, **_GROUP)
    mini_batch_problems: int = parameter(2, **_MINI_BATCH)
    learning_rate: float = parameter(3.0e-4, **_RATE)
    eps_low: float = parameter(0.2, **_EPS_LOW)
    eps_high: float = parameter(0.28, **_EPS_HIGH)
    eval_every: int = parameter(2, **_EVERY, paper=5, place="Fig. 5a: distance of the points")
    eval_responses: int = parameter(2, **_EVALUATION, paper=32, place="Fig. 5a: avg@32")
    engine: str = parameter(LOCAL, **ENGINE)
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, **_OPTIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_printed("alphas", self.alphas)
        if "zero_advantage_filter" in self.options:
            raise ParameterError(
                "options: zero_advantage_filter is what this notebook compares: leave it out"
            )
