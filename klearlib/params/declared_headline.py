"""The parameters of notebook 10: one record for each phase of the pipeline, one for all of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from klearlib.errors import ParameterError
from klearlib.params.checking import parameter
from klearlib.params.declared_data import NOT_STATED, WORKERS, DataOptions
from klearlib.params.declared_options import (
    ENGINE,
    LOCAL,
    FilterOptions,
    RLOptions,
    check_schedule,
)

_SMOKE = "smoke"
_STEPS = {"minimum": 1, "help": "RL steps", "paper": NOT_STATED}
_PROBLEMS = {
    "minimum": 1,
    "help": "problems per rollout batch",
    "paper": 128,
    "place": "batch size; that it counts problems is from the released script",
}
_GROUP = {"minimum": 2, "help": "responses per problem", "paper": 8, "place": "RL settings"}
_MINI_BATCH = {"minimum": 1, "help": "problems per update", "place": "RL settings"}
_RATE = {"above": 0.0, "help": "of the policy", "place": "RL settings"}


@dataclass(frozen=True)
class SFTPhase:
    """How the base model is tuned on the examples of both domains."""

    num_epochs: int = parameter(
        3, minimum=1, help="times that each example is seen", paper=4, place="SFT"
    )
    batch_size: int = parameter(8, minimum=1, help="examples per update", paper=NOT_STATED)
    learning_rate: float = parameter(
        3.0e-3,
        above=0.0,
        help="of the first update; falls to one half by a cosine",
        paper=8.0e-5,
        place="SFT: 8e-5 to 4e-5",
    )
    normalizer: str = parameter(
        "sequence",
        choices=("sequence", "token"),
        help="mean over responses (Eq. 8) or over tokens",
        paper="sequence",
        place="Eq. 8 as printed",
    )


@dataclass(frozen=True)
class MathsRLPhase:
    """RL on mathematics, from the SFT checkpoint."""

    num_steps: int = parameter(2, **_STEPS)
    num_problems: int = parameter(8, **_PROBLEMS)
    group_size: int = parameter(4, **_GROUP)
    mini_batch_problems: int = parameter(2, **_MINI_BATCH, paper=16)
    learning_rate: float = parameter(3.0e-4, **_RATE, paper=1.0e-6)
    teacher_responses: int = parameter(
        4,
        minimum=1,
        help="strong teacher's responses per problem, for its pass rate",
        paper=16,
        place="3.2.1: majority of 16 responses",
    )
    threshold: float = parameter(
        0.0,
        minimum=0.0,
        maximum=1.0,
        help="pass rate above which a problem is kept",
        paper=0.5,
        place="3.2.1: majority of n responses",
    )


@dataclass(frozen=True)
class CodeRLPhase:
    """RL on code, from the checkpoint of the RL on mathematics."""

    num_steps: int = parameter(2, **_STEPS)
    num_problems: int = parameter(4, **_PROBLEMS)
    group_size: int = parameter(4, **_GROUP)
    mini_batch_problems: int = parameter(2, **_MINI_BATCH, paper=32)
    learning_rate: float = parameter(3.0e-4, **_RATE, paper=5.0e-7)


@dataclass(frozen=True)
class HeadlineParams:
    """Notebook 10: from curated data to the scores of Table 1 (Sections 3, 4; Fig. 1)."""

    worlds: ClassVar[tuple[str, ...]] = (
        "miniature",
        "code_miniature",
        "data_miniature",
        "joint_miniature",
    )

    profile: str = parameter("smoke", help="folder in params/ and results/")
    seeds: list[int] = parameter(
        [0],
        minimum=0,
        unique=True,
        help="one pipeline per seed, from the SFT checkpoint on; the first decides C13",
        paper="1 run",
        place="Table 1: one number per cell, no error bars",
    )
    sft: dict = parameter(
        {},
        record=SFTPhase,
        help="all values of SFTPhase, or none for smoke's",
        place="SFT",
    )
    maths_rl: dict = parameter(
        {},
        record=MathsRLPhase,
        help="all values of MathsRLPhase, or none for smoke's",
        place="RL settings, maths",
    )
    code_rl: dict = parameter(
        {},
        record=CodeRLPhase,
        help="all values of CodeRLPhase, or none for smoke's",
        place="RL settings, code",
    )
    eps_low: float = parameter(
        0.2,
        minimum=0.0,
        maximum=1.0,
        help="GPPO's clip range below 1",
        paper=NOT_STATED,
        place='"e.g. 0.2" where Eq. 3 is explained',
    )
    eps_high: float = parameter(
        0.28, minimum=0.0, help="GPPO's clip range above 1", paper=0.28, place="RL settings"
    )
    alpha: float = parameter(
        0.1,
        minimum=0.0,
        help="weight of the LM loss on positives",
        paper=0.1,
        place="RL settings, Table 6",
    )
    maths_responses: int = parameter(
        1, minimum=1, help="responses per maths problem", paper=64, place="Table 1: avg@64"
    )
    code_responses: int = parameter(
        1, minimum=1, help="responses per code problem", paper=8, place="Table 1: avg@8"
    )
    yarn_factor: float = parameter(
        2.5, above=1.0, help="of the longer budget", paper=2.5, place="main results, 64K budget"
    )
    engine: str = parameter(LOCAL, **ENGINE)
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=RLOptions, help="fields of RLOptions that differ")
    test_filter: dict = parameter(
        {"teacher_responses": 2, "threshold": 0.25},
        record=FilterOptions,
        help="FilterOptions that differ",
    )
    data_options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")

    def __post_init__(self) -> None:
        phases = {"sft": SFTPhase, "maths_rl": MathsRLPhase, "code_rl": CodeRLPhase}
        for name, record in phases.items():
            values = getattr(self, name)
            missing = [each.name for each in fields(record) if each.name not in values]
            if not values and self.profile != _SMOKE:
                raise ParameterError(
                    f"{name} is empty, which stands for smoke's values: give all values of "
                    f"{record.__name__} for profile {self.profile!r}"
                )
            if values and missing:
                raise ParameterError(f"{name} lacks {', '.join(missing)}: give all of its values")
            # What runs is what is shown, kept in the section and compared.
            object.__setattr__(self, name, asdict(record(**values)))
        for phase in (self.maths_phase, self.code_phase):
            check_schedule(
                num_problems=phase.num_problems,
                mini_batch_problems=phase.mini_batch_problems,
                options=self.options,
                eps_high=self.eps_high,
            )

    @property
    def sft_phase(self) -> SFTPhase:
        """`sft` as a record."""
        return SFTPhase(**self.sft)

    @property
    def maths_phase(self) -> MathsRLPhase:
        """`maths_rl` as a record."""
        return MathsRLPhase(**self.maths_rl)

    @property
    def code_phase(self) -> CodeRLPhase:
        """`code_rl` as a record."""
        return CodeRLPhase(**self.code_rl)

    @property
    def rl_options(self) -> RLOptions:
        """`options` completed with the paper's way for all that is not named."""
        return RLOptions(**self.options)

    @property
    def filter_options(self) -> FilterOptions:
        """`test_filter` completed with the paper's way for all that is not named."""
        return FilterOptions(**self.test_filter)

    @property
    def curation(self) -> DataOptions:
        """`data_options` completed with the paper's way for all that is not named."""
        return DataOptions(**self.data_options)
