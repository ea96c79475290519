"""The sampler behind the rollouts of these tests: log-probabilities, seeds."""

import pytest
import torch
from cpu_sampling import Request, decode

PROMPTS = [(5, 6, 7), (8, 9, 10, 11, 12, 13), (14,)]
NO_ENDS = frozenset()


def requests(**params):
    params = {"max_tokens": 12, "temperature": 0.7, "top_p": 0.9, "top_k": -1} | params
    return [
        Request.of(prompt, params | {"seed": seed}, model_ends=NO_ENDS)
        for seed, prompt in enumerate(PROMPTS)
    ]


def test_the_log_probabilities_are_those_of_a_forward_pass(tiny_policy):
    for request, sampled in zip(requests(), decode(tiny_policy, requests()), strict=True):
        ids = torch.tensor([[*request.prompt_ids, *sampled.token_ids]])
        with torch.no_grad():
            logits = tiny_policy(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1]
        wanted = (logits / 0.7).log_softmax(-1).gather(1, ids[0, len(request.prompt_ids) :, None])
        assert sampled.logp == pytest.approx(wanted.squeeze(1).tolist(), abs=1e-5)
        assert len(sampled.token_ids) == 12


def test_a_request_draws_the_same_alone_and_among_others(tiny_policy):
    together = decode(tiny_policy, requests())
    alone = [decode(tiny_policy, [request])[0] for request in requests()]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    other = Request.of(PROMPTS[0], {"max_tokens": 12, "seed": 9}, model_ends=NO_ENDS)
    assert decode(tiny_policy, [other])[0].token_ids != alone[0].token_ids
