"""The parameters of a profile on a real model and named data sets: ``params/<profile>/real.yaml``,
which stands in the place of the miniature's files."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from klearlib.params.data import NORMALIZER, SFT_RATE
from klearlib.params.fields import count, parameter, rate, require
from klearlib.params.options import MEMORY, NOT_STATED, TIMEOUT
from klearlib.params.worlds import ModelShape, check_budgets

BENCHMARKS = {
    "aime_2024": "math",
    "aime_2025": "math",
    "hmmt_feb_2025": "math",
    "livecodebench_v5": "code",
    "livecodebench_v6": "code",
}
"""The paper's benchmarks by the names of `klearlib.data.benchmarks.SIZES`, each with its domain."""
RESERVED = ("train", "validation", "rejects")
"""Names that no benchmark may have, because other files next to the benchmarks have them."""


@dataclass(frozen=True)
class _Placed:
    """Where a data set is."""

    name: str | None = parameter(None, help="of SOURCES, null where the key is it")
    hub_id: str | None = parameter(None, help="another data set of the hub in this one's schema")
    location: str | None = parameter(None, help="a file or folder here, null for the hub")
    split: str | None = parameter(None, help="null for the usual one")
    config: str | None = parameter(None, help="null for the usual one")


@dataclass(frozen=True)
class DataSetParams(_Placed):
    """One data set of a list: where it is and how much of it is read."""

    limit: int | None = count("rows read at most, null for all", None)


@dataclass(frozen=True)
class BenchmarkParams(_Placed):
    """One benchmark, one of the paper's by name or a user's own: where it is and how many problems
    it must have."""

    domain: str | None = parameter(
        None, choices=("math", "code"), help="null where the key is one of the paper's"
    )
    size: int | None = count(
        "problems, null for the known number, or any where none is known", None
    )


@dataclass(frozen=True)
class ShapeParams(ModelShape):
    """The shape of a dense model, the numbers of its config.json, to estimate its memory and
    arithmetic."""

    tie_word_embeddings: bool = parameter(help="whether the LM head is the embedding")


def _model(help: str, **paper):
    """A field for a model that a profile need not have."""
    return parameter(None, asset="model", help=help, **paper)


def _data_sets(help: str):
    return parameter({}, entries=DataSetParams, may_be_empty=True, help=help)


_R1 = "deepseek-ai/DeepSeek-R1"
_EXAMPLES = {"paper": "1.5M of both domains", "place": "SFT data"}


@dataclass(frozen=True, kw_only=True)
class RealParams(ShapeParams):
    """A real model and the data sets that it is trained and measured on: as many as the profile's
    notebooks need. Mathematics alone needs nothing of code, and vice versa.

    Data sets have names of `klearlib.data.sources.SOURCES`, or other names for several parts of
    one. Without sources and `sft_model`, RL starts from `model` itself. A user's own benchmarks
    take, in order, the places of the paper's that are missing. `shapes` need not have the base
    model. Without a teacher for the majority or the test filter, the problems count as having
    passed it.
    """

    seed: int = count("of the choice of problems and of the SFT checkpoint", minimum=0)
    model: str = parameter(
        asset="model",
        help="base model: a hub id or a folder here",
        paper="Qwen/Qwen3-8B-Base",
        place="experiment setup: based on Qwen3-8B-Base",
    )
    chat_template: str | None = parameter(None, help="a file, where the model has no chat template")
    max_positions: int = count(
        "positions that it was trained on, which YaRN multiplies", minimum=64
    )
    sft_model: str | None = _model(
        "SFT checkpoint of notebooks 05 to 09; null trains one from model, if there are sources"
    )
    reference: str | None = _model(
        "solves problems for their difficulty, null for the SFT checkpoint",
        paper="Qwen/Qwen3-8B",
        place="SFT data: difficulty",
    )
    teacher_weak: str | None = _model("of notebook 03", paper="Qwen/QwQ-32B", place="Table 3")
    teacher_middle: str | None = _model(
        "of notebooks 02 and 03", paper=_R1, place="Table 3: R1-0120"
    )
    teacher_strong: str | None = _model("of notebook 03", paper=f"{_R1}-0528", place="Table 3")
    teacher_majority: str | None = _model(
        "of the majority filter; null: the maths problems have passed it",
        paper=_R1,
        place="3.2.1: R1-0120",
    )
    teacher_code: str | None = _model(
        "of the test filter; null: the code problems have passed it",
        paper=_R1,
        place="5.2.4: R1-0120",
    )
    shapes: dict = parameter(
        {},
        entries=ShapeParams,
        may_be_empty=True,
        help="shapes of the reference and the teachers, by their names above",
    )
    maths_sources: dict = _data_sets("data sets of maths responses, best first")
    code_sources: dict = _data_sets("data sets of code responses, best first")
    maths_problems: dict = _data_sets("data sets of maths problems for RL")
    code_problems: dict = _data_sets("data sets of code problems for RL")
    benchmarks: dict = parameter(
        entries=BenchmarkParams, help="the paper's benchmarks, or one's own"
    )
    num_train_problems: int | None = count(
        "maths problems that RL draws from, at most; null for all", None, 88000, "3.2.1"
    )
    num_code_problems: int | None = count("the same of code", None, 18000, "3.2.1")
    num_validation: int = count(
        "held-out problems of the curves of each domain; even", paper=NOT_STATED, minimum=2
    )
    validation_responses: int = count("responses per held-out problem")
    sft_maths: int | None = count(
        "SFT examples of the maths sources, by K-center; null for all", None, **_EXAMPLES
    )
    sft_code: int | None = count(
        "SFT examples of the code sources, by K-center; null for all", None, **_EXAMPLES
    )
    sft_epochs: int = count("times that each example is seen", 4, 4, "SFT")
    sft_batch: int = count("examples per update of the SFT", 32, NOT_STATED)
    sft_learning_rate: float = rate(
        "of the first update of the SFT; falls to one half by a cosine", 8.0e-5, **SFT_RATE
    )
    sft_normalizer: str = parameter("sequence", **NORMALIZER)
    test_timeout_s: float = rate(
        "limit of one test where the examples of the SFT are judged", 6.0, **TIMEOUT
    )
    test_memory_mb: int = count("the same", 1024, **MEMORY)
    max_prompt_tokens: int = count(
        "positions that a prompt needs beside a budget", paper=NOT_STATED
    )
    max_new_tokens: int = count("token budget of a response", paper=32768, place="Table 1: 32K")
    code_max_new_tokens: int | None = count(
        "the same in the code notebooks; null for the same", None, 16384, "Figs. 3, 4: 16K"
    )
    extended_max_new_tokens: int | None = count(
        "the longer budget of notebook 10, which needs YaRN", None, 65536, "Table 1: 64K", minimum=2
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budgets(self)
        for field in fields(self):
            model = getattr(self, field.name)
            # The SFT checkpoint has the base model's shape.
            if field.metadata.get("asset") == "model" and field.name != "sft_model" and model:
                known = model == self.model or model in self.shapes
                fix = "give the numbers of its config.json"
                require(known, f"shapes has no {model}, the {field.name}: {fix}")
        for name, how in self.benchmarks.items():
            plain = name not in RESERVED and re.fullmatch(r"\w+", name)
            rule = f"a name has only letters, digits and _, and is none of {', '.join(RESERVED)}"
            require(plain, f"benchmarks: {name}: {rule}")
            fix = "it is known" if name in BENCHMARKS else "math or code"
            stated = (name in BENCHMARKS) != (how["domain"] is not None)
            require(stated, f"benchmarks: {name}: domain: {fix}")
        for domain, first in (("math", "aime_2024"), ("code", "livecodebench_v5")):
            names, most = benchmarks_of(self, domain), [*BENCHMARKS.values()].count(domain)
            places = f"{most} of {domain}, as many as the paper's tables"
            require(len(names) <= most, f"benchmarks has more than {places}: leave some out")
            require(
                not names or first in names or not BENCHMARKS.keys() >= set(names),
                f"benchmarks: curves of {domain} are scored on {first}: add it, or one of your own "
                "in its place",
            )


def benchmarks_of(real: RealParams, domain: str) -> list[str]:
    """The benchmarks of a domain, in their order."""
    return [
        name
        for name, how in real.benchmarks.items()
        if (how["domain"] or BENCHMARKS[name]) == domain
    ]


def shape_of_model(real: RealParams, model: str) -> dict:
    """The shape of a model that `real` names, by the names of `ShapeParams`; the base model's for
    the SFT checkpoint."""
    if model != real.model and model in real.shapes:
        return real.shapes[model]
    return {field.name: getattr(real, field.name) for field in fields(ShapeParams)}
