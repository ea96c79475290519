"""The comparison of two arms over replicates, and the order in which verdicts are checked."""

import itertools
from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from klearlib.evaluate.statistics import (
    Comparison,
    compare,
    decide,
    pooled_spread,
    replicates_needed,
    sign_flip_p,
)

A = [0.52, 0.55, 0.50, 0.53, 0.54, 0.58]
B = [0.49, 0.51, 0.50, 0.49, 0.51, 0.52]


def comparison(value, error, num=5, *, margin=5.0):
    """What `compare` finds for a mean and its standard error, by scipy.stats."""
    half, inner = (stats.t.ppf(q, num - 1) * error for q in (0.975, 0.95))
    p = stats.t.sf(value / error, num - 1)
    equivalent = abs(value) + inner < margin
    return Comparison(value, value - half, value + half, p, 1 - p, equivalent, num)


def test_compare_is_the_paired_t_test_in_both_directions_and_two_one_sided_tests():
    found = compare(A, B, margin=0.05)
    greater = stats.ttest_rel(A, B, alternative="greater")
    interval = stats.ttest_rel(A, B).confidence_interval(0.95)
    assert found.value == pytest.approx(np.mean(A) - np.mean(B))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p_greater == pytest.approx(greater.pvalue)
    assert found.p_less == pytest.approx(stats.ttest_rel(A, B, alternative="less").pvalue)
    assert found.num_replicates == 6
    inner = stats.ttest_rel(A, B).confidence_interval(0.90)
    assert found.smallest_margin == pytest.approx(max(-inner.low, inner.high))
    for margin in (0.9, 1.1):
        margin *= found.smallest_margin
        tost = max(
            stats.ttest_rel(np.add(A, margin), B, alternative="greater").pvalue,
            stats.ttest_rel(np.subtract(A, margin), B, alternative="less").pvalue,
        )
        assert compare(A, B, margin=margin).equivalent is bool(tost < 0.05)


def test_problems_are_averaged_first_and_only_replicates_count():
    draws = np.random.default_rng(0)
    a, b = draws.random((2, 4, 30))
    both = (compare(*pair, margin=0.1) for pair in ((a, b), (a.mean(1), b.mean(1))))
    one, other = map(astuple, both)
    assert one == pytest.approx(other) and one[-2] == 4


def test_exchanging_the_arms_mirrors_everything():
    there, back = compare(A, B, margin=0.05), compare(B, A, margin=0.05)
    assert (back.value, back.low, back.high) == (-there.value, -there.high, -there.low)
    assert (back.p_greater, back.p_less) == (there.p_less, there.p_greater)


@pytest.mark.parametrize(
    ("num", "p", "bounded"), [(2, 0.25, False), (5, 2**-5, False), (6, 2**-6, True)]
)
def test_equal_differences_are_judged_by_their_signs_alone(num, p, bounded):
    found = compare([0.3] * num, [0.1] * num, margin=0.05)
    assert (found.p_greater, found.p_less) == (p, 1.0)
    assert np.isfinite([found.low, found.high]).all() == bounded
    assert not found.equivalent
    assert decide([found], margin=0.05).verdict == ("supported" if bounded else "undecided")
    same = compare([0.3] * num, [0.3] * num, margin=0.05)
    assert (same.value, same.p_greater, same.p_less) == (0.0, 1.0, 1.0)
    assert same.equivalent is (num >= 5)
    margin = found.smallest_margin
    assert margin == (pytest.approx(0.2) if num >= 5 else np.inf)
    assert num < 5 or compare([0.3] * num, [0.1] * num, margin=margin + 1e-9).equivalent


@pytest.mark.parametrize("num", [3, 6])
def test_equal_differences_have_no_spread_however_they_round(num):
    for right in range(1, 480):
        found = compare([0.5 + right / 480] * num, [0.5] * num, margin=0.05)
        assert found.p_greater == 2.0**-num


def test_the_sign_flip_test_is_exact():
    d = np.subtract(A, B)
    means = [np.mean(np.multiply(d, signs)) for signs in itertools.product((1, -1), repeat=6)]
    assert sign_flip_p(A, B) == pytest.approx(np.mean(np.array(means) >= d.mean() - 1e-12))
    assert sign_flip_p(B, A) == sign_flip_p(A, B)


@pytest.mark.parametrize(
    ("a", "b", "how", "says"),
    [
        ([0.1], [0.2], {}, "at least 2 replicates"),
        ([0.1, 0.2], [0.2], {}, "one shape"),
        ([0.1, np.nan], [0.2, 0.3], {}, "finite"),
        (A, B, {"margin": 0.0}, "margin"),
        (A, B, {"level": 0.4}, "level"),
    ],
)
def test_what_cannot_be_compared_is_an_error(a, b, how, says):
    with pytest.raises(ValueError, match=says):
        compare(a, b, **{"margin": 0.05} | how)


# (values and standard errors of the comparisons, word, part of the reason); margin 5, R = 5
CASES = [
    ([(6, 1)], "supported", "claim's sign"),
    ([(2, 0.3)], "supported", "but smaller than 5"),
    ([(6, 1), (7, 1)], "supported", "all 2"),
    ([(-6, 1)], "contradicted", "other sign"),
    ([(-2, 0.3)], "contradicted", "by less than 5"),
    ([(9, 1), (-6, 1)], "contradicted", "1 of 2"),
    # 0.02 one-sided counts alone, but not as the smaller of two
    ([(-3.0, 1)], "contradicted", ""),
    ([(0.5, 3), (-3.0, 1)], "undecided", ""),
    ([(1, 0.9)], "no difference", "+-2.92"),
    ([(0, 2), (-1, 1)], "no difference", ""),
    ([(9, 1), (0, 1)], "mixed", "1 of 2"),
    # supported before Holm only: not enough for mixed
    ([(5.7, 2.0), (0, 1)], "undecided", ""),
    ([(3, 4)], "undecided", ""),
]


@pytest.mark.parametrize(("pairs", "word", "says"), CASES)
def test_the_first_word_that_fits(pairs, word, says):
    found = decide([comparison(*pair) for pair in pairs], margin=5.0)
    assert found.verdict == word
    assert says in found.reason
    assert (found.replicates_needed is not None) == (word == "undecided")


def test_replicates_needed_follow_from_the_spread_and_never_from_the_difference():
    few = [comparison(value, 4.0, num=3) for value in (0.0, 3.0)]
    needed = {decide([each], margin=5.0).replicates_needed for each in few}
    spread = 4.0 * np.sqrt(3)

    def half(num, q=0.975):
        return stats.t.ppf(q, num - 1) * spread / np.sqrt(num)

    (num,) = needed
    assert half(num) <= 5.0 < half(num - 1)
    assert pooled_spread(few) == pytest.approx(spread)
    # the half-width is there already: sign and equivalence have to leave no gap
    enough = comparison(3.0, spread / np.sqrt(num), num=num)
    more = replicates_needed([enough], margin=5.0)
    assert half(more) + half(more, 0.95) <= 5.0 < half(more - 1) + half(more - 1, 0.95)
    narrow = comparison(3.0, 0.1, num=3)
    assert replicates_needed([narrow, few[0]], margin=5.0, spread=0.1) == num  # the widest counts
    assert replicates_needed([narrow], margin=5.0, spread=spread) == num
    assert replicates_needed([narrow], margin=5.0, spread=0.1) == 4  # one more than there are
    assert replicates_needed(few, margin=1e-4) is None


@pytest.mark.parametrize(
    ("comparisons", "how"),
    [([], {}), ([comparison(1, 1)], {"margin": 0}), ([comparison(1, 1)], {"spread": 0.0})],
)
def test_what_cannot_be_decided_is_an_error(comparisons, how):
    with pytest.raises(ValueError, match=r"comparisons|margin|spread"):
        decide(comparisons, **{"margin": 5.0} | how)
