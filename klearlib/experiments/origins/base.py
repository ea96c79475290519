"""What an experiment may ask of an origin, whichever it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from klearlib.params import JointMiniatureParams, RealParams, SFTPhase
from klearlib.run.stage import Stage


@dataclass(frozen=True)
class Start:
    """What an RL run starts from and what it is measured on.

    `world` holds the benchmarks and the training problems, `pool` (None for all of them) the
    problems that are left to train on; `benchmarks` maps names to sizes, and `compute` says how its
    stages compute. `profile` is the name of what says how verl trains.
    """

    profile: str
    world: Stage
    sft: Stage
    benchmarks: dict[str, int | None]
    num_validation: int
    validation_responses: int
    max_new_tokens: int
    compute: dict
    pool: Stage | None = None


@dataclass(frozen=True)
class Joint:
    """The one model for mathematics and code that notebook 10 trains.

    `sft_sizes` are the examples of each domain, None for all, and `num_sources` the number of the
    best sources that they come from; `long_examples` are further ones that the suite writes itself.
    `max_positions` are those that the model was trained on, which YaRN multiplies, `longest_prompt`
    those of them that a prompt needs; `yarn_original` says them to YaRN where the model's config
    may name others.
    """

    benchmarks: dict[str, dict[str, int | None]]
    sft_sizes: dict[str, int | None]
    num_sources: dict[str, int]
    long_examples: int
    num_validation: int
    validation_responses: int
    max_new_tokens: int
    extended_max_new_tokens: int
    max_positions: int
    longest_prompt: int
    yarn_original: int | None

    @classmethod
    def of(cls, params: JointMiniatureParams | RealParams, **others) -> Self:
        """What a profile's file says of it, and the `others`."""
        return cls(
            sft_sizes={"math": params.sft_maths, "code": params.sft_code},
            num_validation=params.num_validation,
            validation_responses=params.validation_responses,
            max_new_tokens=params.max_new_tokens,
            extended_max_new_tokens=params.extended_max_new_tokens,
            max_positions=params.max_positions,
            **others,
        )


class Origin(Protocol):
    """The stages of a profile's worlds and models.

    compute: how its stages compute. benchmarks: domain -> name -> number of problems, None for any.
    stages: those of `klearlib.miniature.stages.data_stages`, by the same names; one that the
    profile does not have is a ParameterError that says what to add. sft_options: arguments of every
    training stage of a student. templates: phrases that the search for overlap cuts out.
    max_new_tokens: budget of a response, by domain. seed, code_seed: of all that teachers sample.
    num_pool, num_code_problems: about how many problems teachers answer, and curation_s the seconds
    that curating one source takes, for estimates.
    """

    compute: dict
    benchmarks: dict[str, dict[str, int | None]]
    stages: dict[str, Stage]
    sft_options: dict
    templates: tuple[str, ...]
    curate_workers: int
    max_new_tokens: dict[str, int]
    seed: int
    code_seed: int
    num_pool: int
    num_code_problems: int
    curation_s: float
    joint: Joint

    def start(self, domain: str) -> Start:
        """World and SFT checkpoint of RL on a domain."""

    def ranked_sources(self, domain: str) -> list[str]:
        """The names of a domain's sources, the best first."""

    def sources(self, domain: str, *, pool_only: bool) -> list[dict]:
        """The sources of a domain as `klearlib.curation.curate` takes them, the pool last."""

    def curation_inputs(self, domain: str) -> dict[str, Stage]:
        """The inputs of the curation of a domain."""

    def benchmark_items(self, domain: str) -> list[dict]:
        """The benchmarks that it looks for, as it takes them."""

    def learnable(self, domain: str, curated: Stage) -> Stage:
        """What of the curated sources of a domain may be learnt: its problems and responses."""

    def pool(self, curated: Stage) -> tuple[Stage, str]:
        """Stage and file of the maths problems that teachers answer; `curated`: the pool alone."""

    def joint_stages(self, selections: list[Stage], *, seed: int, sft: SFTPhase) -> dict:
        """The stages ``world``, ``base``, ``examples`` and ``sft`` of the joint model."""

    def majority_teacher(self) -> str | None:
        """Whose responses decide which maths problems RL draws from; None: all problems do."""

    def test_teacher(self) -> Stage | None:
        """Whose programs decide which code problems have sound tests; None: all are kept."""
