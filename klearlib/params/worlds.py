"""The parameters of the embedded worlds: sections of ``params/<profile>/worlds.yaml``, all values
required."""

from __future__ import annotations

from dataclasses import dataclass

from klearlib.errors import ParameterError
from klearlib.params.fields import amended, parameter

_SHARE = {"minimum": 0.0, "maximum": 0.9}


@dataclass(frozen=True)
class ModelShape:
    """The shape of a dense model."""

    num_layers: int = parameter(minimum=1, help="transformer layers")
    hidden_size: int = parameter(minimum=1, help="width of the model")
    num_heads: int = parameter(minimum=1, help="attention heads")
    num_kv_heads: int = parameter(minimum=1, help="key-value heads; divides num_heads")
    head_dim: int = parameter(minimum=2, help="width of a head; even, for rotary positions")
    intermediate_size: int = parameter(minimum=1, help="width of the feed-forward layers")
    vocab_size: int = parameter(minimum=2, help="rows of the embedding")

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ParameterError(
                f"num_kv_heads {self.num_kv_heads} must divide num_heads {self.num_heads}"
            )
        if self.head_dim % 2:
            raise ParameterError(f"head_dim must be even, got {self.head_dim}")


@dataclass(frozen=True)
class _Pretrained(ModelShape):
    """A world with a model of its own, which starts from nothing."""

    seed: int = parameter(minimum=0, help="all of the world follows from it")
    vocab_size: int = amended(
        ModelShape, "vocab_size", minimum=261, help="rows of the embedding; 256 are the bytes"
    )
    max_positions: int = parameter(minimum=64, help="longest sequence, prompt and response")
    base_steps: int = parameter(minimum=1, help="updates of the pretraining")
    base_batch: int = parameter(minimum=1, help="texts per update of the pretraining")
    base_learning_rate: float = parameter(above=0.0, help="of the pretraining")
    num_validation: int = parameter(minimum=1, help="held-out problems of the curves")
    validation_responses: int = parameter(minimum=1, help="responses per held-out problem")
    max_new_tokens: int = parameter(minimum=1, help="token budget of a response")


@dataclass(frozen=True)
class _Tuned(_Pretrained):
    """A world whose model learns from one set of SFT responses before RL."""

    base_examples: int = parameter(minimum=1, help="texts of the pretraining")
    sft_examples: int = parameter(minimum=1, help="responses of the SFT")
    sft_steps: int = parameter(minimum=1, help="updates of the SFT")
    sft_batch: int = parameter(minimum=1, help="responses per update of the SFT")
    sft_learning_rate: float = parameter(above=0.0, help="of the SFT")
    num_train_problems: int = parameter(minimum=1, help="problems that RL draws from")


@dataclass(frozen=True)
class MiniatureParams(_Tuned):
    """The embedded world of a profile: its problems, base model, SFT start and benchmarks."""

    modulus: int = parameter(minimum=3, help="chains are computed modulo this")
    max_difficulty: int = parameter(minimum=2, help="steps of the longest chain")
    slip_share: float = parameter(
        **_SHARE, help="share of single steps with a habit of going wrong"
    )
    slip_rate: float = parameter(**_SHARE, help="how often such a step is wrong in the SFT chains")
    step_noise: float = parameter(
        **_SHARE, help="how often any other step is wrong in the SFT chains"
    )


@dataclass(frozen=True)
class CodeMiniatureParams(_Tuned):
    """The code part of the embedded world of a profile: its problems, flaws, models and
    benchmarks."""

    max_difficulty: int = parameter(
        minimum=2, maximum=8, help="operations of the longest specification"
    )
    num_tests: int = parameter(minimum=16, maximum=32, help="tests of each problem")
    slip_share: float = parameter(**_SHARE, help="share of words with a habit of being misread")
    slip_rate: float = parameter(**_SHARE, help="how often such a word is misread in the responses")
    step_noise: float = parameter(**_SHARE, help="how often any other word is misread for SFT")
    teacher_slip_share: float = parameter(
        **_SHARE, help="share of words that the teacher misreads too"
    )
    flawed_share: float = parameter(
        **_SHARE, help="share of the training problems with planted wrong tests"
    )
    sft_batch: int = amended(_Tuned, "sft_batch", help="responses per update of SFT and teacher")
    sft_learning_rate: float = amended(_Tuned, "sft_learning_rate", help="of SFT and teacher")
    teacher_examples: int = parameter(minimum=1, help="responses that the teacher learns from")
    teacher_steps: int = parameter(minimum=1, help="updates of the teacher")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher_slip_share > self.slip_share:
            raise ParameterError(
                f"teacher_slip_share {self.teacher_slip_share} must not exceed slip_share "
                f"{self.slip_share}: the teacher is the better writer"
            )


@dataclass(frozen=True)
class DataMiniatureParams:
    """The raw sources and the maths teachers of a profile, on top of its maths and code worlds."""

    seed: int = parameter(minimum=0, help="sources and teachers follow from it")
    num_maths: int = parameter(minimum=1, help="sound rows of each of the ten maths sources")
    num_code: int = parameter(minimum=1, help="sound rows of each of the six code sources")
    num_pool: int = parameter(minimum=1, help="sound problems of the maths and of the code pool")
    max_generations: int = parameter(
        minimum=2, maximum=16, help="most responses to a problem where the schema has several"
    )
    slip_rate: float = parameter(**_SHARE, help="how often a habit shows, in sources and teachers")
    num_contaminated: int = parameter(minimum=0, help="planted benchmark prompts of each source")
    duplicate_share: float = parameter(**_SHARE, help="planted repeated prompts for each sound row")
    broken_share: float = parameter(**_SHARE, help="planted unusable rows for each sound one")
    few_tests_share: float = parameter(
        **_SHARE, help="code problems with fewer than 16 tests for each in the pool"
    )
    teacher_batch: int = parameter(minimum=1, help="chains per update of the teachers")
    teacher_learning_rate: float = parameter(above=0.0, help="of the teachers")
    weak_slip_share: float = parameter(
        **_SHARE, help="share of single steps with a habit in the weak teacher's chains"
    )
    weak_step_noise: float = parameter(**_SHARE, help="how often any other of their steps is wrong")
    weak_steps: int = parameter(minimum=1, help="updates of the weak teacher")
    middle_slip_share: float = parameter(**_SHARE, help="the same of the middle teacher")
    middle_step_noise: float = parameter(**_SHARE, help="the same of the middle teacher")
    middle_steps: int = parameter(minimum=1, help="updates of the middle teacher")
    strong_slip_share: float = parameter(**_SHARE, help="the same of the strong teacher")
    strong_step_noise: float = parameter(**_SHARE, help="the same of the strong teacher")
    strong_steps: int = parameter(minimum=1, help="updates of the strong teacher")

    def __post_init__(self) -> None:
        for worse, better in (("weak", "middle"), ("middle", "strong")):
            for name, sign in (("slip_share", 1), ("step_noise", 1), ("steps", -1)):
                low, high = (getattr(self, f"{grade}_{name}") for grade in (worse, better))
                if sign * (low - high) < 0:
                    word = "below" if sign > 0 else "above"
                    raise ParameterError(
                        f"{worse}_{name} {low} must not be {word} {better}_{name} {high}: the "
                        f"{better} teacher is the better one"
                    )


@dataclass(frozen=True)
class JointMiniatureParams(_Pretrained):
    """One model for mathematics and code, on top of the other worlds of a profile."""

    long_max_difficulty: int = parameter(
        minimum=3,
        help="steps of the longest chain of math_c; the shortest has one step more "
        "than max_difficulty of the maths world",
    )
    max_positions: int = amended(
        _Pretrained,
        "max_positions",
        help="longest sequence without YaRN: longest prompt and base budget",
    )
    base_maths: int = parameter(minimum=1, help="pretraining texts of mathematics, short chains")
    base_long_maths: int = parameter(minimum=1, help="the same with chains as long as math_c's")
    base_code: int = parameter(minimum=1, help="pretraining texts of code")
    sft_maths: int = parameter(minimum=1, help="SFT examples of the best maths sources")
    sft_long_maths: int = parameter(
        minimum=1, help="SFT examples with chains as long as math_c's, right throughout"
    )
    sft_code: int = parameter(minimum=1, help="SFT examples of the best code sources")
    num_validation: int = parameter(minimum=2, help="held-out problems of the curves; even")
    max_new_tokens: int = parameter(minimum=1, help="base token budget of a response; paper: 32K")
    extended_max_new_tokens: int = parameter(
        minimum=2, help="the longer budget, which needs YaRN's positions; paper: 64K"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budgets(self)
        if self.max_new_tokens >= self.max_positions:
            raise ParameterError(
                f"max_new_tokens {self.max_new_tokens} must be below max_positions "
                f"{self.max_positions}: the prompt needs positions too"
            )


def check_budgets(world) -> None:
    """Raises ParameterError where validation is not of both domains, or no budget is longer."""
    if world.num_validation % 2:
        raise ParameterError(
            f"num_validation must be even, half of each domain in notebook 10, got "
            f"{world.num_validation}"
        )
    if world.extended_max_new_tokens <= world.max_new_tokens:
        raise ParameterError(
            f"extended_max_new_tokens {world.extended_max_new_tokens} must exceed "
            f"max_new_tokens {world.max_new_tokens}"
        )
