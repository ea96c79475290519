"""What every notebook's parameters have, and the options of RL, the test filter and data, for
choices that the paper leaves open or others make differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klearlib.params.fields import Record, choice, count, parameter, rate, require
from klearlib.params.own_files import read_reward
from klearlib.rl.settings import require_old_logprobs
from klearlib.scale.ray_cluster import check_workers
from klearlib.verify import MAX_MEMORY_MB, MAX_TIMEOUT_S

NOT_STATED = "not stated"
LOCAL, VERL = "local", "verl"
"""Who trains the RL runs of a notebook: the stage's own process, or verl on a Ray cluster."""
TIMEOUT, MEMORY = {"maximum": MAX_TIMEOUT_S}, {"minimum": 16, "maximum": MAX_MEMORY_MB}
_COLDEST = {"minimum": 0.01}  # logits divided by less may be infinite
_BETA = {"minimum": 0.0, "maximum": 1e6}
_TIMEOUT = {"help": "limit of one test of a program", "default": 2.0, **TIMEOUT}
_MEMORY = {"help": "limit of one test of a program", "default": 256, **MEMORY}
WORKERS = {
    "check": check_workers,
    "keyed": False,
    "help": "processes at once, 0 is one per core or GPU; or ray",
}
"""The field `workers` of a notebook that runs stages."""


@dataclass(frozen=True)
class NotebookParams(Record):
    """The base of every notebook's record.

    worlds: the embedded worlds that it needs, by the names of `klearlib.params.load`.
    """

    worlds: ClassVar[tuple[str, ...]] = ()

    profile: str = parameter("smoke", help="folder in params/ and results/")


@dataclass(frozen=True)
class RLOptions:
    """How an RL step is done where paper, released code and peers differ; defaults: the paper.

    ``D1``..``D16`` are the rows of ``docs/deviations.md``.
    """

    dual_clip: float | None = parameter(
        None,
        above=1.0,
        maximum=1e9,
        help="ratio above which A < 0 gets no gradient (released: 10), not for CISPO; D1",
    )
    beta_low: float = parameter(1.0, **_BETA, help="GPPO's factor below 1 - eps_low; Eq. 18")
    beta_high: float = parameter(1.0, **_BETA, help="GPPO's factor above 1 + eps_high; Eq. 18")
    normalizer: str = choice(
        "mean over tokens, sequences (Eq. 3) or prompts (Eq. 7), or over sequences of the sum over "
        "tokens, as it is or by the token budget (Dr. GRPO); D7",
        *("token", "sequence", "prompt", "sequence_sum", "budget"),
    )
    group_std: str = choice(
        "deviation in Eq. 4; none: no division (Dr. GRPO); batch: that of all groups; "
        "leave_one_out: RLOO; D6",
        *("population", "unbiased", "none", "batch", "leave_one_out"),
    )
    group_epsilon: float = parameter(0.0, minimum=0.0, help="added to Eq. 4's deviation; D6")
    lm_normalizer: str = choice("positive tokens of Eq. 13; D5", "mini_batch", "micro_batch")
    loss_denominator: str = choice("tokens of Eq. 7's mean; D7", "mini_batch", "micro_batch")
    zero_advantage_filter: str = choice(
        "groups that are dropped; D8", "off", "advantage", "accuracy", default="advantage"
    )
    positives: str = choice("which samples feed the LM loss; D4", "verdict", "reward_is_one")
    drop_truncated: bool = parameter(False, help="drop overlong rows before group statistics; D11")
    think_tags: str = choice(
        "whether a response without both think tags is wrong; D9", "required", "optional"
    )
    answer_form: str = choice(
        "what answers a written number: one that is written too, or all that equals it; D9",
        *("written", "equivalent"),
    )
    truncated: str = choice(
        "how responses that the token budget ended are judged; D11", "wrong", "as_text"
    )
    reward_function: object = parameter(
        None, check=read_reward, help="FILE.py:FUNCTION that judges and pays answers; own.md"
    )
    format_penalty: float = parameter(0.5, minimum=0.0, help="subtracted for missing tags; D9")
    format_scores: str = choice("how missing think tags are scored; D9", "penalty", "released")
    code_scores: str = choice(
        "scale of the code rewards, p or 2 p - 1; D10", "pass_rate", "released"
    )
    hard_failure: float = parameter(
        -1.0, maximum=0.0, help="hard reward of a program that fails a test; Fig. 3's caption, D10"
    )
    max_tests: int | None = count("tests per code problem, chosen once for its group; D10", None)
    test_timeout_s: float = rate(**_TIMEOUT)
    test_memory_mb: int = count(**_MEMORY)
    temperature: float = rate("of the sampling of rollouts", 1.0, **_COLDEST)
    warmup_steps: int = count("steps of linear learning-rate warm-up", 0, minimum=0)
    warmup_updates: int = count("the same in optimiser updates", 0, minimum=0)
    adam_beta1: float = parameter(0.9, minimum=0.0, maximum=0.9999, help="AdamW's first beta")
    adam_beta2: float = parameter(0.999, minimum=0.0, maximum=0.9999, help="AdamW's second beta")
    weight_decay: float = parameter(0.0, minimum=0.0, help="AdamW's decay")
    max_grad_norm: float = rate("gradient norm that is clipped to", 1.0)
    checkpoint_every: int = count("steps between checkpoints", 5)
    log_ratio_clamp: float | None = rate("clamp of logp - logp_old (verl: 20); D2", None)
    policy_lag: int = count("steps by which the weights that sample are older", 0, minimum=0)
    validation_every: int = count(
        "steps between validations, of which two more follow steps 1 and 2; 0: start and end alone",
        0,
        minimum=0,
    )
    corner_gradients: bool = parameter(
        False, help="measure the gradient of each corner of the clip range"
    )
    logp_old: str = choice(
        "whose old log-probabilities; auto: the trainer's where vLLM samples or in bf16; D14",
        *("auto", "sampler", "trainer"),
    )
    sampler_correction: float | None = parameter(
        None, minimum=1.0, help="cap of the ratio of trainer and sampler that weighs a token; D15"
    )

    def __post_init__(self) -> None:
        require_old_logprobs(self)
        for name in ("format_scores", "code_scores"):
            require(
                not self.format_penalty or getattr(self, name) != "released",
                f"format_penalty must be 0 where {name} is released, whose penalties are fixed, "
                f"got {self.format_penalty:g}: set it to 0",
            )
        require(
            self.code_scores != "released" or self.hard_failure == -1,
            "hard_failure must be -1 where code_scores is released, "
            f"got {self.hard_failure:g}: leave it out",
        )


@dataclass(frozen=True)
class FilterOptions:
    """How the code problems with flawed tests are found: by a teacher's pass rate (5.2.4)."""

    teacher_responses: int = count("teacher's responses per problem", 16, 16, "5.2.4: pass@16")
    teacher_temperature: float = rate("of the teacher's sampling", 1.0, NOT_STATED, **_COLDEST)
    teacher_top_p: float = rate("of the teacher's sampling", 1.0, NOT_STATED, maximum=1.0)
    threshold: float = parameter(
        0.5, minimum=0.0, maximum=1.0, help="pass rate above which a problem is kept", paper=0.5
    )
    keep_equal: bool = parameter(
        False,
        help="keep a pass rate equal to the threshold too",
        paper="> in the text, >= in Fig. 4's caption",
        place="5.2.4, Fig. 4",
    )


@dataclass(frozen=True)
class DataOptions:
    """How data are made, chosen and measured where the paper leaves a choice; defaults: the paper
    where it says."""

    ngram_words: int = count("words that a prompt may not share with a benchmark", 9, 9)
    stop_more_than: int | None = count(
        "n-grams that more items hold remove nothing", None, NOT_STATED
    )
    min_tests: int = count("tests that a code problem must have", 16, 16, minimum=0)
    temperature: float = rate("of teachers and reference", 1.0, NOT_STATED, **_COLDEST)
    top_p: float = rate("of teachers and reference", 1.0, NOT_STATED, maximum=1.0)
    embedding_text: str = choice(
        "what K-center covers", "prompt", "response", "both", paper=NOT_STATED
    )
    embedding_dim: int = count("of the hashed TF-IDF", 256, NOT_STATED)
    embedding_seed: int = count("of its random signs", 0, minimum=0)
    eval_temperature: float = rate("on the benchmarks", 0.6, 0.6, **_COLDEST)
    eval_top_p: float = rate("on them", 0.95, 0.95, maximum=1.0)
    test_timeout_s: float = rate(**_TIMEOUT)
    test_memory_mb: int = count(**_MEMORY)


def check_schedule(
    *, num_problems: int, mini_batch_problems: int, options: dict, eps_high: float
) -> None:
    """Raises ParameterError where the settings of one RL run contradict one another."""
    require(
        mini_batch_problems <= num_problems,
        f"mini_batch_problems {mini_batch_problems} exceeds num_problems {num_problems}: give at "
        "most that",
    )
    dual_clip, least = options.get("dual_clip"), 1 + eps_high
    above = dual_clip is None or dual_clip > least
    require(above, f"dual_clip {dual_clip} must be above 1 + eps_high = {least:g}")
