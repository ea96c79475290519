"""Settings of an RL run: what is out of range or unknown is refused by its name."""

import dataclasses
import itertools

import pytest
from rollout_fakes import SETTINGS, settings

from klearlib.params import RLOptions
from klearlib.rl.settings import _WORDS, RLSettings, require_counted_parts
from klearlib.verify.groups import CODE_REWARDS

NAN = float("nan")
COUNTS = (
    "num_steps",
    "num_problems",
    "mini_batch_problems",
    "max_new_tokens",
    "eval_every",
    "eval_responses",
    "validation_responses",
    "num_validation",
    "checkpoint_every",
    "test_memory_mb",
    "max_tests",
)
POSITIVE = ("learning_rate", "temperature", "max_grad_norm", "test_timeout_s")
FROM_ZERO = ("alpha", "group_epsilon", "format_penalty", "warmup_steps", "weight_decay")
FROM_ZERO += ("steps_before",)
BETAS = ("adam_beta1", "adam_beta2")
# Parameters, values that each of them refuses, and what is said of them.
REFUSED = [
    (COUNTS, [0], "must be at least 1, got 0"),
    (["group_size"], [1], "must be at least 2"),
    (["mini_batch_problems"], [7], ".* must not exceed num_problems"),
    (POSITIVE, [0.0, -1e-3, NAN], "must be positive"),
    (["log_ratio_clamp"], [0.0, -20.0, NAN], "must be positive"),
    (FROM_ZERO, [-1], "must be >= 0"),
    (["hard_failure"], [0.1, NAN, -float("inf")], "must be at most 0"),
    (BETAS, [-0.1, 1.0, NAN], "must be at least 0 and below 1"),
    (_WORDS, ["typo"], "must be one of .* got 'typo'"),
    (["sampler_correction"], [0.99, 0.0, -2.0, NAN, float("inf")], "must be at least 1"),
]
TAKEN = [
    {"mini_batch_problems": 6},
    dict.fromkeys(FROM_ZERO + BETAS, 0),
    {"log_ratio_clamp": 20.0},
    {"sampler_correction": 1.0, "logp_old": "trainer"},
]


@pytest.mark.parametrize(("names", "values", "words"), REFUSED)
def test_what_is_out_of_range_or_unknown_is_refused_by_its_name(names, values, words):
    for name, value in itertools.product(names, values):
        with pytest.raises(ValueError, match=f"{name} {words}"):
            settings(**{"logp_old": "trainer", name: value})


@pytest.mark.parametrize("values", TAKEN)
def test_the_ends_of_the_ranges_are_taken(values):
    assert settings(**values)


@pytest.mark.parametrize("make", [settings, RLOptions])
def test_correction_needs_the_trainers_log_probabilities(make):
    with pytest.raises(ValueError, match="set logp_old: trainer too"):
        make(sampler_correction=2.0)
    assert make(sampler_correction=2.0, logp_old="trainer")


@pytest.mark.parametrize("name", ["loss_denominator", "lm_normalizer"])
def test_parts_that_the_objective_counts_are_not_left_to_the_memory(name):
    for make in (settings, RLOptions):
        require_counted_parts(make(), 0)
        require_counted_parts(make(**{name: "micro_batch"}), 1)
        with pytest.raises(ValueError, match="give it a number, or set both to mini_batch"):
            require_counted_parts(make(**{name: "micro_batch"}), 0)


def test_nothing_has_a_default():
    for name in SETTINGS:
        rest = {key: value for key, value in SETTINGS.items() if key != name}
        with pytest.raises(TypeError, match=name):
            RLSettings(**rest)


def test_two_guards_of_options_and_settings_do_not_drift_apart():
    fields = dataclasses.fields(RLOptions)
    choices = {x.name: tuple(x.metadata["choices"]) for x in fields if x.metadata.get("choices")}
    assert choices | {"code_reward": tuple(CODE_REWARDS)} == _WORDS
    rules = {"dual_clip", "beta_low", "beta_high"}
    assert {field.name for field in fields} - SETTINGS.keys() == rules
