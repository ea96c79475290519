"""Groups of responses judged and rewarded."""

from __future__ import annotations

from collections.abc import Sequence

from klearlib.errors import KlearError
from klearlib.records import Group, Problem, Response
from klearlib.verify.answers import verify_answers
from klearlib.verify.rewards import math_reward


def judge_groups(
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    *,
    format_scores: str,
    format_penalty: float,
) -> tuple[Group, ...]:
    """Verdicts and rewards for the responses to each problem (semantics.md D9)."""
    pairs = [
        (problem, response)
        for problem, group in zip(problems, responses, strict=True)
        for response in group
    ]
    verdicts = iter(
        verify_answers(
            [response.text for _, response in pairs],
            [_gold(problem) for problem, _ in pairs],
            prompts=[response.prompt for _, response in pairs],
        )
    )
    groups = []
    for problem, group in zip(problems, responses, strict=True):
        judged = tuple(next(verdicts) for _ in group)
        rewards = tuple(
            math_reward(verdict, format_penalty=format_penalty, scores=format_scores)
            for verdict in judged
        )
        groups.append(Group(problem, tuple(group), judged, rewards))
    return tuple(groups)


def _gold(problem: Problem) -> str | list[str]:
    if problem.answer is None:
        raise KlearError(f"problem {problem.id!r} has no answer to judge against")
    return problem.answer if isinstance(problem.answer, str) else list(problem.answer)
