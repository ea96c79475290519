"""The majority of n responses, by hand and from labels."""

import pytest

from klearlib.curation.filters import rejected_by_pass_rate
from klearlib.curation.majority import MAJORITY, kept_by_majority, pass_rates_of
from klearlib.curation.pass_rates import PassRate
from klearlib.data.tables import Sample


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16])
def test_a_majority_is_more_than_half(n):
    rates = {str(count): PassRate(str(count), n, count, 0) for count in range(n + 1)}
    kept = kept_by_majority(list(rates), rates)
    assert kept == [2 * count > n for count in range(n + 1)]


def test_what_could_not_be_judged_is_counted_apart_from_what_is_wrong():
    labels = {"a": [True, True, None], "b": [True, None, None], "c": [True, False, False, None]}
    samples = [
        Sample(name, "?", "", is_correct=label)
        for place in range(4)
        for name, words in labels.items()
        for label in words[place : place + 1]
    ]
    rates = pass_rates_of(samples)
    assert [(r.num_responses, r.num_correct, r.num_not_judged) for r in rates.values()] == [
        (3, 2, 1),
        (3, 1, 2),
        (4, 1, 1),
    ]
    assert rejected_by_pass_rate(list(rates), rates, **MAJORITY) == [
        "",
        "too many responses could not be judged",
        "pass rate not above threshold",
    ]
