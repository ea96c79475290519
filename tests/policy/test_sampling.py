"""The sampling engine draws from the policy, records what it drew, and keeps groups together."""

import copy

import pytest
import torch

from klearlib.errors import KlearError
from klearlib.policy.drawing import SamplingSettings, cut, penalised
from klearlib.policy.load import chat_prompt
from klearlib.policy.logprobs import token_logprobs
from klearlib.policy.sampling import sample_groups
from klearlib.records import Problem

# Prompts of different length, not sorted by it.
PROMPTS = ["what is 12345 + 6789?", "2+2", "f(0)=1, f(1)=2, f(n)=3f(n-1)+f(n-2).", "?", "1-1"]
PROBLEMS = [Problem(id=f"p{i}", prompt=prompt, answer="1") for i, prompt in enumerate(PROMPTS)]


def how(**changes) -> SamplingSettings:
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 12, "seed": 0}
    return SamplingSettings(**plain | changes)


@pytest.fixture(scope="module")
def ending_policy(tiny_policy):
    """A policy that ends often: every seventh word is an end token."""
    policy = copy.deepcopy(tiny_policy)
    policy.generation_config.eos_token_id = list(range(0, policy.config.vocab_size, 7))
    return policy


@pytest.fixture(scope="module")
def ends(ending_policy, tiny_tokenizer):
    return {*ending_policy.generation_config.eos_token_id, tiny_tokenizer.eos_token_id}


def full_logprobs(policy, response, temperature: float = 1.0) -> list[float]:
    ids = torch.tensor([response.prompt_ids + response.token_ids])
    logp, _ = token_logprobs(policy, ids, chunk_size=1000, temperature=temperature)
    return logp[0, len(response.prompt_ids) - 1 :].tolist()


@pytest.mark.parametrize(
    ("temperature", "cuts", "batch_rows"),
    [(1.0, {}, 1024), (0.6, {}, 1024), (0.8, {"top_p": 0.9, "top_k": 20}, 1024), (1.7, {}, 4)],
)
def test_recorded_log_probabilities_are_the_trainers(
    ending_policy, tiny_tokenizer, temperature, cuts, batch_rows
):
    groups = sample_groups(
        ending_policy,
        tiny_tokenizer,
        PROBLEMS,
        group_size=4,
        settings=how(temperature=temperature, **cuts),
        batch_rows=batch_rows,
    )
    lengths = {len(response.token_ids) for group in groups for response in group}
    assert len(lengths) > 3, "the test needs responses that leave the batch at different times"
    for group in groups:
        for response in group:
            expected = full_logprobs(ending_policy, response, temperature)
            assert response.logp == pytest.approx(expected, abs=1e-4)


def test_groups_are_in_the_order_of_the_problems(tiny_policy, tiny_tokenizer):
    groups = sample_groups(tiny_policy, tiny_tokenizer, PROBLEMS, group_size=3, settings=how())
    assert len(groups) == len(PROBLEMS)
    for problem, group in zip(PROBLEMS, groups, strict=True):
        text, ids = chat_prompt(tiny_tokenizer, problem.prompt)
        assert len(group) == 3 and problem.prompt in text
        assert {r.problem_id for r in group} == {problem.id}
        assert {r.prompt_ids for r in group} == {tuple(ids)} and {r.prompt for r in group} == {text}
        for response in group:
            assert len(response.logp) == len(response.token_ids)
            decoded = tiny_tokenizer.decode(response.token_ids, skip_special_tokens=True)
            assert response.text == decoded
    # Responses of a group are different draws.
    assert all(len({r.token_ids for r in group}) == 3 for group in groups)


def test_end_tokens_end_and_the_budget_truncates(ending_policy, tiny_tokenizer, ends):
    groups = sample_groups(
        ending_policy, tiny_tokenizer, PROBLEMS, group_size=8, settings=how(max_tokens=7)
    )
    responses = [r for group in groups for r in group]
    for response in responses:
        assert not ends & set(response.token_ids[:-1])
        assert response.truncated == (response.token_ids[-1] not in ends)
        assert len(response.token_ids) == 7 if response.truncated else len(response.token_ids) <= 7
    assert {r.truncated for r in responses} == {True, False}
    # An end token that is the last the budget allows is an end, not a cut.
    assert any(len(r.token_ids) == 7 and not r.truncated for r in responses)


@pytest.mark.parametrize("batch_rows", [8, 1024])
def test_responses_are_counted_as_they_end(ending_policy, tiny_tokenizer, batch_rows):
    how_ = {"group_size": 8, "settings": how(max_tokens=7), "batch_rows": batch_rows}
    given, told = (ending_policy, tiny_tokenizer, PROBLEMS), []
    groups = sample_groups(*given, **how_, on_sampled=lambda *count: told.append(count))
    assert groups == sample_groups(*given, **how_)
    counts, totals = zip(*told, strict=True)
    assert set(totals) == {8 * len(PROBLEMS)} and list(counts) == sorted(counts)
    assert counts[-1] == totals[0] and len(set(counts)) > 2


@pytest.mark.parametrize("max_tokens", [1, 9])
def test_greedy_is_the_argmax_of_the_full_forward(tiny_policy, tiny_tokenizer, max_tokens):
    groups = sample_groups(
        tiny_policy,
        tiny_tokenizer,
        PROBLEMS,
        group_size=2,
        settings=how(temperature=0.0, max_tokens=max_tokens),
    )
    for group in groups:
        assert group[0].token_ids == group[1].token_ids
        ids = list(group[0].prompt_ids)
        for token in group[0].token_ids:
            with torch.no_grad():
                logits = tiny_policy(input_ids=torch.tensor([ids])).logits[0, -1]
            assert token == int(logits.argmax())
            ids.append(token)
        # At temperature 0 the log-probability is that of the plain policy.
        assert group[0].logp == pytest.approx(full_logprobs(tiny_policy, group[0]), abs=1e-4)


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
    found = cut(two, how(**cuts))
    expected = torch.zeros(5)
    expected[kept] = HAND[0, kept]
    assert torch.equal(found, torch.stack([expected, expected.flip(0)]))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.5, 12, 1.0), (1.0, 0, 0.7), (0.8, 20, 0.9)],
)
def test_frequencies_match_the_probabilities(
    tiny_policy, tiny_tokenizer, temperature, top_k, top_p
):
    num_draws = 6000
    ((*responses,),) = sample_groups(
        tiny_policy,
        tiny_tokenizer,
        PROBLEMS[:1],
        group_size=num_draws,
        settings=how(max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p, seed=11),
    )
    with torch.no_grad():
        ids = torch.tensor([responses[0].prompt_ids])
        logits = tiny_policy(input_ids=ids).logits[0, -1].double() / temperature
    ordered = sorted(enumerate(torch.softmax(logits, -1).tolist()), key=lambda pair: -pair[1])
    if top_k:
        ordered = ordered[:top_k]
    mass, kept = sum(p for _, p in ordered), {}
    for word, p in ordered:
        if sum(kept.values()) >= top_p * mass:
            break
        kept[word] = p
    expected = {word: num_draws * p / sum(kept.values()) for word, p in kept.items()}
    counts = dict.fromkeys(expected, 0)
    for response in responses:
        counts[response.token_ids[0]] += 1  # a KeyError is a word that was cut off
    # Rare words share a bin, as a chi-square wants at least 5 in each.
    bins = [(counts[w], e) for w, e in expected.items() if e >= 5]
    rare = [(counts[w], e) for w, e in expected.items() if e < 5]
    if sum(e for _, e in rare) >= 5:
        bins.append((sum(c for c, _ in rare), sum(e for _, e in rare)))
    chi_square = sum((c - e) ** 2 / e for c, e in bins)
    freedom = len(bins) - 1
    assert freedom >= 4 and chi_square < freedom + 5 * (2 * freedom) ** 0.5


def test_same_seed_same_responses(ending_policy, tiny_tokenizer):
    def draw(**changes):
        groups = sample_groups(
            ending_policy, tiny_tokenizer, PROBLEMS, group_size=3, settings=how(**changes)
        )
        return [[(r.token_ids, r.logp) for r in group] for group in groups]

    first = draw(seed=5)
    torch.manual_seed(77)  # the global generator has no part in it
    assert draw(seed=5) == first
    assert draw(seed=6) != first


@pytest.mark.parametrize("batch_rows", [1, 6, 7, 1024])
def test_any_batch_size_draws_whole_groups(ending_policy, tiny_tokenizer, batch_rows):
    groups = sample_groups(
        ending_policy,
        tiny_tokenizer,
        PROBLEMS,
        group_size=3,
        settings=how(),
        batch_rows=batch_rows,
    )
    assert [len(group) for group in groups] == [3] * len(PROBLEMS)
    for group in groups:
        for response in group:
            assert response.logp == pytest.approx(full_logprobs(ending_policy, response), abs=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_k": -1},
        {"max_tokens": 0},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("inf")},
        {"repetition_penalty": float("nan")},
    ],
)
def test_bad_settings_are_refused(change):
    with pytest.raises(ValueError, match="must be"):
        how(**change)


@pytest.mark.parametrize(
    ("problems", "group_size", "batch_rows"), [([], 2, 8), (PROBLEMS, 0, 8), (PROBLEMS, 2, 0)]
)
def test_nothing_to_sample_is_refused(
    tiny_policy, tiny_tokenizer, problems, group_size, batch_rows
):
    with pytest.raises(ValueError, match="group_size"):
        sample_groups(
            tiny_policy,
            tiny_tokenizer,
            problems,
            group_size=group_size,
            settings=how(),
            batch_rows=batch_rows,
        )


def test_record_holds_every_setting():
    assert how(seed=3).record() == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": 12,
        "seed": 3,
        "repetition_penalty": 1.0,
    }


def test_more_positions_than_the_model_has_are_refused(tiny_policy, tiny_tokenizer):
    settings = SamplingSettings(
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        max_tokens=tiny_policy.config.max_position_embeddings,
        seed=0,
    )
    problem = Problem(id="p", prompt="Start with 1.", answer="1")
    with pytest.raises(KlearError, match="positions, the model has"):
        sample_groups(tiny_policy, tiny_tokenizer, [problem], group_size=1, settings=settings)


def test_penalty_divides_what_is_positive_and_multiplies_what_is_not():
    logits = torch.tensor([[3.0, -3.0, 0.0, 3.0, -3.0]])
    seen = torch.tensor([[True, True, True, False, False]])
    assert penalised(logits, seen, 1.5).tolist() == [[2.0, -4.5, 0.0, 3.0, -3.0]]
    assert torch.equal(penalised(logits, seen, 1.0), logits)


def penalised_logits(policy, held: tuple[int, ...], penalty: float) -> torch.Tensor:
    """The logits of the next word, in double precision, one word at a time."""
    with torch.no_grad():
        logits = policy(input_ids=torch.tensor([held])).logits[0, -1].double()
    for word in set(held):
        logits[word] = logits[word] / penalty if logits[word] > 0 else logits[word] * penalty
    return logits


@pytest.mark.parametrize("penalty", [1.05, 3.0, 0.5])
def test_greedy_draws_follow_the_penalty_of_prompt_and_response(
    ending_policy, tiny_tokenizer, penalty
):
    """Padding is no token of a prompt, and rows that leave the batch take their tokens along."""
    groups = sample_groups(
        ending_policy,
        tiny_tokenizer,
        PROBLEMS,
        group_size=2,
        settings=how(temperature=0.0, repetition_penalty=penalty),
    )
    plain = sample_groups(
        ending_policy, tiny_tokenizer, PROBLEMS, group_size=1, settings=how(temperature=0.0)
    )
    assert [g[0].token_ids for g in groups] != [g[0].token_ids for g in plain]
    assert len({len(group[0].token_ids) for group in groups}) > 1
    for group in groups:
        for response in group:
            held = response.prompt_ids
            for token in response.token_ids:
                logits = penalised_logits(ending_policy, held, penalty)
                assert logits[token] > logits.max() - 1e-4
                held += (token,)
            # The recorded log-probability is the policy's own, before the penalty.
            expected = full_logprobs(ending_policy, response)
            assert response.logp == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("temperature", "top_k"), [(0.7, 0), (0.7, 8)])
def test_penalty_comes_before_temperature_and_cuts(tiny_policy, tiny_tokenizer, temperature, top_k):
    num_draws, penalty = 6000, 2.0
    ((*responses,),) = sample_groups(
        tiny_policy,
        tiny_tokenizer,
        PROBLEMS[:1],
        group_size=num_draws,
        settings=how(
            max_tokens=1, temperature=temperature, top_k=top_k, repetition_penalty=penalty, seed=3
        ),
    )
    held = responses[0].prompt_ids
    logits = penalised_logits(tiny_policy, held, penalty) / temperature
    if top_k:
        logits[logits < logits.topk(top_k).values[-1]] = -torch.inf
    expected = num_draws * torch.softmax(logits, -1)
    counts = torch.bincount(
        torch.tensor([r.token_ids[0] for r in responses]), minlength=len(expected)
    )
    assert counts[expected == 0].sum() == 0
    common = expected >= 5
    chi_square = ((counts - expected)[common] ** 2 / expected[common]).sum()
    freedom = int(common.sum()) - 1
    assert freedom >= 4 and chi_square < freedom + 5 * (2 * freedom) ** 0.5
    # The test can tell: without the penalty the same draws would be far off.
    plain = penalised_logits(tiny_policy, held, 1.0) / temperature
    other = num_draws * torch.softmax(plain, -1)
    assert ((counts - other)[common] ** 2 / other[common]).sum() > 10 * freedom


def test_a_tokenizer_without_padding_draws_the_same(ending_policy, tiny_tokenizer):
    bare = copy.deepcopy(tiny_tokenizer)
    bare.pad_token = None
    for penalty in (1.0, 1.3):
        settings = how(repetition_penalty=penalty, seed=2)
        found, expected = (
            sample_groups(ending_policy, tokenizer, PROBLEMS, group_size=2, settings=settings)
            for tokenizer in (bare, tiny_tokenizer)
        )
        assert found == expected


@pytest.mark.parametrize("cuts", [{}, {"temperature": 0.6, "top_p": 0.95, "top_k": 20}])
def test_logits_that_are_no_numbers_are_an_error_and_no_wrong_response(
    tiny_policy, tiny_tokenizer, cuts
):
    damaged = copy.deepcopy(tiny_policy)
    with torch.no_grad():
        damaged.get_output_embeddings().weight[7] = float("nan")
    with pytest.raises(KlearError, match="logits that are no numbers: its weights are damaged"):
        sample_groups(damaged, tiny_tokenizer, PROBLEMS, group_size=2, settings=how(**cuts))
