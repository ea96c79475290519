"""What the responses of every engine are held to."""

import torch

from klearlib.records import Problem

# Prompts of different length, not sorted by it.
PROMPTS = ["what is 12345 + 6789?", "2+2", "f(0)=1, f(1)=2, f(n)=3f(n-1)+f(n-2).", "?", "1-1"]
PROBLEMS = [Problem(id=f"p{i}", prompt=prompt, answer="1") for i, prompt in enumerate(PROMPTS)]


def flat(groups):
    return [response for group in groups for response in group]


def assert_end_tokens_end_and_the_budget_truncates(responses, ends: set[int], max_tokens: int):
    for response in responses:
        assert not ends & set(response.token_ids[:-1])
        assert response.truncated == (response.token_ids[-1] not in ends)
        assert len(response.token_ids) == max_tokens or not response.truncated
    assert max(len(response.token_ids) for response in responses) == max_tokens
    assert {response.truncated for response in responses} == {True, False}


def chi_square(counts: torch.Tensor, expected: torch.Tensor) -> tuple[float, int]:
    """Over the words that come 5 times or more, the others in one bin; degrees of freedom."""
    rare = expected < 5
    pairs = [(counts[~rare], expected[~rare])]
    if expected[rare].sum() >= 5:
        pairs.append((counts[rare].sum()[None], expected[rare].sum()[None]))
    found, wanted = (torch.cat(each) for each in zip(*pairs, strict=True))
    return float(((found - wanted) ** 2 / wanted).sum()), len(found) - 1


def assert_drawn_from(counts: torch.Tensor, expected: torch.Tensor) -> None:
    assert counts[expected == 0].sum() == 0
    apart, freedom = chi_square(counts, expected)
    assert freedom >= 4 and apart < freedom + 5 * (2 * freedom) ** 0.5
