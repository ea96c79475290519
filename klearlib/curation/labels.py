"""Labels of responses: the verifier's word where a data set gives none of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from klearlib.data.marks import THINK_OPEN
from klearlib.data.tables import Sample
from klearlib.records import NOT_JUDGED, Problem, Response, Verdict
from klearlib.verify.groups import judge_responses


def labelled(sample: Sample, verdict: Verdict) -> Sample:
    """The sample with the verifier's word; without a label where the verifier could not decide."""
    is_correct = None if verdict.reason in NOT_JUDGED else verdict.correct
    return replace(sample, is_correct=is_correct, reason=verdict.reason)


def label_word(is_correct: bool | None, reason: str) -> str:
    """``correct``, ``wrong``, ``not judged`` (the judge's failure) or ``no label`` (nobody judged,
    or tried to)."""
    if reason in NOT_JUDGED:
        return "not judged"
    if is_correct is None:
        return "no label"
    return "correct" if is_correct else "wrong"


def judge_samples(
    samples: Sequence[Sample],
    problems: Mapping[str, Problem],
    *,
    test_timeout_s: float,
    test_memory_mb: int,
) -> list[Verdict | None]:
    """The verdict on each response by its problem's answer or tests (in the sandbox, all of them);
    None for a problem that has neither.

    A response is judged as it stands: one that opens a thought must end it (else ``bad_format``, as
    in RL), whatever closing tags stand before. One that opens none, as where the chat template of
    its teacher did, or in a solution by hand, is judged by what stands after the last closing tag,
    or by all of it. What its budget was nobody knows, so none is ``truncated``.

    problems: by id. test_timeout_s, test_memory_mb: limits of one test of a program.
    """
    found: list[Verdict | None] = [None] * len(samples)
    for require_think in (True, False):
        places = {
            place: problem
            for place, sample in enumerate(samples)
            if ((problem := problems[sample.problem_id]).tests or problem.answer is not None)
            and (THINK_OPEN in sample.response) is require_think
        }
        judged = judge_responses(
            list(places.values()),
            [
                [Response(problem.id, "", (), (), (), samples[place].response, truncated=False)]
                for place, problem in places.items()
            ],
            test_timeout_s=test_timeout_s,
            test_memory_mb=test_memory_mb,
            require_think=require_think,
        )
        for place, (verdict,) in zip(places, judged, strict=True):
            found[place] = verdict
    return found
