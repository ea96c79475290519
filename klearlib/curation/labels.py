"""Labels of responses: the verifier's word where a data set gives none of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from klearlib.data.tables import Sample
from klearlib.errors import KlearError
from klearlib.records import NOT_JUDGED, Problem, Response, Verdict
from klearlib.verify.extract import THINK_CLOSE, THINK_OPEN
from klearlib.verify.groups import judge_responses

LABELLED_BY = "klear"


def labelled(sample: Sample, verdict: Verdict) -> Sample:
    """The sample with the verifier's word; without a label where the verifier could not decide.

    >>> sample = labelled(Sample("a", "2 + 2?", "<think></think>5"), Verdict(False, "timeout"))
    >>> sample.is_correct, sample.reason
    (None, 'timeout')
    """
    return replace(
        sample,
        is_correct=None if verdict.reason in NOT_JUDGED else verdict.correct,
        labelled_by=LABELLED_BY,
        reason=verdict.reason,
    )


def needs_label(sample: Sample) -> bool:
    """Whether nobody has judged, or tried to judge, a sample."""
    return sample.is_correct is None and not sample.reason


def judge_samples(
    samples: Sequence[Sample],
    problems: Mapping[str, Problem],
    *,
    test_timeout_s: float,
    test_memory_mb: int,
) -> list[Sample]:
    """The samples in order, those without a label judged by their problem's answer or tests.

    A label that came with the data stays, and so does a verdict of this suite's. Programs run in
    the sandbox, all tests of a problem. What is judged is the answer: an opening think tag that the
    chat template of a teacher wrote may be missing, and so may both, as in a solution by hand; a
    thought that does not end is ``bad_format``. A response to a problem with neither answer nor
    tests stays without a label.

    Args:
        problems: by id; asked only for those of samples without a label.
        test_timeout_s, test_memory_mb: limits of one test of a program.

    Raises:
        KlearError: a sample without a label whose problem is not there.

    >>> problems = {"a": Problem("a", "2 + 2?", answer="4")}
    >>> samples = [Sample("a", "2 + 2?", f"<think></think>{n}") for n in (4, 5)]
    >>> limits = {"test_timeout_s": 2.0, "test_memory_mb": 256}
    >>> [sample.is_correct for sample in judge_samples(samples, problems, **limits)]
    [True, False]
    """
    asked = {
        place: _problem(sample.problem_id, problems)
        for place, sample in enumerate(samples)
        if needs_label(sample)
    }
    places = [p for p, problem in asked.items() if problem.tests or problem.answer is not None]
    judged = judge_responses(
        [asked[place] for place in places],
        [[_response(samples[place])] for place in places],
        test_timeout_s=test_timeout_s,
        test_memory_mb=test_memory_mb,
    )
    found = list(samples)
    for place, (verdict,) in zip(places, judged, strict=True):
        found[place] = labelled(samples[place], verdict)
    return found


def _problem(name: str, problems: Mapping[str, Problem]) -> Problem:
    try:
        return problems[name]
    except KeyError:
        raise KlearError(
            f"a response without a label is to problem {name!r}, which is not in the problem file: "
            "give the problems that the responses belong to"
        ) from None


def _response(sample: Sample) -> Response:
    # The end of the prompt stands for the tags that the response does not have.
    thought, close, _ = sample.response.partition(THINK_CLOSE)
    missing = "" if THINK_OPEN in thought else THINK_OPEN + ("" if close else THINK_CLOSE)
    return Response(sample.problem_id, missing, (), (), (), sample.response, truncated=False)
