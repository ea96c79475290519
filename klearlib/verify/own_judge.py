"""A reward function of one's own in the place of the built-in judge of answers, and the process in
which it judges, see `judge_loop`.

A job is ``{"source": str, "name": str, "response": str, "problem": {...}}``, a reply
``{"correct": bool, "reward": float}``, or ``{"fault": str}`` where the function has failed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from klearlib.errors import KlearError
from klearlib.own_code import failure, module_of
from klearlib.records import Problem, Verdict
from klearlib.verify.judge_loop import serve

TIMEOUT_S = 10.0
"""Wall-clock seconds for one response."""
MAX_REWARD = 1e30
"""In size: squares of rewards, of which Eq. 4 takes the mean, must stay finite."""


def verdicts_of(
    function: dict,
    responses: Sequence[str],
    problems: Sequence[Problem],
    *,
    truncated: Sequence[bool],
) -> list[Verdict]:
    """What a reward function says of N responses, in processes of its own.

    Args:
        function: ``name`` and ``source``, the text of its file. ``name(response, problem)``, given
            the text of a response and a mapping of the problem's id, prompt and answer, and of
            whether the response is truncated, returns the reward, a finite number, and whether the
            response is right.
        responses: N texts. problems: the problem of each. truncated: whether the token budget ended
            each.

    Returns:
        N verdicts with a `Verdict.reward`. One that takes longer than `TIMEOUT_S` is ``timeout``,
        wrong, and paid 0.

    Raises:
        KlearError: it raises, ends its process, or returns something else.
    """
    from klearlib.verify.pool import ask

    jobs = []
    for response, each, cut in zip(responses, problems, truncated, strict=True):
        problem = {"id": each.id, "prompt": each.prompt, "answer": each.answer, "truncated": cut}
        jobs.append(({**function, "response": response, "problem": problem}, TIMEOUT_S))
    found = []
    # processes of their own: a user's code may hang
    for problem, reply in zip(problems, ask(__name__, jobs), strict=True):
        if reply.get("reason") == "timeout":  # paid 0: neither right nor a format fault
            found.append(Verdict(correct=False, reason="timeout", reward=0.0))
        elif "reward" in reply:
            right = reply["correct"]
            reason = "correct" if right else "wrong"
            found.append(Verdict(correct=right, reason=reason, reward=reply["reward"]))
        else:
            fault = reply.get("fault", "its process ended")
            raise KlearError(
                f"reward function {function['name']}, problem {problem.id!r}: {fault}: correct it"
            )
    return found


def _judge(job: dict) -> dict:
    try:
        function = getattr(module_of(job["source"]), job["name"])
        found = function(job["response"], job["problem"])
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        return {"fault": failure(error)}
    try:
        reward, right = found
        reward = float(reward)
    except (TypeError, ValueError, OverflowError):
        reward, right = math.nan, None
    if not abs(reward) < MAX_REWARD or not isinstance(right, bool):
        return {"fault": f"expected a finite reward and True or False, got {found!r:.200}"}
    return {"correct": right, "reward": reward}


if __name__ == "__main__":
    sys.exit(serve(_judge))
