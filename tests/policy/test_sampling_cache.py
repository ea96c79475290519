"""The cache of a loop of sampling changes no token and no probability, whoever computes it."""

import pytest
import torch
from engine_contract import chi_square
from small_models import small_gpt2, small_model

from klearlib.policy import sampling
from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem

EQUAL = ["1+2", "3+4", "5-6"]
UNEQUAL = ["what is 12345 + 6789?", "2+2", "?"]


def sample(policy, tokenizer, prompts, group_size=1, **changes):
    """Responses of all groups, one after the other."""
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 40, "seed": 0}
    problems = [Problem(id=str(i), prompt=prompt, answer="1") for i, prompt in enumerate(prompts)]
    how = {"settings": SamplingSettings(**plain | changes), "batch_rows": 4000}
    groups = sample_groups(policy, tokenizer, problems, group_size=group_size, **how)
    return [response for group in groups for response in group]


def new_qwen(tokenizer, *, window: int | None = None, attention="sdpa"):
    sliding = {} if window is None else {"sliding_window": window, "use_sliding_window": True}
    model = small_model(
        seed=1,
        vocab_size=len(tokenizer),
        hidden_size=16,
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=128,
        initializer_range=0.4,
        layer_types=["full_attention", "sliding_attention" if window else "full_attention"],
        bos_token_id=None,
        eos_token_id=list(range(0, len(tokenizer), 23)),
        pad_token_id=tokenizer.pad_token_id,
        **sliding,
    )
    model.set_attn_implementation(attention)
    return model


def new_gpt2(tokenizer):
    shape = {"n_positions": 128, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.4}
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    return small_gpt2(vocab_size=len(tokenizer), **shape, **ends)


MODELS = {
    "eager": {"attention": "eager"},
    "grouped heads": {},
    "sliding window": {"window": 9},
    "gpt2": None,
}


@pytest.fixture(scope="module", params=MODELS)
def policy(request, tiny_tokenizer):
    how = MODELS[request.param]
    return new_gpt2(tiny_tokenizer) if how is None else new_qwen(tiny_tokenizer, **how)


@torch.no_grad()
def logprobs(policy, ids) -> torch.Tensor:
    """[T, V] of the next token after each of one row's, without any cache."""
    logits = policy(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), dim=-1)


@pytest.mark.parametrize("prompts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_token_is_that_of_a_loop_without_cache(policy, tiny_tokenizer, prompts, temperature):
    """Before and after rows have left."""
    how = {"group_size": 4, "temperature": temperature, "seed": 4}
    responses = sample(policy, tiny_tokenizer, prompts, **how)
    lengths = {len(response.token_ids) for response in responses}
    assert len(lengths) > 2 or temperature == 0 or isinstance(policy.config.eos_token_id, int)
    for response in responses:
        ids = response.prompt_ids + response.token_ids
        expected = logprobs(policy, ids)[len(response.prompt_ids) - 1 : -1]
        chosen = expected.gather(1, torch.tensor(response.token_ids)[:, None]).squeeze(1)
        assert response.logp == pytest.approx(chosen.tolist(), abs=1e-5)
        if temperature == 0:
            assert response.token_ids == tuple(expected.argmax(dim=1).tolist())


def test_when_rows_leave_changes_no_greedy_response(tiny_tokenizer, monkeypatch):
    policy, found = new_qwen(tiny_tokenizer), []
    for share in (1.0, 0.75, 0.0):  # at once, usually, never
        monkeypatch.setattr(sampling, "_LEAVING", share)
        how = {"temperature": 0.0, "repetition_penalty": 1.5}
        responses = sample(policy, tiny_tokenizer, UNEQUAL + EQUAL, **how)
        found.append([(r.token_ids, r.truncated) for r in responses])
    assert found[0] == found[1] == found[2]
    assert len({len(ids) for ids, _ in found[0]}) > 2


@pytest.mark.parametrize("share", [pytest.param(1.0, marks=pytest.mark.slow), 0.75, 0.0])
def test_when_rows_leave_changes_no_distribution(tiny_tokenizer, monkeypatch, share):
    """Pairs of words, and the ends after one, against the chain of probabilities."""
    monkeypatch.setattr(sampling, "_LEAVING", share)
    policy, num_draws = new_qwen(tiny_tokenizer), 4000
    responses = sample(policy, tiny_tokenizer, ["1"], num_draws, max_tokens=2, top_k=6, seed=7)
    ends = {*policy.generation_config.eos_token_id, tiny_tokenizer.eos_token_id}
    prompt = list(responses[0].prompt_ids)
    expected = {}
    for first, p in top(logprobs(policy, prompt)[-1]).items():
        if first in ends:
            expected[(first,)] = num_draws * p
            continue
        for second, q in top(logprobs(policy, [*prompt, first])[-1]).items():
            expected[(first, second)] = num_draws * p * q
    counts = dict.fromkeys(expected, 0)
    for response in responses:
        counts[response.token_ids] += 1
    found = torch.tensor([[counts[ids], e] for ids, e in expected.items()]).double()
    apart, freedom = chi_square(*found.T)
    assert freedom >= 8 and apart < freedom + 5 * (2 * freedom) ** 0.5


def top(logp: torch.Tensor, k: int = 6) -> dict[int, float]:
    kept = logp.exp().topk(k)
    share = kept.values / kept.values.sum()
    return dict(zip(kept.indices.tolist(), share.tolist(), strict=True))
