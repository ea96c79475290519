"""Groups of responses judged and rewarded, mathematics and code side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from klearlib.errors import KlearError
from klearlib.records import Group, Problem, Response, Verdict
from klearlib.verify.answers import verify_answers
from klearlib.verify.code_answers import verify_programs
from klearlib.verify.own_judge import verdicts_of
from klearlib.verify.rewards import hard_code_reward, math_reward, soft_code_reward

CODE_REWARDS = {"soft": soft_code_reward, "hard": hard_code_reward}


def is_code(problem: Problem) -> bool:
    """Whether a problem is judged by its tests (True) or by its answer; KlearError where it has
    neither, or both."""
    if bool(problem.tests) == (problem.answer is not None):
        held = "both an answer and" if problem.tests else "neither an answer nor"
        raise KlearError(f"problem {problem.id!r} has {held} tests to judge by: give one of them")
    return bool(problem.tests)


def judge_responses(
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    *,
    test_timeout_s: float,
    test_memory_mb: int,
    max_tests: int | None = None,
    tests_seed: int = 0,
    require_think: bool = True,
    truncated: str = "wrong",
    answer_form: str = "written",
    reward_function: dict | None = None,
) -> list[tuple[Verdict, ...]]:
    """The verdict on every response to each problem.

    Args:
        test_timeout_s, test_memory_mb: limits of one test of a program.
        max_tests, tests_seed: at most so many tests of each code problem, see
            `code_answers.chosen_tests` (docs/deviations.md, D10). None: all of them.
        require_think: whether a response without both think tags is ``bad_format``; if not, what
            stands after the last closing tag is judged, or all of it.
        truncated: ``"wrong"``: a response that the token budget ended is ``truncated``, whatever
            stands in it; ``"as_text"``: it is judged as the text that it is.
        answer_form: that of `answers.verify_answers`.
        reward_function: judges answers in the place of the built-in judge, see
            `own_judge.verdicts_of`. It looks for no tags, and decides by itself what is right of a
            response that is truncated.
    """
    pairs = [
        (problem, response)
        for problem, group in zip(problems, responses, strict=True)
        for response in group
    ]
    verdicts: dict[int, Verdict] = {}
    for code in (False, True):  # one batch for each kind of judge
        places = [place for place, (problem, _) in enumerate(pairs) if is_code(problem) is code]
        if not places:
            continue
        asked, given = zip(*(pairs[place] for place in places), strict=True)
        texts = [response.text for response in given]
        ended = [response.truncated for response in given]
        how = {
            "prompts": [response.prompt for response in given],
            "require_think": require_think,
            "truncated": ended if truncated == "wrong" else None,
        }
        if code:
            judged = verify_programs(
                texts,
                asked,
                timeout_s=test_timeout_s,
                memory_mb=test_memory_mb,
                max_tests=max_tests,
                tests_seed=tests_seed,
                **how,
            )
        elif reward_function is not None:
            judged = verdicts_of(reward_function, texts, asked, truncated=ended)
        else:
            golds = [problem.answer for problem in asked]
            judged = verify_answers(texts, golds, answer_form=answer_form, **how)
        verdicts |= zip(places, judged, strict=True)
    in_order = (verdicts[place] for place in range(len(pairs)))
    return [tuple(islice(in_order, len(group))) for group in responses]


def judge_groups(
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    *,
    think_tags: str,
    format_scores: str,
    format_penalty: float,
    code_reward: str,
    code_scores: str,
    hard_failure: float,
    **judging: object,
) -> tuple[Group, ...]:
    """Verdicts and rewards for the responses to each problem (docs/deviations.md, D9, D10).

    Args:
        think_tags: ``"required"``, or ``"optional"``: a response without them is judged as it
            stands and pays no penalty.
        format_scores: ``scores`` of `math_reward`. code_scores: ``scores`` of the code rewards.
        code_reward: ``"soft"`` (share of tests passed) or ``"hard"`` (all or nothing).
        hard_failure: ``failure`` of `hard_code_reward`.
        judging: the other keywords of `judge_responses`.
    """
    judged = judge_responses(problems, responses, require_think=think_tags == "required", **judging)
    code_pay = CODE_REWARDS[code_reward]
    if code_reward == "hard":
        code_pay = partial(code_pay, failure=hard_failure)
    groups = []
    for problem, group, verdicts in zip(problems, responses, judged, strict=True):
        if is_code(problem):
            pay, scores = code_pay, code_scores  # reward of the tests passed
        else:
            pay, scores = math_reward, format_scores
        if think_tags == "optional":  # none is missing
            there = {"has_think_open": True, "has_think_close": True}
            verdicts = tuple(replace(verdict, **there) for verdict in verdicts)
        rewards = tuple(
            # a user's own function has set it already
            pay(v, format_penalty=format_penalty, scores=scores) if v.reward is None else v.reward
            for v in verdicts
        )
        groups.append(Group(problem, tuple(group), verdicts, rewards))
    return tuple(groups)
