"""The sampling engine draws from the policy, records what it drew, and keeps groups together."""

import copy

import pytest
import torch
from drawn import (
    PROBLEMS,
    assert_drawn_from,
    assert_end_tokens_end_and_the_budget_truncates,
    chi_square,
    flat,
)
from small_models import response_logprobs

from klearlib.errors import KlearError
from klearlib.policy import sampling
from klearlib.policy.drawing import SamplingSettings, choose, cut
from klearlib.policy.load import chat_prompt
from klearlib.policy.sampling import _decode, sample_groups

PLAIN = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 12, "seed": 0}


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
        settings = SamplingSettings(**PLAIN | how)
        how = {"group_size": group_size, "settings": settings}
        return sample_groups(policy, tokenizer, problems, **how, **rows)

    return groups


def full_logprobs(policy, response, temperature: float = 1.0):
    return pytest.approx(response_logprobs(policy, response, temperature).tolist(), abs=1e-4)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 20},
        *({"temperature": 1.7, "batch_rows": rows} for rows in (1, 4, 8, 9)),
    ],
)
def test_recorded_log_probabilities_are_the_trainers(ending_policy, sample, how):
    groups = sample(ending_policy, 4, **how)
    assert [len(group) for group in groups] == [4] * len(PROBLEMS)
    lengths = {len(response.token_ids) for response in flat(groups)}
    assert len(lengths) > 3, "the test needs responses that leave the batch at different times"
    for response in flat(groups):
        assert response.logp == full_logprobs(ending_policy, response, how.get("temperature", 1.0))


def test_groups_are_in_the_order_of_the_problems(tiny_policy, tiny_tokenizer, sample):
    groups = sample(tiny_policy, 3)
    for problem, group in zip(PROBLEMS, groups, strict=True):
        text, ids = chat_prompt(tiny_tokenizer, problem.prompt)
        assert problem.prompt in text
        expected = {(problem.id, tuple(ids), text)}
        assert {(r.problem_id, r.prompt_ids, r.prompt) for r in group} == expected
        assert len({r.token_ids for r in group}) == 3, "different draws"
    for response in flat(groups):
        assert len(response.logp) == len(response.token_ids)
        decoded = tiny_tokenizer.decode(response.token_ids, skip_special_tokens=True)
        assert response.text == decoded


def test_end_tokens_end_and_the_budget_truncates(ending_policy, tiny_tokenizer, sample):
    ends = {*ending_policy.generation_config.eos_token_id, tiny_tokenizer.eos_token_id}
    responses = flat(sample(ending_policy, 8, max_tokens=7))
    assert_end_tokens_end_and_the_budget_truncates(responses, ends, 7)
    # An end token that is the last the budget allows is an end, not a cut.
    assert any(len(r.token_ids) == 7 and not r.truncated for r in responses)


@pytest.mark.parametrize("batch_rows", [8, 1024])
def test_responses_are_counted_as_they_end(ending_policy, tiny_tokenizer, batch_rows):
    settings = SamplingSettings(**PLAIN | {"max_tokens": 7})
    how = {"group_size": 8, "settings": settings, "batch_rows": batch_rows}
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
    found = cut(two, SamplingSettings(**PLAIN | cuts))
    expected = torch.zeros(5)
    expected[kept] = HAND[0, kept]
    assert torch.equal(found, torch.stack([expected, expected.flip(0)]))


def next_logits(policy, held: tuple[int, ...], penalty: float = 1.0) -> torch.Tensor:
    """The logits of the next word, in double precision, one word at a time."""
    with torch.no_grad():
        logits = policy(input_ids=torch.tensor([held])).logits[0, -1].double()
    for word in set(held):
        logits[word] = logits[word] / penalty if logits[word] > 0 else logits[word] * penalty
    return logits


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
    tiny_policy, sample, temperature, top_k, top_p, penalty
):
    """The penalty comes before temperature and cuts."""
    num_draws, how = 6000, {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    how |= {"repetition_penalty": penalty, "max_tokens": 1, "problems": PROBLEMS[:1], "seed": 11}
    ((*responses,),) = sample(tiny_policy, num_draws, **how)

    def expected_with(penalty: float) -> torch.Tensor:
        logits = next_logits(tiny_policy, responses[0].prompt_ids, penalty) / temperature
        ordered = sorted(enumerate(torch.softmax(logits, -1).tolist()), key=lambda pair: -pair[1])
        ordered = ordered[:top_k] if top_k else ordered
        mass, kept = sum(p for _, p in ordered), torch.zeros(len(logits)).double()
        for word, p in ordered:
            if kept.sum() >= top_p * mass:
                break
            kept[word] = p
        return num_draws * kept / kept.sum()

    expected = expected_with(penalty)
    words = torch.tensor([response.token_ids[0] for response in responses])
    counts = torch.bincount(words, minlength=len(expected))
    assert_drawn_from(counts, expected)
    if penalty != 1:  # the test can tell
        apart, freedom = chi_square(counts, expected_with(1.0))
        assert apart > 10 * freedom


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


def test_same_seed_same_responses(ending_policy, sample):
    first = sample(ending_policy, 3, seed=5)
    torch.manual_seed(77)  # the global generator has no part in it
    assert sample(ending_policy, 3, seed=5) == first
    assert sample(ending_policy, 3, seed=6) != first


@pytest.mark.parametrize(("group_size", "how"), [(2, {"problems": []}), (0, {})])
def test_nothing_to_sample_is_refused(tiny_policy, sample, group_size, how):
    with pytest.raises(ValueError, match="need problems and group_size >= 1"):
        sample(tiny_policy, group_size, **how)


def test_a_response_needs_no_more_positions_than_the_model_has(tiny_policy, sample):
    with pytest.raises(ValueError, match="positions, the model has 256"):
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
