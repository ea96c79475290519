"""vLLM draws from the same policy as the transformers engine, and says the same about it."""

import math

import pytest
import torch
from drawing import LOGP_TOLERANCE, full_logprobs, how
from drawn import (
    PROBLEMS,
    assert_drawn_from,
    assert_end_tokens_end_and_the_budget_truncates,
    flat,
)

from klearlib.policy.drawing import cut
from klearlib.policy.load import chat_prompt
from klearlib.policy.sampling import sample_groups


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_greedy_is_that_of_transformers(engine, policy, tiny_tokenizer, penalty):
    settings = how(temperature=0.0, max_tokens=20, repetition_penalty=penalty)
    found = flat(engine.sample_groups(PROBLEMS, group_size=2, settings=settings))
    expected = flat(
        sample_groups(policy, tiny_tokenizer, PROBLEMS, group_size=2, settings=settings)
    )
    assert len({len(response.token_ids) for response in expected}) > 2
    assert {response.truncated for response in expected} == {True, False}
    for ours, theirs in zip(found, expected, strict=True):
        for name in ("problem_id", "prompt", "prompt_ids", "token_ids", "text", "truncated"):
            assert getattr(ours, name) == getattr(theirs, name)
        if penalty == 1.0:
            assert ours.logp == pytest.approx(theirs.logp, abs=LOGP_TOLERANCE)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_recorded_log_probabilities_are_the_trainers(engine, policy, temperature):
    settings = how(temperature=temperature, max_tokens=30)
    responses = flat(engine.sample_groups(PROBLEMS, group_size=6, settings=settings))
    assert len({len(response.token_ids) for response in responses}) > 5
    for response in responses:
        expected = full_logprobs(policy, response, temperature)
        assert response.logp == pytest.approx(expected, abs=LOGP_TOLERANCE)


@pytest.mark.parametrize("change", [{"top_p": 0.9}, {"top_k": 5}, {"repetition_penalty": 1.2}])
def test_where_the_distribution_is_cut_there_is_no_log_probability(engine, change):
    for response in flat(engine.sample_groups(PROBLEMS, group_size=2, settings=how(**change))):
        assert len(response.logp) == len(response.token_ids)
        assert all(math.isnan(value) for value in response.logp)


def test_end_tokens_end_and_the_budget_truncates(engine, policy, tiny_tokenizer):
    ends = {*policy.generation_config.eos_token_id, tiny_tokenizer.eos_token_id}
    responses = flat(engine.sample_groups(PROBLEMS, group_size=24, settings=how(max_tokens=7)))
    assert_end_tokens_end_and_the_budget_truncates(responses, ends, 7)
    for response in responses:
        decoded = tiny_tokenizer.decode(response.token_ids, skip_special_tokens=True)
        assert response.text == decoded
    # An end token that is the last the budget allows is an end, not a cut.
    assert any(len(r.token_ids) == 7 and not r.truncated for r in responses)


def test_groups_are_whole_and_in_the_order_of_the_problems(engine, tiny_tokenizer):
    """More responses than `batch_rows`, so that some wait for others to end."""
    groups = engine.sample_groups(PROBLEMS, group_size=30, settings=how())
    assert [len(group) for group in groups] == [30] * len(PROBLEMS)
    for problem, group in zip(PROBLEMS, groups, strict=True):
        text, ids = chat_prompt(tiny_tokenizer, problem.prompt)
        assert {(r.problem_id, r.prompt, r.prompt_ids) for r in group} == {
            (problem.id, text, tuple(ids))
        }
        assert len({response.token_ids for response in group}) > 25


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.6, 0, 1.0), (0.8, 20, 0.9)]
)
def test_frequencies_match_the_probabilities(engine, policy, temperature, top_k, top_p):
    """The seeds of a group are independent, and the cuts are those of the transformers engine."""
    num_draws = 2000
    settings = how(max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p, seed=11)
    ((*responses,),) = engine.sample_groups(PROBLEMS[:1], group_size=num_draws, settings=settings)
    with torch.no_grad():
        ids = torch.tensor([responses[0].prompt_ids])
        logits = policy(input_ids=ids).logits[:, -1].double() / temperature
    kept = cut(torch.softmax(logits, -1), settings)[0]
    expected = num_draws * kept / kept.sum()
    drawn = torch.tensor([response.token_ids[0] for response in responses])
    counts = torch.bincount(drawn, minlength=len(expected))
    assert_drawn_from(counts, expected)


def test_same_seed_same_responses_whatever_came_before(engine):
    first = engine.sample_groups(PROBLEMS, group_size=4, settings=how(seed=5))
    other = engine.sample_groups(PROBLEMS[1:], group_size=3, settings=how(seed=6, temperature=0.7))
    assert engine.sample_groups(PROBLEMS, group_size=4, settings=how(seed=5)) == first
    assert engine.sample_groups(PROBLEMS, group_size=4, settings=how(seed=6)) != first
    assert other[0] != first[1][:3]


def test_one_seed_for_a_whole_call_as_on_a_gpu(engine, monkeypatch):
    monkeypatch.setattr(engine, "_seeds_calls", True)
    first, second, other = (
        engine.sample_groups(PROBLEMS, group_size=8, settings=how(seed=seed)) for seed in (3, 3, 4)
    )
    assert first == second != other
    texts = [response.text for response in flat(first)]
    assert len({*texts}) > len(texts) / 2
