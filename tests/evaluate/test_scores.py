"""Scores against enumeration, and intervals against simulation: they must keep their level."""

import itertools
import math

import numpy as np
import pytest

from klearlib.evaluate.scores import (
    avg_at_n,
    paired_difference,
    pass_at_k,
    problem_interval,
    sampling_error,
    sampling_interval,
    seeds_needed,
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


@pytest.mark.parametrize("k", [0, -1, 5, True, 2.0, "2"])
def test_pass_at_k_refuses_k_outside_the_responses(k):
    with pytest.raises(ValueError, match="from 1 to n = 4"):
        pass_at_k(np.ones((3, 4), dtype=bool), k)


@pytest.mark.parametrize(
    "correct",
    [
        np.ones((2, 3)),
        np.ones((2, 3), dtype=int),
        np.ones(3, dtype=bool),
        np.ones((0, 3), dtype=bool),
        np.ones((3, 0), dtype=bool),
        np.ones((1, 2, 3), dtype=bool),
        [["True", "False"]],
    ],
)
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


@pytest.mark.parametrize(("level", "least", "most"), [(0.95, 0.935, 0.975), (0.8, 0.775, 0.83)])
def test_sampling_interval_covers_the_true_score_of_these_problems(level, least, most):
    rng = np.random.default_rng(2)
    rates = rng.random(30)
    covered = []
    for _ in range(800):
        low, high = sampling_interval(draw(rng, rates, 16), level)
        covered.append(low <= rates.mean() <= high)
    assert least < np.mean(covered) < most


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
    assert problem_interval(np.ones((1, 9), dtype=bool)) == (0.0, 1.0)
    # exact interval of no event in 20 draws, from the tables of the binomial
    assert unseen_rate(20) == pytest.approx(0.168433, abs=1e-6)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, math.nan])
def test_levels_outside_0_to_1_are_refused(level):
    with pytest.raises(ValueError, match="between 0 and 1"):
        sampling_interval(np.ones((2, 2), dtype=bool), level)


# paired differences


def table_of(rng, num_seeds, num_problems, sd_seed, sd_problem, sd_rest, mean=0.0):
    seed = rng.normal(0, sd_seed, (num_seeds, 1))
    problem = rng.normal(0, sd_problem, (1, num_problems))
    return mean + seed + problem + rng.normal(0, sd_rest, (num_seeds, num_problems))


def test_variance_is_that_of_the_two_way_table_by_hand():
    """d = [[1, 3], [2, 8]]: seed means 2, 5; problem means 1.5, 5.5; mean 3.5; residuals +-1."""
    d = np.array([[1.0, 3.0], [2.0, 8.0]])
    out = paired_difference(d, np.zeros_like(d))
    ms_residual = 4.0
    assert out.difference == 3.5
    assert out.var_residual == pytest.approx(ms_residual)
    assert out.var_seed == pytest.approx(4.5 - ms_residual / 2)
    assert out.var_problem == pytest.approx(8.0 - ms_residual / 2)
    assert out.standard_error**2 == pytest.approx(4.5 / 2 + 8.0 / 2 - ms_residual / 4)
    half = 12.706204736 * out.standard_error
    assert (out.low, out.high) == pytest.approx((3.5 - half, 3.5 + half))


def test_standard_error_is_unbiased_for_crossed_factors():
    rng = np.random.default_rng(4)
    zero, squares, means = np.zeros((5, 9)), [], []
    for _ in range(1500):
        out = paired_difference(table_of(rng, 5, 9, 0.5, 0.7, 0.6), zero)
        squares.append(out.standard_error**2)
        means.append(out.difference)
    exact = 0.5**2 / 5 + 0.7**2 / 9 + 0.6**2 / 45
    assert np.mean(squares) == pytest.approx(exact, rel=0.06)
    assert np.var(means) == pytest.approx(exact, rel=0.12)


@pytest.mark.parametrize(
    ("sd_seed", "sd_problem", "sd_rest"),
    [(0.3, 0.3, 0.3), (0.5, 0.05, 0.2), (0.0, 0.4, 0.3), (0.0, 0.0, 0.5)],
)
@pytest.mark.parametrize(("num_seeds", "num_problems"), [(3, 30), (8, 12)])
def test_paired_interval_keeps_its_level(num_seeds, num_problems, sd_seed, sd_problem, sd_rest):
    rng = np.random.default_rng(5)
    zero = np.zeros((num_seeds, num_problems))
    covered, small = [], []
    for _ in range(300):
        a = table_of(rng, num_seeds, num_problems, sd_seed, sd_problem, sd_rest, mean=0.2)
        out = paired_difference(a, zero)
        covered.append(out.low <= 0.2 <= out.high)
        small.append(paired_difference(a - 0.2, zero).p_value < 0.05)
    assert np.mean(covered) > 0.925
    assert np.mean(small) == pytest.approx(1 - np.mean(covered))


def test_a_lucky_seed_is_no_effect_although_its_problems_agree():
    """Seeds differ by far more than problems: the interval over problems alone would exclude 0."""
    rng = np.random.default_rng(6)
    wrong, naive = [], []
    for _ in range(400):
        d = table_of(rng, 3, 30, 0.3, 0.02, 0.05)
        wrong.append(paired_difference(d, np.zeros_like(d)).p_value < 0.05)
        by_problem = d.mean(axis=0)
        naive.append(abs(by_problem.mean()) > 2.05 * by_problem.std(ddof=1) / np.sqrt(30))
    assert np.mean(wrong) < 0.08 and np.mean(naive) > 0.8


def test_pairing_order_and_sign():
    rng = np.random.default_rng(7)
    b = table_of(rng, 4, 10, 0.2, 3.0, 0.1)
    a = b + table_of(rng, 4, 10, 0.05, 0.05, 0.05, mean=0.5)
    out, back = paired_difference(a, b), paired_difference(b, a)
    assert out.p_value < 0.05 and out.low > 0
    assert (back.low, back.high) == pytest.approx((-out.high, -out.low))
    seeds, problems = rng.permutation(4), rng.permutation(10)
    again = paired_difference(a[seeds][:, problems], b[seeds][:, problems])
    assert again.p_value == pytest.approx(out.p_value)
    # the same scores with seeds and problems that do not match lose the pairing
    assert paired_difference(a, b[:, ::-1]).standard_error > 5 * out.standard_error


@pytest.mark.parametrize("shape", [(1, 30), (5, 1), (1, 1)])
def test_one_seed_or_one_problem_has_no_interval(shape):
    out = paired_difference(np.full(shape, 0.9), np.full(shape, 0.1))
    assert out.difference == pytest.approx(0.8)
    assert (out.low, out.high, out.p_value) == (-math.inf, math.inf, 1.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_no_interval_of_shares_reaches_beyond_100_points(sign):
    a, b = np.array([[1.0, 0.0], [0.6, 0.5]]), np.zeros((2, 2))
    out = paired_difference(a, b) if sign > 0 else paired_difference(b, a)
    # The t interval of two seeds is 12.7 standard errors wide.
    assert 12 * out.standard_error > 1
    assert (out.low, out.high) == (-1.0, 1.0)
    wide = paired_difference(10 * a, b)
    assert wide.high > 10 and wide.low < -1  # what is no share has no such bound


def test_equal_arms_and_rounding_are_no_difference():
    a = np.full((3, 4), 0.1 + 0.2)
    out = paired_difference(a, np.full((3, 4), 0.3))
    assert (out.difference, out.low, out.high, out.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_p_value_and_interval_agree():
    rng = np.random.default_rng(8)
    for _ in range(200):
        d = table_of(rng, 4, 6, 0.2, 0.2, 0.2, mean=0.3)
        for level in (0.95, 0.8):
            out = paired_difference(d, np.zeros_like(d), level)
            assert (out.p_value < 1 - level) == (out.low > 0 or out.high < 0)


def test_seeds_needed_is_the_first_number_that_excludes_0():
    from scipy.stats import t

    def excludes(num_seeds, difference, var_seed, var_problem, var_rest, num_problems):
        error = math.sqrt(
            var_seed / num_seeds
            + var_problem / num_problems
            + var_rest / (num_seeds * num_problems)
        )
        return difference > t.isf(0.025, min(num_seeds, num_problems) - 1) * error

    for case in [(0.1, 0.04, 0.01, 0.02, 30), (0.05, 0.01, 0.0, 0.5, 8), (3.0, 0.01, 0.0, 0.0, 5)]:
        needed = seeds_needed(*case[:4], num_problems=case[4])
        assert excludes(needed, *case)
        assert needed == 2 or not excludes(needed - 1, *case)
        assert needed == seeds_needed(-case[0], *case[1:4], num_problems=case[4])


def test_seeds_needed_is_none_where_the_problems_alone_hide_the_difference():
    assert seeds_needed(0.1, 0.01, 1.0, 0.1, num_problems=30) is None
    assert seeds_needed(0.0, 0.01, 0.0, 0.1, num_problems=30) is None
    # the limit of many seeds: t of P - 1 degrees of freedom times sqrt(var_problem / P)
    limit = 2.045229642 * math.sqrt(1.0 / 30)
    assert seeds_needed(limit * 1.01, 0.01, 1.0, 0.1, num_problems=30) is not None
    assert seeds_needed(limit * 0.99, 0.01, 1.0, 0.1, num_problems=30) is None


@pytest.mark.parametrize(
    ("a", "b", "match"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), "one shape"),
        (np.zeros(3), np.zeros(3), "one shape"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "one shape"),
        (np.full((2, 2), np.nan), np.zeros((2, 2)), "finite"),
    ],
)
def test_paired_difference_refuses_what_is_not_paired(a, b, match):
    with pytest.raises(ValueError, match=match):
        paired_difference(a, b)
