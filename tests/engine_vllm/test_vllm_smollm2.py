"""A real language model through the real engine, where `make smollm2` has put it."""

from contextlib import closing
from pathlib import Path

import pytest
from engine_contract import flat, full_logprobs, how

from klearlib.policy.compute import local_compute
from klearlib.policy.load import load_policy
from klearlib.policy.sampling import sample_groups
from klearlib.policy.vllm_engine import VLLMEngine
from klearlib.records import Problem

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
