"""What every engine does alike: seeds, end tokens, truncation, log-probabilities, frequencies."""

import pytest
import torch
from small_models import response_logprobs

from klearlib.policy.drawing import SamplingSettings
from klearlib.policy.load import chat_prompt
from klearlib.policy.prompts import end_ids
from klearlib.records import Problem

# Prompts of different length, not sorted by it.
PROMPTS = ["what is 12345 + 6789?", "2+2", "f(0)=1, f(1)=2, f(n)=3f(n-1)+f(n-2).", "?", "1-1"]
PROBLEMS = [Problem(id=f"p{i}", prompt=prompt, answer="1") for i, prompt in enumerate(PROMPTS)]
# Two implementations of the same fp32 arithmetic; a log-probability of another weight, position or
# temperature is off by 0.01 and more.
LOGP_TOLERANCE = 1e-4


def how(**changes) -> SamplingSettings:
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 12, "seed": 0}
    return SamplingSettings(**plain | changes)


GREEDY = how(temperature=0.0, max_tokens=20)


def flat(groups):
    return [response for group in groups for response in group]


def full_logprobs(policy, response, temperature: float = 1.0):
    """The trainer's log pi of each token of a response."""
    logp = response_logprobs(policy, response, temperature).tolist()
    return pytest.approx(logp, abs=LOGP_TOLERANCE)


class EngineContract:
    """Of the fixture `engine`, which draws from `policy`."""

    @pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
    def test_recorded_log_probabilities_are_the_trainers(self, engine, policy, temperature):
        settings = how(temperature=temperature, max_tokens=30)
        responses = flat(engine.sample_groups(PROBLEMS, group_size=6, settings=settings))
        assert len({len(response.token_ids) for response in responses}) > 5
        for response in responses:
            assert response.logp == full_logprobs(policy, response, temperature)

    def test_groups_are_whole_and_in_the_order_of_the_problems(self, engine, tiny_tokenizer):
        """More responses than are decoded at once."""
        groups = engine.sample_groups(PROBLEMS, group_size=30, settings=how())
        assert [len(group) for group in groups] == [30] * len(PROBLEMS)
        for problem, group in zip(PROBLEMS, groups, strict=True):
            text, ids = chat_prompt(tiny_tokenizer, problem.prompt)
            expected = {(problem.id, text, tuple(ids))}
            assert {(r.problem_id, r.prompt, r.prompt_ids) for r in group} == expected
            assert len({response.token_ids for response in group}) > 20, "different draws"

    def test_end_tokens_end_and_the_budget_truncates(self, engine, policy, tiny_tokenizer):
        ends = set(end_ids(policy, tiny_tokenizer))
        responses = flat(engine.sample_groups(PROBLEMS, group_size=24, settings=how(max_tokens=7)))
        for response in responses:
            assert not ends & set(response.token_ids[:-1])
            assert response.truncated == (response.token_ids[-1] not in ends)
            assert len(response.token_ids) == 7 or not response.truncated
            decoded = tiny_tokenizer.decode(response.token_ids, skip_special_tokens=True)
            assert response.text == decoded
        # An end token that is the last the budget allows is an end, not a cut.
        assert any(len(r.token_ids) == 7 and not r.truncated for r in responses)
        assert max(len(r.token_ids) for r in responses) == 7 and any(r.truncated for r in responses)

    def test_same_seed_same_responses_whatever_came_before(self, engine):
        first = engine.sample_groups(PROBLEMS, group_size=4, settings=how(seed=5))
        torch.manual_seed(77)  # the global generator has no part in it
        other = how(seed=6, temperature=0.7)
        others = engine.sample_groups(PROBLEMS[1:], group_size=3, settings=other)
        assert engine.sample_groups(PROBLEMS, group_size=4, settings=how(seed=5)) == first
        assert engine.sample_groups(PROBLEMS, group_size=4, settings=how(seed=6)) != first
        assert others[0] != first[1][:3]


def next_logits(policy, held: tuple[int, ...], penalty: float = 1.0) -> torch.Tensor:
    """The logits of the next word, in double precision, one word at a time."""
    with torch.no_grad():
        logits = policy(input_ids=torch.tensor([held])).logits[0, -1].double()
    for word in set(held):
        logits[word] = logits[word] / penalty if logits[word] > 0 else logits[word] * penalty
    return logits


def assert_frequencies_match(engine, policy, num_draws: int, **changes) -> None:
    """Of the first word, by chi-square. The penalty comes before temperature and cuts."""
    settings = how(max_tokens=1, seed=11, **changes)
    ((*responses,),) = engine.sample_groups(PROBLEMS[:1], group_size=num_draws, settings=settings)

    def expected_with(penalty: float) -> torch.Tensor:
        logits = next_logits(policy, responses[0].prompt_ids, penalty) / settings.temperature
        ordered = sorted(enumerate(torch.softmax(logits, -1).tolist()), key=lambda pair: -pair[1])
        ordered = ordered[: settings.top_k] if settings.top_k else ordered
        mass, kept = sum(p for _, p in ordered), torch.zeros(len(logits)).double()
        for word, p in ordered:
            if kept.sum() >= settings.top_p * mass:
                break
            kept[word] = p
        return num_draws * kept / kept.sum()

    expected = expected_with(settings.repetition_penalty)
    words = torch.tensor([response.token_ids[0] for response in responses])
    counts = torch.bincount(words, minlength=len(expected))
    assert counts[expected == 0].sum() == 0
    apart, freedom = chi_square(counts, expected)
    assert freedom >= 4 and apart < freedom + 5 * (2 * freedom) ** 0.5
    if settings.repetition_penalty != 1:  # the test can tell
        assert chi_square(counts, expected_with(1.0))[0] > 10 * freedom


def chi_square(counts: torch.Tensor, expected: torch.Tensor) -> tuple[float, int]:
    """Over the words that come 5 times or more, the others in one bin; degrees of freedom."""
    rare = expected < 5
    pairs = [(counts[~rare], expected[~rare])]
    if expected[rare].sum() >= 5:
        pairs.append((counts[rare].sum()[None], expected[rare].sum()[None]))
    found, wanted = (torch.cat(each) for each in zip(*pairs, strict=True))
    return float(((found - wanted) ** 2 / wanted).sum()), len(found) - 1
