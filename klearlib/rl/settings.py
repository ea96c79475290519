"""Every setting of one RL run; the values of the paper and of the peers are in
docs/deviations.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from klearlib.errors import ParameterError

# The paper's evaluation (section 4): temperature 0.6, top_p 0.95.
EVALUATION_TEMPERATURE, EVALUATION_TOP_P = 0.6, 0.95
JUDGED_BY = (
    *("test_timeout_s", "test_memory_mb", "think_tags"),
    *("answer_form", "truncated", "reward_function"),
)
"""Settings by which rollouts and responses to benchmarks are judged alike: keywords of
`klearlib.verify.groups.judge_groups` and of `klearlib.evaluate.harness.evaluate_all`."""


@dataclass(frozen=True)
class RLSettings:
    """What a run of `klearlib.rl.train.train_rl` needs beside its rule and its seed.

    Schedule: `num_steps` rollout batches of `num_problems` problems x `group_size` responses, each
    followed by one optimiser update for every `mini_batch_problems` problems that survive the
    filter. `benchmarks` maps the name of each benchmark to the number of problems that it must
    have, `num_validation` is that of the validation set; those in `deciding` are answered once a
    problem, at the evaluations of the second half. `steps_before` counts the steps of the RL run
    that this one goes on from, whose problems it does not draw again. `code_reward`,
    `code_scores`, `hard_failure`, `max_tests` and the limits of a test are used by code problems
    alone.

    Words and ranges are checked where the values come from, in `klearlib.params`.
    """

    num_steps: int
    num_problems: int
    group_size: int
    mini_batch_problems: int
    learning_rate: float
    alpha: float
    max_new_tokens: int
    eval_every: int
    eval_responses: int
    validation_responses: int
    benchmarks: dict[str, int]
    deciding: dict[str, int | None]
    num_validation: int
    temperature: float
    normalizer: Literal["token", "sequence", "prompt", "sequence_sum", "budget"]
    loss_denominator: Literal["mini_batch", "micro_batch"]
    lm_normalizer: Literal["mini_batch", "micro_batch"]
    group_std: Literal["population", "unbiased", "none", "batch", "leave_one_out"]
    group_epsilon: float
    zero_advantage_filter: Literal["off", "advantage", "accuracy"]
    positives: Literal["verdict", "reward_is_one"]
    drop_truncated: bool
    think_tags: Literal["required", "optional"]
    answer_form: Literal["written", "equivalent"]
    truncated: Literal["wrong", "as_text"]
    reward_function: dict | None
    format_scores: Literal["penalty", "released"]
    format_penalty: float
    code_reward: Literal["soft", "hard"]
    code_scores: Literal["pass_rate", "released"]
    hard_failure: float
    max_tests: int | None
    test_timeout_s: float
    test_memory_mb: int
    logp_old: Literal["sampler", "trainer"]
    sampler_correction: float | None
    log_ratio_clamp: float | None
    warmup_steps: int
    adam_beta1: float
    adam_beta2: float
    weight_decay: float
    max_grad_norm: float
    checkpoint_every: int
    steps_before: int
    policy_lag: int
    warmup_updates: int
    validation_every: int
    corner_gradients: bool


def is_second_half(step: int, num_steps: int) -> bool:
    """Whether a step counts to the second half of a run, over which claims on curves take the
    mean."""
    return 2 * step >= num_steps


def parts_count(options) -> bool:
    """Whether the objective of these `RLSettings` or `klearlib.params.RLOptions` depends on how a
    mini-batch is cut into micro-batches."""
    return "micro_batch" in (options.loss_denominator, options.lm_normalizer)


def require_counted_parts(options, micro_batch_tokens: int) -> None:
    """Raises ParameterError where the memory would choose the parts that the objective counts."""
    if parts_count(options) and not micro_batch_tokens:
        raise ParameterError(
            "loss_denominator and lm_normalizer micro_batch need a fixed micro_batch_tokens, and 0 "
            "chooses by memory: give it a number, or set both to mini_batch"
        )


def require_old_logprobs(options) -> None:
    """Raises ParameterError for `RLSettings` or `klearlib.params.RLOptions` whose old
    log-probabilities are not of the policy that sampled, or a correction with nothing to
    compare."""
    if options.sampler_correction is not None and options.logp_old != "trainer":
        raise ParameterError(
            "sampler_correction compares the trainer's log-probabilities with the sampler's: "
            "set logp_old: trainer too"
        )
    if options.policy_lag and options.logp_old == "trainer":
        raise ParameterError(
            "logp_old: trainer uses the current weights, which do not sample with policy_lag: "
            "set logp_old: sampler, or policy_lag: 0"
        )
