"""The parameters of the four notebooks on data, with the paper's value and the place that states
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.params.checking import parameter
from klearlib.scale.address import check_workers

NOT_STATED = "not stated"
WORKERS = {
    "check": check_workers,
    "keyed": False,
    "help": "processes at once, 0 is one per core or GPU; or ray, or ray://host:port",
}

_PROFILE = {"help": "folder in params/ and results/"}
_SEEDS = {
    "minimum": 0,
    "unique": True,
    "help": "one student per arm and seed",
    "paper": "1 run per arm",
    "place": "Tables 2-5: one number per cell, no error bars",
}
_RESPONSES = {
    "minimum": 1,
    "help": "teacher's responses per problem",
    "paper": "up to 16",
    "place": "SFT data",
}
_REFERENCE = {
    "minimum": 1,
    "help": "reference's responses per problem, for its difficulty",
    "paper": NOT_STATED,
}
_EASY = {
    "above": 0.0,
    "maximum": 1.0,
    "help": "reference's pass rate from which a problem is easy",
    "paper": "a model's annotation, 88 % hard",
    "place": "SFT data, 5.1.1",
}
_EXAMPLES = {"minimum": 1, "help": "examples of every arm, by K-center", "paper": NOT_STATED}
_EPOCHS = {"minimum": 1, "help": "times that each example is seen", "paper": 4, "place": "SFT"}
_BATCH = {"minimum": 1, "help": "examples per update", "paper": NOT_STATED}
_RATE = {
    "above": 0.0,
    "help": "of the first update; falls to one half by a cosine",
    "paper": 8.0e-5,
    "place": "SFT: 8e-5 to 4e-5",
}
_NORMALIZER = {
    "choices": ("sequence", "token"),
    "help": "mean over responses (Eq. 8) or over tokens",
    "paper": "sequence",
    "place": "Eq. 8 as printed",
}
_EVALUATION = {
    "minimum": 1,
    "help": "responses per benchmark problem",
    "paper": NOT_STATED,
    "place": "rounding fits 16 on AIME and 4 on LiveCodeBench",
}


@dataclass(frozen=True)
class DataOptions:
    """How data are made, chosen and measured where the paper leaves a choice; defaults: the paper
    where it says."""

    ngram_words: int = parameter(
        9, minimum=1, help="words that a prompt may not share with a benchmark", paper=9
    )
    ngram_mode: str = parameter(
        "words", choices=("words", "whitespace"), help="what a word is", paper=NOT_STATED
    )
    stop_more_than: int | None = parameter(
        None, minimum=1, help="n-grams that more items hold remove nothing", paper=NOT_STATED
    )
    min_tests: int = parameter(16, minimum=0, help="tests that a code problem must have", paper=16)
    merge_responses: str = parameter(
        "source",
        choices=("none", "source", "all"),
        help="whose duplicates give their responses",
        paper=NOT_STATED,
    )
    temperature: float = parameter(
        1.0, above=0.0, help="of teachers and reference", paper=NOT_STATED
    )
    top_p: float = parameter(
        1.0, above=0.0, maximum=1.0, help="of teachers and reference", paper=NOT_STATED
    )
    embedding_text: str = parameter(
        "prompt",
        choices=("prompt", "response", "both"),
        help="what K-center covers",
        paper=NOT_STATED,
    )
    embedding_dim: int = parameter(256, minimum=1, help="of the hashed TF-IDF", paper=NOT_STATED)
    embedding_seed: int = parameter(0, minimum=0, help="of its random signs")
    eval_temperature: float = parameter(0.6, above=0.0, help="on the benchmarks", paper=0.6)
    eval_top_p: float = parameter(0.95, above=0.0, maximum=1.0, help="on them", paper=0.95)
    test_timeout_s: float = parameter(2.0, above=0.0, help="limit of one test of a program")
    test_memory_mb: int = parameter(256, minimum=16, help="limit of one test of a program")


@dataclass(frozen=True)
class _Options:
    worlds: ClassVar[tuple[str, ...]] = ("miniature", "code_miniature", "data_miniature")

    @property
    def data_options(self) -> DataOptions:
        """`options` completed with the default for all that is not named."""
        return DataOptions(**self.options)


@dataclass(frozen=True)
class CurationParams(_Options):
    """Notebook 01: from raw sources to the sets for SFT and RL (Sections 3.1, 3.2.1)."""

    profile: str = parameter("smoke", **_PROFILE)
    num_responses: int = parameter(4, **_RESPONSES)
    reference_responses: int = parameter(4, **_REFERENCE)
    easy_from: float = parameter(0.25, **_EASY)
    stop_list: int = parameter(
        1, minimum=1, help="compared rule: n-grams in more items are boilerplate", paper=NOT_STATED
    )
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")


@dataclass(frozen=True)
class CorrectnessParams(_Options):
    """Notebook 02: correct responses only, or all of them (Section 5.1.1, Table 2)."""

    profile: str = parameter("smoke", **_PROFILE)
    seeds: list[int] = parameter([0], **_SEEDS)
    teacher: str = parameter(
        "middle",
        choices=("weak", "middle", "strong"),
        help="whose responses",
        paper="DeepSeek-R1 (OpenR1-Math-220k)",
        place="Table 2",
    )
    num_responses: int = parameter(4, **(_RESPONSES | {"paper": "2 to 4 (OpenR1-Math-220k)"}))
    reference_responses: int = parameter(4, **_REFERENCE)
    easy_from: float = parameter(0.25, **_EASY)
    num_examples: int = parameter(8, **_EXAMPLES)
    num_epochs: int = parameter(4, **_EPOCHS)
    batch_size: int = parameter(4, **_BATCH)
    learning_rate: float = parameter(3.0e-3, **_RATE)
    normalizer: str = parameter("sequence", **_NORMALIZER)
    eval_responses: int = parameter(2, **_EVALUATION)
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")


@dataclass(frozen=True)
class TeacherParams(_Options):
    """Notebook 03: students of teachers of graded strength (Section 5.1.2, Table 3)."""

    profile: str = parameter("smoke", **_PROFILE)
    seeds: list[int] = parameter([0], **_SEEDS)
    num_responses: int = parameter(4, **_RESPONSES)
    num_examples: int = parameter(8, **_EXAMPLES)
    num_epochs: int = parameter(4, **_EPOCHS)
    batch_size: int = parameter(4, **_BATCH)
    learning_rate: float = parameter(3.0e-3, **_RATE)
    normalizer: str = parameter("sequence", **_NORMALIZER)
    eval_responses: int = parameter(2, **_EVALUATION)
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")


@dataclass(frozen=True)
class TopKParams(_Options):
    """Notebook 04: the best source or more of them (Section 5.1.3, Tables 4 and 5)."""

    profile: str = parameter("smoke", **_PROFILE)
    seeds: list[int] = parameter([0], **_SEEDS)
    num_examples: int = parameter(
        24, **(_EXAMPLES | {"help": "examples of every maths arm, by K-center", "paper": 31600})
    )
    code_examples: int = parameter(
        12, **(_EXAMPLES | {"help": "examples of every code arm, by K-center", "paper": 31600})
    )
    num_epochs: int = parameter(4, **_EPOCHS)
    batch_size: int = parameter(4, **(_BATCH | {"help": "maths examples per update"}))
    code_batch_size: int = parameter(2, **(_BATCH | {"help": "code examples per update"}))
    learning_rate: float = parameter(3.0e-3, **_RATE)
    code_learning_rate: float = parameter(3.0e-3, **(_RATE | {"help": "the same for code"}))
    normalizer: str = parameter("sequence", **_NORMALIZER)
    eval_responses: int = parameter(2, **_EVALUATION)
    code_eval_responses: int = parameter(1, **(_EVALUATION | {"help": "the same for code"}))
    workers: object = parameter(0, **WORKERS)
    options: dict = parameter({}, record=DataOptions, help="fields of DataOptions that differ")
