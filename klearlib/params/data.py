"""What the notebooks on data share: knobs with the paper's value and the place that states it.

The defaults are those of the smoke profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.params.base import WORKERS, NotebookParams
from klearlib.params.fields import Record, amended, parameter
from klearlib.params.options import NOT_STATED, DataOptions


@dataclass(frozen=True)
class SFTSchedule(Record):
    """How a model is tuned on examples."""

    num_epochs: int = parameter(
        4, minimum=1, help="times that each example is seen", paper=4, place="SFT"
    )
    batch_size: int = parameter(4, minimum=1, help="examples per update", paper=NOT_STATED)
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
class SFTPhase(SFTSchedule):
    """How the base model of notebook 10 is tuned on the examples of both domains."""

    num_epochs = amended(3)
    batch_size = amended(8)


@dataclass(frozen=True)
class DataParams(NotebookParams):
    """A notebook on data."""

    worlds: ClassVar[tuple[str, ...]] = ("miniature", "code_miniature", "data_miniature")

    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")

    @property
    def data_options(self) -> DataOptions:
        """`options` completed with the default for all that is not named."""
        return DataOptions(**self.options)


@dataclass(frozen=True)
class AnsweredParams(DataParams):
    """A notebook on data whose problems a teacher answers."""

    num_responses: int = parameter(
        4, minimum=1, help="teacher's responses per problem", paper="up to 16", place="SFT data"
    )


@dataclass(frozen=True)
class GradedParams(AnsweredParams):
    """A notebook on data whose problems are easy or hard, by the answers of a reference."""

    reference_responses: int = parameter(
        4, minimum=1, help="reference's responses per problem, for its difficulty", paper=NOT_STATED
    )
    easy_from: float = parameter(
        0.25,
        above=0.0,
        maximum=1.0,
        help="reference's pass rate from which a problem is easy",
        paper="a model's annotation, 88 % hard",
        place="SFT data, 5.1.1",
    )


@dataclass(frozen=True)
class StudentParams(SFTSchedule, DataParams):
    """A notebook on data that compares students, each tuned on an arm's examples."""

    seeds: list[int] = parameter(
        [0],
        minimum=0,
        unique=True,
        help="one student per arm and seed",
        paper="1 run per arm",
        place="Tables 2-5: one number per cell, no error bars",
    )
    num_examples: int = parameter(
        8, minimum=1, help="examples of every arm, by K-center", paper=NOT_STATED
    )
    eval_responses: int = parameter(
        2,
        minimum=1,
        help="responses per benchmark problem",
        paper=NOT_STATED,
        place="rounding fits 16 on AIME and 4 on LiveCodeBench",
    )
