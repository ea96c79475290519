"""What is said aloud of an RL run: steps that train nothing, and truncation that rises with the
score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from klearlib.rl.idle import why_idle

NOTHING_TRAINED, TRUNCATION_ROSE = "no step trained", "truncation rose"
RISE = 0.2
"""Of the share of truncated rollouts, above which it is said."""
_ROUNDING = 1e-9


def truncation_rose(
    lines: Sequence[Mapping[str, float | None]], *, num_steps: int | None = None
) -> str:
    """That many more rollouts of an RL run are truncated at its end than at its start while more of
    them are right, as words for the user; "" where it is not so, and for lines of other stages.

    A policy that writes until its budget ends and is paid for it has found what the judge
    overlooks. Compared are the means over the first and the last fifth of the steps, so that the
    problems of a single step decide nothing: `RISE` more of truncation, and any rise of the rate
    correct.

    Args:
        lines: of metrics.jsonl, in order. num_steps: of the whole run, where it goes on.

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
    if cut[1] - cut[0] <= RISE + _ROUNDING or right[1] <= right[0]:
        return ""
    percent = [f"{100 * share:.0f} %" for share in (*cut, *right)]
    return (
        f"{TRUNCATION_ROSE} from {percent[0]} to {percent[1]} of rollouts while the rate correct "
        f"rose from {percent[2]} to {percent[3]}: read what the policy writes (klear show) before "
        "believing its score"
    )


class Alarms:
    """Sees the lines of a run, and says once, and at the end, what there is to say.

    lines: of the steps before a resume. num_rollouts: of a step. num_steps: of the run.
    """

    def __init__(self, lines: Sequence[Mapping], *, num_rollouts: int, num_steps: int):
        self._num_rollouts, self._num_steps = num_rollouts, num_steps
        self._lines: list[Mapping] = []
        self._num_idle, self._told = 0, False
        for line in lines:
            self.see(line)

    def see(self, line: Mapping[str, float | None]) -> list[str]:
        """Words for the user after a step: where it is the first of the run that trained nothing,
        or the last of a run in which none did; where truncation has risen with the score for the
        first time, or has at the end of the run."""
        self._lines.append(line)
        return [words for words in (self._idle(line), self._truncation(line)) if words]

    def note(self) -> str:
        """How many steps trained nothing, for people; "" for none."""
        return f"{self._num_idle} idle" if self._num_idle else ""

    def _idle(self, line: Mapping[str, float | None]) -> str:
        why = why_idle(line, num_rollouts=self._num_rollouts)
        self._num_idle += bool(why)
        if self._num_idle == line["step"] == self._num_steps:
            return f"{NOTHING_TRAINED}: {why}"
        first = why and self._num_idle == 1
        return f"step {line['step']} trained nothing: {why}" if first else ""

    def _truncation(self, line: Mapping[str, float | None]) -> str:
        rose = truncation_rose(self._lines, num_steps=self._num_steps)
        if not rose or (self._told and line["step"] < self._num_steps):
            return ""
        self._told = True
        return rose
