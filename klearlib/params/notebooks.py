"""The parameters of each notebook: what it states beyond the records that it inherits.

The parameters cell of a notebook repeats the defaults, which are those of the smoke profile.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from klearlib.errors import ParameterError
from klearlib.params.base import NotebookParams
from klearlib.params.data import AnsweredParams, GradedParams, SFTPhase, StudentParams
from klearlib.params.fields import amended, parameter
from klearlib.params.options import NOT_STATED, DataOptions, check_schedule
from klearlib.params.rl import (
    ALPHA,
    MATHS_RATE,
    RATE,
    CodeRLParams,
    FilteredParams,
    MathsRLParams,
    RLSchedule,
)


@dataclass(frozen=True)
class OverviewParams(NotebookParams):
    """Notebook 00: which profile's results are gathered; it runs after all others."""

    gathers: ClassVar[bool] = True


@dataclass(frozen=True)
class CurationParams(GradedParams):
    """Notebook 01: from raw sources to the sets for SFT and RL (Sections 3.1, 3.2.1)."""

    stop_list: int = parameter(
        1, minimum=1, help="compared rule: n-grams in more items are boilerplate", paper=NOT_STATED
    )


@dataclass(frozen=True)
class CorrectnessParams(StudentParams, GradedParams):
    """Notebook 02: correct responses only, or all of them (Section 5.1.1, Table 2)."""

    teacher: str = parameter(
        "middle",
        choices=("weak", "middle", "strong"),
        help="whose responses",
        paper="DeepSeek-R1 (OpenR1-Math-220k)",
        place="Table 2",
    )
    num_responses = amended(paper="2 to 4 (OpenR1-Math-220k)")


@dataclass(frozen=True)
class TeacherParams(StudentParams, AnsweredParams):
    """Notebook 03: students of teachers of graded strength (Section 5.1.2, Table 3)."""


@dataclass(frozen=True)
class TopKParams(StudentParams):
    """Notebook 04: the best source or more of them (Section 5.1.3, Tables 4 and 5)."""

    num_examples = amended(24, help="examples of every maths arm, by K-center", paper=31600)
    code_examples: int = parameter(
        12, minimum=1, help="examples of every code arm, by K-center", paper=31600
    )
    batch_size = amended(help="maths examples per update")
    code_batch_size: int = parameter(
        2, minimum=1, help="code examples per update", paper=NOT_STATED
    )
    code_learning_rate: float = parameter(
        3.0e-3, above=0.0, help="the same for code", paper=8.0e-5, place="SFT: 8e-5 to 4e-5"
    )
    code_eval_responses: int = parameter(
        1,
        minimum=1,
        help="the same for code",
        paper=NOT_STATED,
        place="rounding fits 16 on AIME and 4 on LiveCodeBench",
    )


@dataclass(frozen=True)
class ClippingParams(MathsRLParams):
    """Notebook 05: GPPO, Clip-Higher and CISPO from the same start (Section 5.2.1, Fig. 2)."""

    rules: list[str] = parameter(
        ["clip_higher", "gppo", "cispo"],
        choices=("clip_higher", "gppo", "cispo"),
        unique=True,
        help="clipping rules, one arm each",
        paper="GRPO w/ Clip-Higher, GPPO, CISPO",
        place="Fig. 2",
    )
    seeds = amended(
        [0, 1],
        help="one run per rule and seed",
        paper="1 run per rule",
        place="Fig. 2: one line per rule, no error bars",
    )
    num_steps = amended(paper=240, place="Fig. 2: last plotted step")
    learning_rates: list[float] = parameter(
        [3.0e-4], **MATHS_RATE | {"help": "of the policy; each rule keeps its best"}, unique=True
    )
    alpha: float = parameter(
        0.0,
        **ALPHA,
        paper=NOT_STATED,
        place="Fig. 2 does not say; 0.1 for the final model (Table 6)",
    )
    eval_every = amended(paper=10, place="Fig. 2a, 2b: distance of the points")
    eval_responses = amended(paper=32, place="Fig. 2a: avg@32 (2b: avg@4)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mini_batch_problems == self.num_problems and len(self.rules) > 1:
            raise ParameterError(
                f"mini_batch_problems {self.mini_batch_problems} makes one update per rollout, "
                "where every ratio is 1 and all clipping rules are equal: "
                f"give less than num_problems {self.num_problems}"
            )


@dataclass(frozen=True)
class AlphaSweepParams(MathsRLParams):
    """Notebook 06: the weight alpha of the loss on correct responses (Section 5.2.2, Table 6)."""

    alphas: list[float] = parameter(
        [0.0, 0.05, 0.1, 0.2],
        **ALPHA | {"help": "weights of the LM loss on positives, one arm each"},
        unique=True,
        paper="0, 0.05, 0.1, 0.2",
        place="Table 6",
    )
    seeds = amended(
        help="one run per alpha and seed",
        paper="1 run per alpha",
        place="Table 6: one number per cell, no error bars",
    )
    num_steps = amended(paper=100, place="Table 6")
    learning_rate: float = parameter(3.0e-4, **MATHS_RATE)
    eval_every = amended(paper="only the end is shown", place="Table 6")
    eval_responses = amended(paper=32, place="Table 6: avg@32")


@dataclass(frozen=True)
class SoftRewardParams(CodeRLParams):
    """Notebook 07: soft against hard reward in code RL (Section 5.2.3, Fig. 3)."""


@dataclass(frozen=True)
class TestFilterParams(CodeRLParams):
    """Notebook 08: all code problems against those with trusted tests (Section 5.2.4, Fig. 4)."""

    __test__ = False  # pytest would collect the name


@dataclass(frozen=True)
class ZeroAdvantageParams(MathsRLParams):
    """Notebook 09: groups without advantage, dropped or kept (Section 5.2.5, Fig. 5)."""

    worlds: ClassVar[tuple[str, ...]] = ("miniature", "code_miniature")
    # The runs on the soft code reward have the settings of this notebook.
    reads: ClassVar[tuple[str, ...]] = ("07_soft_reward",)

    seeds = amended(paper="1 run per arm", place="Fig. 5: one line per arm, no error bars")
    alphas: list[float] = parameter(
        [0.0, 0.1],
        **ALPHA | {"help": "weights of the LM loss, each with and without filter"},
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
    num_steps = amended(paper=100, place="Fig. 5: last plotted step")
    learning_rate: float = parameter(3.0e-4, **MATHS_RATE)
    eval_every = amended(paper=5, place="Fig. 5a: distance of the points")
    eval_responses = amended(paper=32, place="Fig. 5a: avg@32")

    def __post_init__(self) -> None:
        super().__post_init__()
        if "zero_advantage_filter" in self.options:
            raise ParameterError(
                "options: zero_advantage_filter is what this notebook compares: leave it out"
            )


@dataclass(frozen=True)
class MathsRLPhase(RLSchedule):
    """RL on mathematics, from the SFT checkpoint."""

    mini_batch_problems = amended(paper=16)
    learning_rate: float = parameter(3.0e-4, **RATE, paper=1.0e-6, place="RL settings")
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
class CodeRLPhase(RLSchedule):
    """RL on code, from the checkpoint of the RL on mathematics."""

    num_problems = amended(4)
    mini_batch_problems = amended(paper=32)
    learning_rate: float = parameter(3.0e-4, **RATE, paper=5.0e-7, place="RL settings")


@dataclass(frozen=True)
class HeadlineParams(FilteredParams):
    """Notebook 10: from curated data to the scores of Table 1 (Sections 3, 4; Fig. 1)."""

    worlds: ClassVar[tuple[str, ...]] = (
        "miniature",
        "code_miniature",
        "data_miniature",
        "joint_miniature",
    )

    seeds = amended(
        help="one pipeline per seed, from the SFT checkpoint on; the first decides C13",
        paper="1 run",
        place="Table 1: one number per cell, no error bars",
    )
    sft: dict = parameter(
        {}, record=SFTPhase, help="all values of SFTPhase, or none for smoke's", place="SFT"
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
    alpha: float = parameter(0.1, **ALPHA, paper=0.1, place="RL settings, Table 6")
    maths_responses: int = parameter(
        1, minimum=1, help="responses per maths problem", paper=64, place="Table 1: avg@64"
    )
    code_responses: int = parameter(
        1, minimum=1, help="responses per code problem", paper=8, place="Table 1: avg@8"
    )
    yarn_factor: float = parameter(
        2.5, above=1.0, help="of the longer budget", paper=2.5, place="main results, 64K budget"
    )
    data_options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")

    def __post_init__(self) -> None:
        for name, record in _PHASES.items():
            values = getattr(self, name)
            missing = [each.name for each in fields(record) if each.name not in values]
            if not values and self.profile != "smoke":
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
    def curation(self) -> DataOptions:
        """`data_options` completed with the paper's way for all that is not named."""
        return DataOptions(**self.data_options)


_PHASES = {"sft": SFTPhase, "maths_rl": MathsRLPhase, "code_rl": CodeRLPhase}

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
