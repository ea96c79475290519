"""verl's reward function: one response judged and paid as `klearlib.verify.groups.judge_groups`
does it for a whole step."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from klearlib.errors import KlearError
from klearlib.records import Response, TestReport, Verdict
from klearlib.scale.problems import problem_of
from klearlib.verify import answer_judge, program_judge
from klearlib.verify.groups import is_code, judge_groups
from klearlib.verify.pool import MAX_DEFAULT_WORKERS, shared_pool

PROMPT_TEXT = "prompt_text"
"""The key of ``extra_info`` under which `klearlib.scale.agent_loop` hands on the rendered prompt,
which may hold the opening think tag."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict, **judging
) -> dict[str, float | str]:
    """The reward and the verdict on one response, the same as `judge_groups` gives it in a group.

    verl calls it from several threads of each of its reward workers at once; they share the judges
    of their process, which end with it.

    Args:
        solution_str: the response's text.
        ground_truth: of `klearlib.scale.problems.ground_truth`. All tests in it are run.
        extra_info: ``problem_id`` of the row, and `PROMPT_TEXT`.
        judging: the keywords of `judge_groups`, see `klearlib.rl.schedule.judging`.

    Returns:
        ``score``, the reward, and ``verdict``, a text that `verdict_of` reads.

    Raises:
        KlearError: the prompt's text is missing. What hinders the judge itself is raised too, and
            never paid as a wrong answer.
    """
    if PROMPT_TEXT not in extra_info:
        raise KlearError(
            f"extra_info lacks {PROMPT_TEXT!r}, which klear's agent loop adds: "
            "set actor_rollout_ref.rollout.agent.default_agent_loop=klear"
        )
    problem = problem_of(ground_truth, problem_id=extra_info["problem_id"])
    _have_judges(program_judge.__name__ if is_code(problem) else answer_judge.__name__)
    response = Response(
        problem_id=problem.id,
        prompt=extra_info[PROMPT_TEXT],
        prompt_ids=(),
        token_ids=(),
        logp=(),
        text=solution_str,
        truncated=False,
    )
    (group,) = judge_groups([problem], [[response]], **judging)
    return {"score": float(group.rewards[0]), "verdict": json.dumps(asdict(group.verdicts[0]))}


def verdict_of(text: str) -> Verdict:
    """The verdict of a ``verdict`` of `compute_score`.

    >>> verdict = Verdict(correct=True, reason="correct", extracted="4")
    >>> verdict_of(json.dumps(asdict(verdict))) == verdict
    True
    """
    held = json.loads(text)
    if held["report"] is not None:
        held["report"] = TestReport(
            outcomes=tuple(held["report"]["outcomes"]),
            pass_rate=held["report"]["pass_rate"],
            messages=tuple(held["report"]["messages"]),
        )
    return Verdict(**held)


def _have_judges(module: str) -> None:
    # A call of one response would be content with one judge, and all threads would wait for it.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    shared_pool(min(cores or 1, MAX_DEFAULT_WORKERS), module)
