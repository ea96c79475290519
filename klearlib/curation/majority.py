"""Maths problems whose answer most responses of a teacher reach (section 3.2.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from klearlib.curation.filters import kept_by_pass_rate
from klearlib.curation.pass_rates import PassRate
from klearlib.data.tables import Sample

MAJORITY = {"threshold": 0.5, "keep_equal": False}
"""The majority as a rule of `filters.rejected_by_pass_rate`: more than half of the responses."""


def kept_by_majority(ids: Sequence[str], rates: Mapping[str, PassRate]) -> list[bool]:
    """For each problem, whether more than half of its responses pass the rule-based validator.

    The paper keeps a maths problem for RL where the majority of the n responses of DeepSeek-R1 pass
    it: an answer that a strong teacher seldom reaches is likely to be wrong. The validator is
    `klearlib.verify.answers.verify_answers`; a half is no majority.

    Raises:
        KlearError: a problem without a pass rate.

    >>> rates = {"a": PassRate("a", 16, 8, 0), "b": PassRate("b", 16, 9, 0)}
    >>> kept_by_majority(["a", "b"], rates)
    [False, True]
    """
    return kept_by_pass_rate(ids, rates, **MAJORITY)


def pass_rates_of(samples: Iterable[Sample]) -> dict[str, PassRate]:
    """The pass rate of each problem from the labels of its responses, in order of first sight.

    For responses that came with a data set, whose labels are its own. A response without a label
    counts among those that could not be judged.

    >>> labels = [True, True, False, None]
    >>> pass_rates_of(Sample("a", "?", "", is_correct=label) for label in labels)["a"]
    PassRate(id='a', num_responses=4, num_correct=2, num_not_judged=1, mean_tests_passed=None)
    """
    read, correct, not_judged = Counter(), Counter(), Counter()
    for sample in samples:
        read[sample.problem_id] += 1
        correct[sample.problem_id] += sample.is_correct is True
        not_judged[sample.problem_id] += sample.is_correct is None
    return {name: PassRate(name, n, correct[name], not_judged[name]) for name, n in read.items()}
