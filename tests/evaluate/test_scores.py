"""Scores against enumeration, and intervals against simulation: they must keep their level."""

import itertools
import math

import numpy as np
import pytest

from klearlib.evaluate.scores import (
    avg_at_n,
    pass_at_k,
    problem_interval,
    sampling_error,
    sampling_interval,
    unseen_rate,
)


def draw(rng, rates, n):
    return rng.random((len(rates), n)) < np.asarray(rates)[:, None]


def test_avg_at_n_by_hand():
    correct = np.array([[True, False, False, True], [False, False, False, True]])
    assert avg_at_n(correct) == 3 / 8
    assert avg_at_n(np.ones((1, 1), dtype=bool)) == 1.0


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_response(n):
    correct = np.array(list(itertools.product([False, True], repeat=n)))
    for k in range(1, n + 1):
        subsets = list(itertools.combinations(range(n), k))
        hits = [[row[list(subset)].any() for subset in subsets] for row in correct]
        assert pass_at_k(correct, k) == pytest.approx(np.mean(hits), abs=1e-12)
        for row, hit in zip(correct, hits, strict=True):
            assert pass_at_k(row[None], k) == pytest.approx(np.mean(hit), abs=1e-12)
    assert pass_at_k(correct, 1) == pytest.approx(avg_at_n(correct))


def test_pass_at_k_of_large_n_neither_overflows_nor_loses_digits():
    correct = np.zeros((1, 2000), dtype=bool)
    correct[0, :3] = True
    exact = 1 - math.comb(1997, 500) / math.comb(2000, 500)
    assert pass_at_k(correct, 500) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_k_refuses_k_outside_the_responses(k):
    with pytest.raises(ValueError, match="from 1 to n = 4"):
        pass_at_k(np.ones((3, 4), dtype=bool), k)


@pytest.mark.parametrize("correct", [np.ones((2, 3)), np.ones(3, bool), np.ones((0, 3), bool)])
def test_scores_refuse_what_is_not_problems_by_responses(correct):
    calls = (avg_at_n, sampling_error, sampling_interval, problem_interval)
    for call in (*calls, lambda array: pass_at_k(array, 1)):
        with pytest.raises(ValueError, match=r"expected a bool array \[problems, n\].*got"):
            call(correct)


def test_sampling_error_is_unbiased_with_problems_fixed():
    rng = np.random.default_rng(0)
    rates, n = np.linspace(0.02, 0.98, 12), 4
    exact = np.sum(rates * (1 - rates)) / n / len(rates) ** 2
    draws = [sampling_error(draw(rng, rates, n)) ** 2 for _ in range(3000)]
    assert np.mean(draws) == pytest.approx(exact, rel=0.02)


def test_sampling_error_of_single_responses_is_never_too_small_on_average():
    rng = np.random.default_rng(1)
    rates = np.array([0.0, 0.1, 0.5, 0.9, 1.0, 1.0])
    exact = np.sum(rates * (1 - rates)) / len(rates) ** 2
    draws = [sampling_error(draw(rng, rates, 1)) ** 2 for _ in range(4000)]
    assert np.mean(draws) > exact


def test_sampling_interval_covers_the_true_score_of_these_problems():
    rng = np.random.default_rng(2)
    rates = rng.random(30)
    covered = []
    for _ in range(800):
        low, high = sampling_interval(draw(rng, rates, 16))
        covered.append(low <= rates.mean() <= high)
    assert 0.935 < np.mean(covered) < 0.975


def test_problem_interval_covers_the_pool_that_the_sampling_interval_does_not():
    rng = np.random.default_rng(3)
    over_problems, over_samples = [], []
    for _ in range(1000):
        correct = draw(rng, rng.beta(0.6, 0.6, size=30), 16)
        low, high = problem_interval(correct)
        over_problems.append(low <= 0.5 <= high)
        low, high = sampling_interval(correct)
        over_samples.append(low <= 0.5 <= high)
    assert 0.93 < np.mean(over_problems) < 0.97
    assert np.mean(over_samples) < 0.6


def test_intervals_stay_in_range_and_agreement_is_not_certainty():
    for value in (False, True):
        correct = np.full((8, 4), value)
        low, high = sampling_interval(correct)
        assert high - low == pytest.approx(unseen_rate(32)) and 0 <= low <= high <= 1
        low, high = problem_interval(correct)
        assert high - low == pytest.approx(unseen_rate(8)) and 0 <= low <= high <= 1
    same = np.tile([True, False, False, True], (8, 1))  # each problem half right
    low, high = problem_interval(same)
    assert (0.5 - low, high - 0.5) == (pytest.approx(unseen_rate(8)),) * 2
    nearly = np.ones((30, 64), dtype=bool)
    nearly[0, 0] = False  # of one slip nobody gets more certain
    assert problem_interval(nearly)[0] == pytest.approx(nearly.mean() - unseen_rate(30))
    assert problem_interval(np.ones((1, 9), dtype=bool)) == (0.0, 1.0)
    # exact interval of no event in 20 draws, from the tables of the binomial
    assert unseen_rate(20) == pytest.approx(0.168433, abs=1e-6)
