"""What the notebooks on data share: knobs with the paper's value and the place that states it.

The defaults are those of the smoke profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.params.fields import Record, amended, count, parameter, rate
from klearlib.params.options import NOT_STATED, WORKERS, DataOptions, NotebookParams

NORMALIZER = {
    "choices": ("token", "sequence_sum", "sequence"),
    "help": "mean over tokens, or over responses of sums (Eq. 8) or of means",
    "paper": "sequence_sum",
    "place": "Eq. 8 as printed",
}
SFT_RATE = {"maximum": 1.0, "paper": 8.0e-5, "place": "SFT: 8e-5 to 4e-5"}
"""Shared by notebooks and profiles on a real model: the limits and words of the SFT's rate."""


@dataclass(frozen=True)
class SFTSchedule(Record):
    """How a model is tuned on examples."""

    num_epochs: int = count("times that each example is seen", 4, 4, "SFT")
    batch_size: int = count("examples per update", 4, NOT_STATED)
    learning_rate: float = rate(
        "of the first update; falls to one half by a cosine", 3.0e-3, **SFT_RATE
    )
    normalizer: str = parameter("token", **NORMALIZER)


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
        """`options` completed with the defaults."""
        return DataOptions(**self.options)


@dataclass(frozen=True)
class AnsweredParams(DataParams):
    """A notebook on data with a teacher's responses to problems."""

    num_responses: int = count("teacher's responses per problem", 4, "up to 16", "SFT data")


@dataclass(frozen=True)
class GradedParams(AnsweredParams):
    """A notebook on data with easy and hard problems, as a reference model solves them."""

    reference_responses: int = count(
        "reference's responses per problem, for its difficulty", 4, NOT_STATED
    )
    easy_from: float = rate(
        "reference's pass rate from which a problem is easy",
        0.25,
        "a model's annotation, 88 % hard",
        "SFT data, 5.1.1",
        maximum=1.0,
    )


@dataclass(frozen=True)
class StudentParams(SFTSchedule, DataParams):
    """A notebook on data that compares students, each tuned on an arm's examples."""

    seeds: list[int] = count(
        "one student per arm and seed",
        [0],
        "1 run per arm",
        "Tables 2-5: one number per cell, no error bars",
        minimum=0,
        unique=True,
    )
    num_examples: int = count("examples of every arm, by K-center", 8, NOT_STATED)
    eval_responses: int = count(
        "responses per benchmark problem",
        2,
        NOT_STATED,
        "rounding fits 16 on AIME and 4 on LiveCodeBench",
    )
