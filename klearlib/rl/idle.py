"""Steps that train nothing, and the likely reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SHARES = (
    ("rollout/bad_format_rate", "no response has both think tags"),
    ("rollout/truncated_rate", "the token budget ended every response"),
    ("rollout/no_answer_rate", "no answer was found in any response"),
    ("rollout/not_worked_out_rate", "every response leaves its answer to be worked out"),
    ("rollout/groups_all_correct", "every response is right: the problems are too easy"),
    ("rollout/groups_all_wrong", "every response is wrong: the problems are too hard"),
)


def why_idle(line: Mapping[str, float | None], *, num_rollouts: int | None = None) -> str:
    """Why the step of a line of metrics.jsonl had no gradient, "" where it had one.

    num_rollouts: of a step, None where it is not known: then responses that could not be judged
    count as what they are paid as.

    >>> why_idle({"train/grad_norm": None, "rollout/groups_all_correct": 1.0})
    'every response is right: the problems are too easy'
    """
    if line["train/grad_norm"]:
        return ""
    if line.get("train/skipped_updates"):
        return "the gradient of every update was not finite"
    if num_rollouts is not None and line.get("rollout/judge_failures") == num_rollouts:
        return "no response could be judged"
    for key, words in _SHARES:
        if line.get(key) == 1:
            return words
    if line.get("rollout/advantage_abs_mean"):
        return "the filters left none of the groups whose rewards differ"
    return "the rewards of each group are equal"


def untrained(lines: Sequence[Mapping[str, float | None]]) -> str:
    """Why no step of an RL run trained its policy, the reason of its last one; "" where one did,
    and for lines of other stages."""
    if not lines or "train/grad_norm" not in lines[-1]:
        return ""
    whys = [why_idle(line) for line in lines]
    return whys[-1] if all(whys) else ""
