"""Warnings about an RL run: steps that train nothing, truncation that rises with the score, and a
clip range that no token leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

NOTHING_TRAINED, TRUNCATION_ROSE = "no step trained", "truncation rose"
RISE = 0.2
"""A larger rise of the share of truncated rollouts is reported."""
LOOKED_AT = 3
"""Steps after which some token should have left the clip range: of smoke and mini 0.3 % have."""
_ROUNDING = 1e-9
_REASONS = (
    ("rollout/bad_format_rate", "no response has both think tags"),
    ("rollout/truncated_rate", "the token budget ended every response"),
    ("rollout/no_answer_rate", "no answer was found in any response"),
    ("rollout/not_worked_out_rate", "every response gives an unevaluated expression"),
    ("rollout/groups_all_correct", "every response is right: the problems are too easy"),
    ("rollout/groups_all_wrong", "every response is wrong: the problems are too hard"),
)


def why_idle(line: Mapping[str, float | None], *, best: float = 0.0) -> str:
    """The likely reason why the step of a line of metrics.jsonl had no gradient; "" if it had one.

    best: the largest share of right rollouts of an earlier step.

    >>> why_idle({"train/grad_norm": None, "rollout/groups_all_correct": 1.0})
    'every response is right: the problems are too easy'
    """
    if line["train/grad_norm"]:
        return ""
    if line.get("rollout/groups_all_wrong") == 1 and best > 0:
        return (
            f"every response is wrong, although {100 * best:.0f} % were right before: the policy "
            "has collapsed; lower the learning rate"
        )
    if line.get("train/skipped_updates"):
        return "no update had a finite gradient"
    for key, words in _REASONS:
        if line.get(key) == 1:
            return words
    if line.get("rollout/advantage_abs_mean"):
        return "the filters removed every group with differing rewards"
    return "the rewards of each group are equal"


def untrained(lines: Sequence[Mapping[str, float | None]]) -> str:
    """Why no step of an RL run trained its policy (the reason of the last step); "" if a step did,
    and for the lines of other stages."""
    if not lines or "train/grad_norm" not in lines[-1]:
        return ""
    reasons = [why_idle(line) for line in lines]
    return reasons[-1] if all(reasons) else ""


def truncation_rose(
    lines: Sequence[Mapping[str, float | None]], *, num_steps: int | None = None
) -> str:
    """A warning that many more rollouts are truncated at the end of a run than at its start while
    more of them are right; "" if that is not so, and for the lines of other stages.

    A policy that writes until its budget ends and is rewarded for it has found something that the
    judge overlooks. The means over the first and the last fifth of the steps are compared, so that
    the problems of a single step decide nothing: truncation must rise by more than `RISE`, the rate
    correct by anything.

    Args:
        lines: of metrics.jsonl, in order. num_steps: of the whole run, while it is going on.

    >>> steps = [{"rollout/truncated_rate": x, "rollout/correct_rate": x} for x in (0.1, 0.5)]
    >>> truncation_rose(steps)[:44]
    'truncation rose from 10 % to 50 % of rollout'
    >>> truncation_rose(steps[::-1])
    ''
    """
    fifth = max(1, (num_steps or len(lines)) // 5)
    if len(lines) < 2 * fifth or "rollout/truncated_rate" not in lines[-1]:
        return ""
    ends = lines[:fifth], lines[-fifth:]
    cut = [fmean(line["rollout/truncated_rate"] for line in end) for end in ends]
    right = [fmean(line["rollout/correct_rate"] for line in end) for end in ends]
    # 0.9 - 0.7 is above 0.2 in floating point.
    if cut[1] - cut[0] <= RISE + _ROUNDING or right[1] <= right[0]:
        return ""
    percent = [f"{100 * share:.0f} %" for share in (*cut, *right)]
    return (
        f"{TRUNCATION_ROSE} from {percent[0]} to {percent[1]} of rollouts while the rate correct "
        f"rose from {percent[2]} to {percent[3]}: read what the policy writes (klear show) before "
        "believing its score"
    )


def share_outside(lines: Sequence[Mapping[str, float | None]]) -> float:
    """The share of the trained tokens of `lines` that are outside of the clip range; 0 if none was
    trained.

    >>> share_outside([{"train/num_tokens": 10, "train/token_share_low_negative": 0.1}])
    0.1
    """
    outside = sum(
        (line[key] or 0) * line["train/num_tokens"]
        for line in lines
        for key in line
        if key.startswith("train/token_share_")
    )
    return outside / max(1, sum(line.get("train/num_tokens", 0) for line in lines))


def all_inside(lines: Sequence[Mapping[str, float | None]]) -> str:
    """A warning that no token of several updates per batch has left the clip range; "" if one has,
    and where nothing was trained. With one update per batch every ratio is 1."""
    several = any(line.get("train/num_updates", 0) > 1 for line in lines)
    if not several or share_outside(lines):
        return ""
    return (
        "no token has left the clip range: all clipping rules are the same so far; "
        "raise the learning rate, or lower mini_batch_problems for more updates per batch"
    )


class Alarms:
    """Reads the lines of a run of `num_steps` as they come, and gives each warning once and again
    at the end; lines: of the steps before a resume. has_range: whether its rule has a clip range
    that tokens can leave."""

    def __init__(self, lines: Sequence[Mapping], *, num_steps: int, has_range: bool = True):
        self._num_steps, self._has_range = num_steps, has_range
        self._lines, self._num_idle, self._truncation_said = [], 0, False
        for line in lines:
            self.see(line)

    def see(self, line: Mapping[str, float | None]) -> list[str]:
        """The warnings after a step: the first step that trained nothing, a run in which none did,
        a clip range that no token has left in `LOOKED_AT` steps, and truncation that has risen with
        the score for the first time or at the end."""
        warnings, last = [], line["step"] == self._num_steps
        best = max((each.get("rollout/correct_rate") or 0 for each in self._lines), default=0)
        self._lines.append(line)
        if reason := why_idle(line, best=best):
            self._num_idle += 1
            if last and self._num_idle == self._num_steps:
                warnings.append(f"{NOTHING_TRAINED}: {reason}")
            elif self._num_idle == 1:
                warnings.append(f"step {line['step']} trained nothing: {reason}")
        if (
            len(self._lines) == LOOKED_AT
            and self._has_range
            and (inside := all_inside(self._lines))
        ):
            warnings.append(f"step {LOOKED_AT}: {inside}")
        rose = truncation_rose(self._lines, num_steps=self._num_steps)
        if rose and (last or not self._truncation_said):
            self._truncation_said = True
            warnings.append(rose)
        return warnings
