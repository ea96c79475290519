"""The cache of a loop of sampling changes no token and no probability, whoever computes it."""

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from klearlib.policy import sampling
from klearlib.policy.drawing import SamplingSettings, choose
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem

EQUAL = ["1+2", "3+4", "5-6"]
UNEQUAL = ["what is 12345 + 6789?", "2+2", "?"]


def problems(prompts):
    return [Problem(id=str(i), prompt=prompt, answer="1") for i, prompt in enumerate(prompts)]


def how(**changes) -> SamplingSettings:
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 40, "seed": 0}
    return SamplingSettings(**plain | changes)


def new_qwen(tokenizer, *, kv_heads: int = 1, window: int | None = None) -> Qwen3ForCausalLM:
    torch.manual_seed(1)
    sliding = {} if window is None else {"sliding_window": window, "use_sliding_window": True}
    kinds = ["full_attention", "full_attention" if window is None else "sliding_attention"]
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=128,
        initializer_range=0.4,
        layer_types=kinds,
        bos_token_id=None,
        eos_token_id=list(range(0, len(tokenizer), 23)),
        pad_token_id=tokenizer.pad_token_id,
        **sliding,
    )
    return Qwen3ForCausalLM(config).eval()


def eager(policy):
    policy.set_attn_implementation("eager")
    return policy


def new_gpt2(tokenizer) -> GPT2LMHeadModel:
    """No rotary positions, no grouped heads."""
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=128,
        n_embd=16,
        n_layer=2,
        n_head=2,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return GPT2LMHeadModel(config).eval()


MODELS = {
    "eager": lambda tokenizer: eager(new_qwen(tokenizer, kv_heads=2)),
    "grouped heads": lambda tokenizer: new_qwen(tokenizer, kv_heads=2),
    "one key head": lambda tokenizer: new_qwen(tokenizer, kv_heads=1),
    "no groups": lambda tokenizer: new_qwen(tokenizer, kv_heads=4),
    "sliding window": lambda tokenizer: new_qwen(tokenizer, kv_heads=2, window=9),
    "gpt2": new_gpt2,
}


@pytest.fixture(scope="module", params=MODELS)
def policy(request, tiny_tokenizer):
    return MODELS[request.param](tiny_tokenizer)


@torch.no_grad()
def logprobs(policy, ids) -> torch.Tensor:
    """[T, V] of the next token after each of one row's, without any cache."""
    logits = policy(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), dim=-1)


def check_logprobs(policy, response) -> torch.Tensor:
    """The response's recorded log-probabilities are those without a cache; [T, V] of them."""
    ids = response.prompt_ids + response.token_ids
    expected = logprobs(policy, ids)[len(response.prompt_ids) - 1 : -1]
    chosen = expected.gather(1, torch.tensor(response.token_ids)[:, None]).squeeze(1)
    assert response.logp == pytest.approx(chosen.tolist(), abs=1e-5)
    return expected


@pytest.mark.parametrize("prompts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_greedy_is_that_of_a_loop_without_cache(policy, tiny_tokenizer, prompts):
    groups = sample_groups(
        policy, tiny_tokenizer, problems(prompts), group_size=2, settings=how(temperature=0.0)
    )
    for response in (r for group in groups for r in group):
        expected = check_logprobs(policy, response)
        assert response.token_ids == tuple(expected.argmax(dim=1).tolist())


@pytest.mark.parametrize("prompts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_rows_that_end_leave_the_others_as_they_are(tiny_tokenizer, attention, prompts):
    """Every recorded log-probability, before and after rows have left, is the uncached one."""
    policy = new_qwen(tiny_tokenizer, kv_heads=2)
    policy.set_attn_implementation(attention)
    groups = sample_groups(
        policy, tiny_tokenizer, problems(prompts), group_size=8, settings=how(seed=4)
    )
    lengths = sorted(len(r.token_ids) for group in groups for r in group)
    assert lengths[0] < lengths[len(lengths) // 2] < lengths[-1]
    for response in (r for group in groups for r in group):
        check_logprobs(policy, response)


def test_when_rows_leave_changes_no_greedy_response(tiny_tokenizer, monkeypatch):
    policy = new_qwen(tiny_tokenizer, kv_heads=2)
    found = []
    for share in (1.0, 0.75, 0.0):  # at once, usually, never
        monkeypatch.setattr(sampling, "_LEAVING", share)
        groups = sample_groups(
            policy,
            tiny_tokenizer,
            problems(UNEQUAL + EQUAL),
            group_size=1,
            settings=how(temperature=0.0, repetition_penalty=1.5),
        )
        found.append([(r.token_ids, r.truncated) for group in groups for r in group])
    assert found[0] == found[1] == found[2]
    assert len({len(ids) for ids, _ in found[0]}) > 2


@pytest.mark.parametrize("share", [1.0, 0.75, 0.0])
def test_when_rows_leave_changes_no_distribution(tiny_tokenizer, monkeypatch, share):
    """Pairs of words, and the ends after one, against the chain of probabilities."""
    monkeypatch.setattr(sampling, "_LEAVING", share)
    policy = new_qwen(tiny_tokenizer, kv_heads=2)
    num_draws = 4000
    ((*responses,),) = sample_groups(
        policy,
        tiny_tokenizer,
        problems(["1"]),
        group_size=num_draws,
        settings=how(max_tokens=2, top_k=6, seed=7),
        batch_rows=num_draws,
    )
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
    bins = [(counts[ids], e) for ids, e in expected.items() if e >= 5]
    chi_square = sum((count - e) ** 2 / e for count, e in bins)
    freedom = len(bins)
    assert freedom >= 8 and chi_square < freedom + 5 * (2 * freedom) ** 0.5


def top(logp: torch.Tensor, k: int = 6) -> dict[int, float]:
    kept = logp.exp().topk(k)
    share = kept.values / kept.values.sum()
    return dict(zip(kept.indices.tolist(), share.tolist(), strict=True))


def test_no_word_without_weight_is_ever_chosen():
    weights = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0], [0.0, 0.0, 0.0, 0.0, 1e-30]])
    draws = torch.Generator().manual_seed(0)
    chosen = torch.stack([choose(weights, draws).squeeze(1) for _ in range(4000)])
    assert set(chosen[:, 0].tolist()) == {1, 3} and set(chosen[:, 1].tolist()) == {4}
    assert abs((chosen[:, 0] == 3).double().mean() - 0.75) < 5 * (0.75 * 0.25 / 4000) ** 0.5


@pytest.mark.parametrize(("random", "word"), [(0.0, 3), (1 - 2**-53, 1)])
def test_the_ends_of_the_interval_choose_words_with_weight(monkeypatch, random, word):
    weights = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]])
    monkeypatch.setattr(
        torch, "rand", lambda *_, **__: torch.tensor([[random]], dtype=torch.float64)
    )
    assert choose(weights, None).tolist() == [[word]]
