"""vLLM draws from the same policy as the transformers engine, and says the same about it."""

import math
from contextlib import closing
from pathlib import Path

import pytest
from engine_contract import (
    LOGP_TOLERANCE,
    PROBLEMS,
    EngineContract,
    assert_frequencies_match,
    flat,
    full_logprobs,
    how,
)

from klearlib.policy.compute import local_compute
from klearlib.policy.load import load_policy
from klearlib.policy.sampling import sample_groups
from klearlib.policy.vllm_engine import VLLMEngine
from klearlib.records import Problem


class TestVLLM(EngineContract):
    pass


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.6, 0, 1.0), (0.8, 20, 0.9)]
)
def test_frequencies_match_the_probabilities(engine, policy, temperature, top_k, top_p):
    """The seeds of a group are independent, and the cuts are those of the transformers engine."""
    how = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    assert_frequencies_match(engine, policy, 2000, **how)


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


@pytest.mark.parametrize("change", [{"top_p": 0.9}, {"top_k": 5}, {"repetition_penalty": 1.2}])
def test_where_the_distribution_is_cut_there_is_no_log_probability(engine, change):
    for response in flat(engine.sample_groups(PROBLEMS, group_size=2, settings=how(**change))):
        assert len(response.logp) == len(response.token_ids)
        assert all(math.isnan(value) for value in response.logp)


def test_one_seed_for_a_whole_call_as_on_a_gpu(engine, monkeypatch):
    monkeypatch.setattr(engine, "_seeds_calls", True)
    first, second, other = (
        engine.sample_groups(PROBLEMS, group_size=8, settings=how(seed=seed)) for seed in (3, 3, 4)
    )
    assert first == second != other
    texts = [response.text for response in flat(first)]
    assert len({*texts}) > len(texts) / 2


MODEL = Path(__file__).parents[2] / "models" / "SmolLM2-135M-Instruct"
QUESTIONS = [Problem(f"q{n}", f"What is {n} + {n + 3}?", str(2 * n + 3)) for n in range(2, 6)]


@pytest.mark.skipif(not MODEL.exists(), reason=f"no {MODEL}: make smollm2")
def test_smollm2_answers_as_through_transformers():
    model, tokenizer = load_policy(MODEL)
    compute = local_compute(engine="vllm", batch_rows=16)
    greedy, free = how(temperature=0.0, max_tokens=24), how(max_tokens=24)
    with closing(VLLMEngine(MODEL, compute=compute, model=model, tokenizer=tokenizer)) as engine:
        found = flat(engine.sample_groups(QUESTIONS, group_size=1, settings=greedy))
        drawn = flat(engine.sample_groups(QUESTIONS, group_size=4, settings=free))
    expected = flat(sample_groups(model, tokenizer, QUESTIONS, group_size=1, settings=greedy))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.prompt, ours.token_ids) == (theirs.prompt, theirs.token_ids)
    assert len({response.token_ids for response in drawn}) > 8
    for response in (*found, *drawn):
        assert response.logp == full_logprobs(model, response)
