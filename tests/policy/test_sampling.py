"""The sampling engine draws from the policy, records what it drew, and keeps groups together."""

import copy

import pytest
import torch
from engine_contract import (
    PROBLEMS,
    EngineContract,
    assert_frequencies_match,
    flat,
    full_logprobs,
    next_logits,
)
from engine_contract import how as drawn

from klearlib.errors import KlearError
from klearlib.policy import sampling
from klearlib.policy.compute import local_compute
from klearlib.policy.drawing import choose, cut
from klearlib.policy.engines import TransformersEngine
from klearlib.policy.sampling import _decode, sample_groups


@pytest.fixture(scope="module")
def ending_policy(tiny_policy):
    """A policy that ends often: every seventh word is an end token."""
    policy = copy.deepcopy(tiny_policy)
    policy.generation_config.eos_token_id = list(range(0, policy.config.vocab_size, 7))
    return policy


@pytest.fixture
def sample(tiny_tokenizer):
    """A function that samples groups: `how` has settings, and batch_rows, problems, tokenizer."""

    def groups(policy, group_size, **how):
        problems, tokenizer = how.pop("problems", PROBLEMS), how.pop("tokenizer", tiny_tokenizer)
        rows = {"batch_rows": how.pop("batch_rows")} if "batch_rows" in how else {}
        how = {"group_size": group_size, "settings": drawn(**how)}
        return sample_groups(policy, tokenizer, problems, **how, **rows)

    return groups


class TestTransformers(EngineContract):
    @pytest.fixture
    def policy(self, ending_policy):
        return ending_policy

    @pytest.fixture
    def engine(self, policy, tiny_tokenizer):
        return TransformersEngine(policy, tiny_tokenizer, local_compute(batch_rows=8))


@pytest.mark.parametrize(
    "how", [{"top_p": 0.9, "top_k": 20}, *({"batch_rows": rows} for rows in (1, 4, 9))]
)
def test_cuts_and_batches_change_no_recorded_log_probability(ending_policy, sample, how):
    groups = sample(ending_policy, 4, temperature=1.7, **how)
    lengths = {len(response.token_ids) for response in flat(groups)}
    assert len(lengths) > 3, "the test needs responses that leave the batch at different times"
    for response in flat(groups):
        assert response.logp == full_logprobs(ending_policy, response, 1.7)


@pytest.mark.parametrize("batch_rows", [8, 1024])
def test_responses_are_counted_as_they_end(ending_policy, tiny_tokenizer, batch_rows):
    how = {"group_size": 8, "settings": drawn(max_tokens=7), "batch_rows": batch_rows}
    given, told = (ending_policy, tiny_tokenizer, PROBLEMS), []
    groups = sample_groups(*given, **how, on_sampled=lambda *count: told.append(count))
    assert groups == sample_groups(*given, **how)
    counts, totals = zip(*told, strict=True)
    assert set(totals) == {8 * len(PROBLEMS)} and list(counts) == sorted(counts)
    assert counts[-1] == totals[0] and len(set(counts)) > 2


@pytest.mark.parametrize("batch_rows", [1, 3, 8])
def test_no_more_rows_than_asked_for_are_decoded_together(
    ending_policy, sample, monkeypatch, batch_rows
):
    decoded = []

    def decode(decoder, ids, mask, group_size, *rest):
        decoded.append(len(ids) * group_size)
        return _decode(decoder, ids, mask, group_size, *rest)

    monkeypatch.setattr(sampling, "_decode", decode)
    groups = sample(ending_policy, 8, batch_rows=batch_rows)
    assert max(decoded) <= batch_rows and sum(decoded) == 8 * len(PROBLEMS)
    assert [len(group) for group in groups] == [8] * len(PROBLEMS)
    assert len({response.token_ids for response in groups[0]}) > 1  # draws go on, not anew


# Binary fractions, so that every sum is exact; the order of the words is not that of size.
HAND = torch.tensor([[0.125, 0.5, 0.125 / 2, 0.25, 0.125 / 2]])


@pytest.mark.parametrize(
    ("cuts", "kept"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 3}, [0, 1, 3]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.01}, [1]),
        ({"top_p": 0.5}, [1]),  # the mass before the second word is 0.5, no longer below top_p
        ({"top_p": 0.51}, [1, 3]),
        ({"top_p": 0.75}, [1, 3]),
        ({"top_p": 0.8}, [0, 1, 3]),
        ({"top_p": 0.875}, [0, 1, 3]),
        # Of the 0.75 that top-k left, 0.6 is 0.45: the first word has that mass alone.
        ({"top_k": 2, "top_p": 0.6}, [1]),
        ({"top_k": 2, "top_p": 0.7}, [1, 3]),
        ({"top_k": 3, "top_p": 0.7}, [1, 3]),
    ],
)
def test_cuts_are_exact_on_a_distribution_by_hand(cuts, kept):
    two = torch.cat([HAND, HAND.flip(1)])
    found = cut(two, drawn(**cuts))
    expected = torch.zeros(5)
    expected[kept] = HAND[0, kept]
    assert torch.equal(found, torch.stack([expected, expected.flip(0)]))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "penalty"),
    [
        (1.0, 0, 1.0, 1.0),
        (0.6, 0, 1.0, 1.0),
        (1.5, 12, 1.0, 1.0),
        (1.0, 0, 0.7, 1.0),
        (0.8, 20, 0.9, 1.0),
        (0.7, 0, 1.0, 2.0),
        (0.7, 8, 1.0, 2.0),
    ],
)
def test_frequencies_match_the_probabilities(
    tiny_policy, tiny_tokenizer, temperature, top_k, top_p, penalty
):
    engine = TransformersEngine(tiny_policy, tiny_tokenizer, local_compute())
    how = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    how["repetition_penalty"] = penalty
    assert_frequencies_match(engine, tiny_policy, 6000, **how)


def test_no_word_without_weight_is_ever_chosen():
    weights = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0], [0.0, 0.0, 0.0, 0.0, 1e-30]])
    chosen = choose(weights.repeat(4000, 1), torch.Generator().manual_seed(0)).view(-1, 2)
    assert set(chosen[:, 0].tolist()) == {1, 3} and set(chosen[:, 1].tolist()) == {4}
    assert abs((chosen[:, 0] == 3).double().mean() - 0.75) < 5 * (0.75 * 0.25 / 4000) ** 0.5


@pytest.mark.parametrize(("random", "word"), [(0.0, 3), (1 - 2**-53, 1)])
def test_the_ends_of_the_interval_choose_words_with_weight(monkeypatch, random, word):
    weights = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]])
    drawn = torch.tensor([[random]], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: drawn)
    assert choose(weights, None).tolist() == [[word]]


@pytest.mark.parametrize(("group_size", "how"), [(2, {"problems": []}), (0, {})])
def test_nothing_to_sample_is_refused(tiny_policy, sample, group_size, how):
    with pytest.raises(ValueError, match="need problems and group_size >= 1"):
        sample(tiny_policy, group_size, **how)


def test_a_response_needs_no_more_positions_than_the_model_has(tiny_policy, sample):
    with pytest.raises(ValueError, match="tokens; the model allows 256"):
        sample(tiny_policy, 1, max_tokens=256)


@pytest.mark.parametrize("penalty", [1.0, 1.05, 3.0, 0.5])
def test_greedy_draws_follow_the_penalty_of_prompt_and_response(ending_policy, sample, penalty):
    """Padding is no token of a prompt, and rows that leave the batch take their tokens along."""
    groups = sample(ending_policy, 2, temperature=0.0, repetition_penalty=penalty)
    plain = sample(ending_policy, 2, temperature=0.0)
    tokens, without = ([r.token_ids for r in flat(each)] for each in (groups, plain))
    assert (tokens == without) is (penalty == 1) and tokens[::2] == tokens[1::2]
    assert len(set(map(len, tokens))) > 1
    for response in flat(groups):
        held = response.prompt_ids
        for token in response.token_ids:
            logits = next_logits(ending_policy, held, penalty)
            assert logits[token] > logits.max() - 1e-4
            held += (token,)
        # The recorded log-probability is the policy's own at temperature 1, before the penalty.
        assert response.logp == full_logprobs(ending_policy, response)


def test_a_tokenizer_without_padding_draws_the_same(ending_policy, tiny_tokenizer, sample):
    bare = copy.deepcopy(tiny_tokenizer)
    bare.pad_token = None
    for penalty in (1.0, 1.3):
        how = {"repetition_penalty": penalty, "seed": 2}
        assert sample(ending_policy, 2, tokenizer=bare, **how) == sample(ending_policy, 2, **how)


@pytest.mark.parametrize("cuts", [{}, {"temperature": 0.6, "top_p": 0.95, "top_k": 20}])
def test_logits_that_are_no_numbers_are_an_error_and_no_wrong_response(tiny_policy, sample, cuts):
    damaged = copy.deepcopy(tiny_policy)
    with torch.no_grad():
        damaged.get_output_embeddings().weight[7] = float("nan")
    with pytest.raises(KlearError, match="logits that are not numbers: its weights are damaged"):
        sample(damaged, 2, **cuts)
