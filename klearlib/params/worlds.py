"""The parameters of the embedded worlds: sections of ``params/<profile>/worlds.yaml``, all values
required.

Each is put together from parts. A part is what one stage depends on, and its parameters arrive
there under the names that they have here (`klearlib.miniature.stages.part`), so that a knob is
declared once and a change of another part repeats no stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from klearlib.params.fields import Record, amended, count, parameter, rate, require


def _share(help: str):
    return parameter(minimum=0.0, maximum=0.9, help=help)


@dataclass(frozen=True)
class ModelShape(Record):
    """The shape of a dense model."""

    num_layers: int = count("transformer layers")
    hidden_size: int = count("width of the model")
    num_heads: int = count("attention heads")
    num_kv_heads: int = count("key-value heads; divides num_heads")
    head_dim: int = count("width of a head; even, for rotary positions", minimum=2)
    intermediate_size: int = count("width of the feed-forward layers")
    vocab_size: int = count("rows of the embedding", minimum=2)

    def __post_init__(self) -> None:
        kv, heads = self.num_kv_heads, self.num_heads
        require(heads % kv == 0, f"num_kv_heads {kv} must divide num_heads {heads}")
        require(self.head_dim % 2 == 0, f"head_dim must be even, got {self.head_dim}")


@dataclass(frozen=True)
class _World(Record):
    seed: int = count("all of the world follows from it", minimum=0)
    num_validation: int = count("held-out problems of the curves")


@dataclass(frozen=True)
class _WorldText(_World):
    """The data of a model that learns from one set of SFT responses before RL."""

    base_examples: int = count("texts of the pretraining")
    sft_examples: int = count("responses of the SFT")
    num_train_problems: int = count("problems that RL draws from")
    num_deciding: int = count("problems of the benchmark that decides claims", minimum=2)


@dataclass(frozen=True)
class MathsText(_WorldText):
    """The part that makes the maths world."""

    modulus: int = count("chains are computed modulo this", minimum=3)
    max_difficulty: int = count("steps of the longest chain", minimum=2)
    slip_share: float = _share("share of single steps with a habit of going wrong")
    slip_rate: float = _share("how often such a step is wrong in the SFT chains")
    step_noise: float = _share("how often any other step is wrong in the SFT chains")


@dataclass(frozen=True)
class CodeText(_WorldText):
    """The part that makes the code world."""

    max_difficulty: int = parameter(
        minimum=2, maximum=8, help="operations of the longest specification"
    )
    num_tests: int = parameter(minimum=16, maximum=32, help="tests of each problem")
    slip_share: float = _share("share of words with a habit of being misread")
    slip_rate: float = _share("how often such a word is misread in the responses")
    step_noise: float = _share("how often any other word is misread for SFT")
    teacher_slip_share: float = _share("share of words that the teacher misreads too")
    flawed_share: float = _share("share of the training problems with planted wrong tests")
    teacher_examples: int = count("responses that the teacher learns from")


@dataclass(frozen=True)
class JointText(_World):
    """The part that makes the joint world, next to the other two worlds."""

    long_max_difficulty: int = parameter(
        minimum=3,
        help="steps of the longest chain of math_c; the shortest has one step more "
        "than max_difficulty of the maths world",
    )
    base_maths: int = count("pretraining texts of mathematics, short chains")
    base_long_maths: int = count("the same with chains as long as math_c's")
    base_code: int = count("pretraining texts of code")
    sft_long_maths: int = count("SFT examples with chains as long as math_c's, right throughout")
    num_deciding: int = count(
        "problems of the benchmark that decides on the longer budget", minimum=2
    )
    num_validation = amended(minimum=2, help="held-out problems of the curves; even")


@dataclass(frozen=True)
class RawSources(Record):
    """The part that makes the raw sources, next to the maths and code worlds."""

    seed: int = count("sources and teachers follow from it", minimum=0)
    num_maths: int = count("sound rows of each of the ten maths sources")
    num_code: int = count("sound rows of each of the six code sources")
    num_pool: int = count("sound problems of the maths and of the code pool")
    max_generations: int = parameter(
        minimum=2, maximum=16, help="most responses to a problem where the schema has several"
    )
    slip_rate: float = _share("how often a habit shows, in sources and teachers")
    num_contaminated: int = count("planted benchmark prompts of each source", minimum=0)
    duplicate_share: float = _share("planted repeated prompts for each sound row")
    broken_share: float = _share("planted unusable rows for each sound one")
    few_tests_share: float = _share("code problems with fewer than 16 tests for each in the pool")


@dataclass(frozen=True)
class _Pretrained(ModelShape, _World):
    """A world with its own model, trained from scratch."""

    vocab_size = amended(minimum=261, help="rows of the embedding; 256 are the bytes")
    max_positions: int = count("longest sequence, prompt and response", minimum=64)
    base_steps: int = count("updates of the pretraining")
    base_batch: int = count("texts per update of the pretraining")
    base_learning_rate: float = rate("of the pretraining")
    validation_responses: int = count("responses per held-out problem")
    max_new_tokens: int = count("token budget of a response")


@dataclass(frozen=True)
class _Tuned(_Pretrained):
    sft_steps: int = count("updates of the SFT")
    sft_batch: int = count("responses per update of the SFT")
    sft_learning_rate: float = rate("of the SFT")


@dataclass(frozen=True)
class MiniatureParams(MathsText, _Tuned):
    """The embedded world of a profile: its problems, base model, SFT start and benchmarks."""


@dataclass(frozen=True)
class CodeMiniatureParams(CodeText, _Tuned):
    """The code part of the embedded world of a profile: its problems, flaws, models and
    benchmarks."""

    sft_batch = amended(help="responses per update of SFT and teacher")
    sft_learning_rate = amended(help="of SFT and teacher")
    teacher_steps: int = count("updates of the teacher")


@dataclass(frozen=True)
class DataMiniatureParams(RawSources):
    """The raw sources and the maths teachers of a profile, on top of its maths and code worlds."""

    teacher_batch: int = count("chains per update of the teachers")
    teacher_learning_rate: float = rate("of the teachers")
    weak_slip_share: float = _share(
        "share of single steps with a habit in the weak teacher's chains"
    )
    weak_step_noise: float = _share("how often any other of their steps is wrong")
    weak_steps: int = count("updates of the weak teacher")
    middle_slip_share: float = _share("the same of the middle teacher")
    middle_step_noise: float = _share("the same of the middle teacher")
    middle_steps: int = count("updates of the middle teacher")
    strong_slip_share: float = _share("the same of the strong teacher")
    strong_step_noise: float = _share("the same of the strong teacher")
    strong_steps: int = count("updates of the strong teacher")


@dataclass(frozen=True)
class JointMiniatureParams(JointText, _Pretrained):
    """One model for mathematics and code, on top of the other worlds of a profile."""

    max_positions = amended(help="longest sequence without YaRN: longest prompt and base budget")
    yarn_original: int = count("positions that YaRN multiplies; more of them, a gentler change")
    yarn_share: float = parameter(
        minimum=0.0, maximum=1.0, help="share of the batches of SFT that are read under YaRN"
    )
    sft_maths: int = count("SFT examples of the best maths sources")
    sft_code: int = count("SFT examples of the best code sources")
    max_new_tokens = amended(help="base token budget of a response; paper: 32K")
    extended_max_new_tokens: int = count(
        "the longer budget, which needs YaRN's positions; paper: 64K", minimum=2
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budgets(self)
        require(
            self.max_new_tokens < self.max_positions,
            f"max_new_tokens {self.max_new_tokens} must be below max_positions "
            f"{self.max_positions}: the prompt needs positions too",
        )


def check_budgets(world) -> None:
    """Raises ParameterError where validation is not half of each domain, or no budget is longer."""
    num, budget, longer = world.num_validation, world.max_new_tokens, world.extended_max_new_tokens
    half = "half of each domain in notebook 10"
    require(num % 2 == 0, f"num_validation must be even, {half}, got {num}")
    more = longer is None or longer > budget
    require(more, f"extended_max_new_tokens {longer} must exceed max_new_tokens {budget}")
