"""Settings of an RL run: what is out of range or unknown is refused by its name."""

import pytest
from rollout_fakes import SETTINGS, settings

from klearlib.params import RLOptions
from klearlib.rl.settings import RLSettings, require_counted_parts

POSITIVE_COUNTS = [
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
]


@pytest.mark.parametrize("name", POSITIVE_COUNTS)
def test_counts_start_at_one(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        settings(**{name: 0})


def test_group_of_one_is_refused():
    with pytest.raises(ValueError, match="group_size must be at least 2"):
        settings(group_size=1)


def test_mini_batch_larger_than_the_batch_is_refused():
    assert settings(num_problems=6, mini_batch_problems=6)
    with pytest.raises(ValueError, match="mini_batch_problems"):
        settings(num_problems=6, mini_batch_problems=7)


@pytest.mark.parametrize("value", [0.0, -1e-3, float("nan")])
@pytest.mark.parametrize(
    "name", ["learning_rate", "temperature", "max_grad_norm", "test_timeout_s"]
)
def test_positive_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        settings(**{name: value})


@pytest.mark.parametrize(
    "name", ["alpha", "group_epsilon", "format_penalty", "warmup_steps", "weight_decay"]
)
def test_numbers_that_may_be_zero(name):
    assert settings(**{name: 0})
    with pytest.raises(ValueError, match=f"{name} must be >= 0"):
        settings(**{name: -1})


@pytest.mark.parametrize(
    "name",
    [
        "normalizer",
        "loss_denominator",
        "lm_normalizer",
        "group_std",
        "zero_advantage_filter",
        "positives",
        "format_scores",
        "code_reward",
        "code_scores",
        "logp_old",
    ],
)
def test_unknown_words_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be one of .* got 'typo'"):
        settings(**{name: "typo"})


@pytest.mark.parametrize("value", [0.0, -20.0, float("nan")])
def test_log_ratio_clamp_is_none_or_positive(value):
    assert settings(log_ratio_clamp=None) and settings(log_ratio_clamp=20.0)
    with pytest.raises(ValueError, match="log_ratio_clamp must be positive"):
        settings(log_ratio_clamp=value)


@pytest.mark.parametrize("name", ["adam_beta1", "adam_beta2"])
@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_betas_are_below_one(name, value):
    assert settings(**{name: 0.0})
    with pytest.raises(ValueError, match=f"{name} must be at least 0 and below 1"):
        settings(**{name: value})


@pytest.mark.parametrize("value", [0.99, 0.0, -2.0, float("nan"), float("inf")])
def test_cap_of_the_correction_is_at_least_one(value):
    assert settings(sampler_correction=1.0, logp_old="trainer")
    with pytest.raises(ValueError, match="sampler_correction must be at least 1"):
        settings(sampler_correction=value, logp_old="trainer")


def test_correction_needs_the_trainers_log_probabilities():
    with pytest.raises(ValueError, match="set logp_old: trainer too"):
        settings(sampler_correction=2.0)
    with pytest.raises(ValueError, match="set logp_old: trainer too"):
        RLOptions(sampler_correction=2.0)
    assert RLOptions(sampler_correction=2.0, logp_old="trainer")


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
