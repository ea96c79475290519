"""The parameters of each notebook, with the paper's value and the place that states it.

The defaults are those of the smoke profile, and the parameters cell of a notebook repeats them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.params.checking import parameter
from klearlib.params.declared_data import (
    NOT_STATED,
    WORKERS,
    CorrectnessParams,
    CurationParams,
    TeacherParams,
    TopKParams,
)
from klearlib.params.declared_headline import HeadlineParams
from klearlib.params.declared_maths import (
    AlphaSweepParams,
    ClippingParams,
    ZeroAdvantageParams,
)
from klearlib.params.declared_options import (
    ENGINE,
    LOCAL,
    FilterOptions,
    RLOptions,
    check_schedule,
)


@dataclass(frozen=True)
class OverviewParams:
    """Notebook 00: which profile's results are gathered; it runs after all others."""

    gathers: ClassVar[bool] = True

    profile: str = parameter("smoke", help="folder in params/ and results/")


@dataclass(frozen=True)
class CodeRLParams:
    """What the two code-RL notebooks share; an arm that both need is the same run."""

    worlds: ClassVar[tuple[str, ...]] = ("code_miniature",)

    profile: str = parameter("smoke", help="folder in params/ and results/")
    seeds: list[int] = parameter(
        [0],
        minimum=0,
        unique=True,
        help="one run per arm and seed",
        paper="1 run per arm",
        place="Figs. 3, 4: one line per arm, no error bars",
    )
    num_steps: int = parameter(
        3, minimum=1, help="RL steps", paper=100, place="Figs. 3, 4: last plotted step"
    )
    num_problems: int = parameter(
        8,
        minimum=1,
        help="problems per rollout batch",
        paper=128,
        place="batch size; that it counts problems is from the released script",
    )
    group_size: int = parameter(
        4, minimum=2, help="responses per problem", paper=8, place="RL settings"
    )
    mini_batch_problems: int = parameter(
        2, minimum=1, help="problems per update", paper=32, place="RL settings, code"
    )
    learning_rate: float = parameter(
        3.0e-4, above=0.0, help="of the policy", paper=5.0e-7, place="RL settings, code"
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
        paper=NOT_STATED,
        place="Figs. 3, 4 do not say; 0.1 for the final model (Table 6)",
    )
    eval_every: int = parameter(
        3,
        minimum=1,
        help="steps between evaluations",
        paper=5,
        place="Figs. 3a, 4: distance of the points",
    )
    eval_responses: int = parameter(
        1, minimum=1, help="responses per benchmark problem", paper=4, place="Figs. 3a, 4: avg@4"
    )
    engine: str = parameter(LOCAL, **ENGINE)
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=RLOptions, help="fields of RLOptions that differ")
    test_filter: dict = parameter(
        {"teacher_responses": 2, "threshold": 0.25},
        record=FilterOptions,
        help="FilterOptions that differ",
    )

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

    @property
    def filter_options(self) -> FilterOptions:
        """`test_filter` completed with the paper's way for all that is not named."""
        return FilterOptions(**self.test_filter)


@dataclass(frozen=True)
class SoftRewardParams(CodeRLParams):
    """Notebook 07: soft against hard reward in code RL (Section 5.2.3, Fig. 3)."""


@dataclass(frozen=True)
class TestFilterParams(CodeRLParams):
    """Notebook 08: all code problems against those with trusted tests (Section 5.2.4, Fig. 4)."""

    __test__ = False  # pytest would collect the name


NOTEBOOKS: dict[str, type] = {
    "00_overview": OverviewParams,
    "01_data_curation": CurationParams,
    "02_data_correctness": CorrectnessParams,
    "03_teacher_ablation": TeacherParams,
    "04_topk_diversity": TopKParams,
    "05_clipping": ClippingParams,
    "06_alpha_sweep": AlphaSweepParams,
    "07_soft_reward": SoftRewardParams,
    "08_test_filter": TestFilterParams,
    "09_zero_advantage": ZeroAdvantageParams,
    "10_headline": HeadlineParams,
}
