"""Settings of an RL run: what is unknown or contradicts itself is refused by its name."""

import dataclasses
import inspect
import typing

import pytest
from rollout_fakes import SETTINGS, settings

from klearlib.evaluate.harness import evaluate_all
from klearlib.params import RLOptions
from klearlib.rl.schedule import judging
from klearlib.rl.settings import JUDGED_BY, RLSettings, require_counted_parts
from klearlib.verify.answers import ANSWER_FORMS
from klearlib.verify.groups import CODE_REWARDS, judge_groups, judge_responses

KINDS = typing.get_type_hints(RLSettings).items()
WORDS = {n: typing.get_args(kind) for n, kind in KINDS if typing.get_origin(kind) is typing.Literal}


def test_a_correction_needs_the_trainers_log_probabilities_and_a_lag_the_samplers():
    with pytest.raises(ValueError, match="set logp_old: trainer too"):
        RLOptions(sampler_correction=2.0)
    assert RLOptions(sampler_correction=1.0, logp_old="trainer")
    with pytest.raises(ValueError, match="set logp_old: sampler, or policy_lag: 0"):
        RLOptions(policy_lag=2, logp_old="trainer")


@pytest.mark.parametrize("name", ["loss_denominator", "lm_normalizer"])
def test_parts_that_the_objective_counts_are_not_left_to_the_memory(name):
    for make in (settings, RLOptions):
        require_counted_parts(make(), 0)
        require_counted_parts(make(**{name: "micro_batch"}), 1)
        with pytest.raises(ValueError, match="0 chooses by memory: give it a number"):
            require_counted_parts(make(**{name: "micro_batch"}), 0)


def test_two_guards_of_options_and_settings_do_not_drift_apart():
    fields = dataclasses.fields(RLOptions)
    choices = {x.name: tuple(x.metadata["choices"]) for x in fields if x.metadata.get("choices")}
    choices["logp_old"] = choices["logp_old"][1:]  # auto is one of the others by then
    assert choices | {"code_reward": tuple(CODE_REWARDS)} == WORDS
    rules = {"dual_clip", "beta_low", "beta_high"}
    assert {field.name for field in fields} - SETTINGS.keys() == rules


def test_rollouts_and_benchmarks_are_judged_by_one_rule():
    """What the judge takes, RL hands on; what benchmarks are judged by is judged alike."""
    of_judges = {*inspect.signature(judge_responses).parameters} - {"require_think"}
    taken = {*inspect.signature(judge_groups).parameters, *of_judges}
    taken -= {"problems", "responses", "judging"}
    assert set(judging(settings(), seed=0)) == taken
    of_a_text = {*of_judges, "think_tags"} & taken
    assert set(JUDGED_BY) == of_a_text - {"max_tests", "tests_seed"}  # all tests on benchmarks
    assert {*JUDGED_BY} < {*inspect.signature(evaluate_all).parameters}
    assert WORDS["answer_form"] == ANSWER_FORMS
    chosen = judging(settings(answer_form="equivalent", truncated="as_text"), seed=0)
    assert (chosen["answer_form"], chosen["truncated"]) == ("equivalent", "as_text")
