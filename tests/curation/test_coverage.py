"""K-center against the plain algorithm as it is defined, with ties, copies and rounding."""

from itertools import pairwise

import numpy as np
import pytest

from klearlib.curation import coverage
from klearlib.curation.coverage import k_center_greedy
from klearlib.errors import KlearError

DEVICES = [None, "cpu"]  # "cpu" runs the code of a GPU


def plain_greedy(points, k: int, first: int = 0) -> list[int]:
    """argmax over the points not chosen of the distance to the nearest chosen, in whole numbers."""
    points = np.asarray(points).astype(np.int64)
    nearest = np.full(len(points), np.iinfo(np.int64).max)
    chosen = [first]
    while len(chosen) < k:
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        nearest[chosen] = -1
        farthest = np.flatnonzero(nearest == nearest.max())
        chosen.append(int(farthest[0]))
    return chosen


def assert_always_the_farthest(points, chosen, *, tolerance: float) -> None:
    points = np.asarray(points, np.float64)
    assert len(set(chosen.tolist())) == len(chosen)
    nearest = np.full(len(points), np.inf)
    for before, new in pairwise(chosen):
        nearest = np.minimum(nearest, np.linalg.norm(points - points[before], axis=1))
        assert nearest[new] >= nearest.max() * (1 - tolerance)


@pytest.fixture
def few_candidates(monkeypatch):
    """A function that makes rounds and blocks so small that a few points take many of them."""

    def set_to(candidates: int, block: int) -> None:
        monkeypatch.setattr(coverage, "_FEWEST_CANDIDATES", candidates)
        monkeypatch.setattr(coverage, "_MOST_CANDIDATES", 3 * candidates)
        monkeypatch.setattr(coverage, "_BLOCK_VALUES", block)
        monkeypatch.setattr(coverage, "_DEVICE_BLOCK_VALUES", block)

    return set_to


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_the_plain_algorithm_on_whole_numbers_with_ties_and_copies(few_candidates, device):
    rng = np.random.default_rng(0)
    for _ in range(100):
        num, dim = int(rng.integers(1, 60)), int(rng.integers(1, 5))
        # From nearly all copies and ties, to squares beyond 24 bits, far from the origin or not.
        size, away = int(rng.choice([1, 2, 5, 10**4, 10**6])), int(rng.choice([0, 10**6]))
        points = rng.integers(-size, size + 1, (num, dim)) + away
        k, first = int(rng.integers(1, num + 1)), int(rng.integers(num))
        few_candidates(int(rng.integers(1, 12)), int(rng.choice([1, 50, 10**6])))
        chosen = k_center_greedy(points, k, first=first, device=device)
        assert chosen.tolist() == plain_greedy(points, k, first), (points.tolist(), k, first)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [np.int8, np.int64, np.float16, np.float32, np.float64])
def test_it_is_the_plain_algorithm_at_the_sizes_that_it_runs_with(kind, device):
    """In every type and layout; copies come last, none twice, and the argument stays."""
    points = np.asfortranarray(np.random.default_rng(1).integers(-3, 4, (3000, 12)))[::-1]
    points[1500:1700] = points[:200]
    points = points.astype(kind)
    points.flags.writeable = False
    chosen = k_center_greedy(points, 500, first=7, device=device)
    assert chosen.dtype == np.int64 and chosen.tolist() == plain_greedy(points, 500, 7)
    few = np.repeat(points[:40], 5, axis=0)
    assert k_center_greedy(few.tolist(), 200, device=device).tolist() == plain_greedy(few, 200)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("points", "first", "chosen"),
    [
        # In float32, 5000^2 + 1 is 5000^2, and the second point would win the tie.
        (np.array([[0, 0], [5000, 0], [-5000, 1]], np.float32), 0, [0, 2]),
        # A copy of the first point waits although its index is lower.
        ([[1.5], [1.5], [0.0], [1.5]], 1, [1, 2, 0, 3]),
        ([[1.0], [1.0], [-1.0], [0.0], [-0.0]], 0, [0, 2, 3, 1, 4]),
    ],
)
def test_cases_by_hand(points, first, chosen, device):
    assert k_center_greedy(points, len(chosen), first=first, device=device).tolist() == chosen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kind", "power"), [(np.float32, 100), (np.float64, 400)])
def test_neither_an_outlier_nor_a_scale_drowns_the_distances_that_are_left(kind, power, device):
    points = np.array([[0, 0], [0, 0.1], [0.5, 0], [2e4, 0], [2e4, 0.1], [2e4, 0.25]], kind)
    for scale in (0, -power, power):
        scaled = np.ldexp(points, scale)
        for given in (scaled, scaled[:, ::-1]):
            assert k_center_greedy(given, 6, device=device).tolist() == [0, 5, 2, 3, 1, 4]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-3, 1e-5])
def test_float32_tells_near_points_apart(few_candidates, width, device):
    few_candidates(16, 1000)
    rng = np.random.default_rng(14)
    middles = rng.standard_normal((7, 40))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    points = np.repeat(middles, 60, axis=0) + width * rng.standard_normal((420, 40))
    points = points.astype(np.float32)
    for k in (8, 100, 400):
        chosen = k_center_greedy(points, k, device=device)
        assert_always_the_farthest(points, chosen, tolerance=1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_copies_follow_when_all_others_are_taken_and_none_comes_twice(kind, device):
    rng = np.random.default_rng(3)
    points = rng.standard_normal((40, 16)).astype(kind)[rng.integers(0, 40, 300)]
    chosen = k_center_greedy(points, 300, first=150, device=device)
    num_rows = len(np.unique(points, axis=0))
    assert chosen[0] == 150 and sorted(chosen.tolist()) == list(range(300))
    assert len(np.unique(points[chosen[:num_rows]], axis=0)) == num_rows
    assert chosen[num_rows:].tolist() == sorted(chosen[num_rows:].tolist())


def test_points_that_differ_by_rounding_only_never_come_twice():
    rng = np.random.default_rng(4)
    middle = rng.standard_normal((5, 64)).astype(np.float32)
    points = np.repeat(middle, 60, axis=0) * (1 + rng.integers(-2, 3, (300, 1)) * 2.0**-23)
    chosen = k_center_greedy(points.astype(np.float32), 300)
    assert sorted(chosen.tolist()) == list(range(300))
    assert sorted(chosen[:5] // 60) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "tolerance"), [(np.float16, 1e-4), (np.float32, 1e-4), (np.float64, 1e-12)]
)
def test_every_pick_is_the_farthest_to_within_rounding(few_candidates, kind, tolerance, device):
    few_candidates(16, 1000)
    points = np.random.default_rng(5).standard_normal((400, 30)).astype(kind)
    chosen = k_center_greedy(points, 200, device=device)
    assert_always_the_farthest(points, chosen, tolerance=tolerance)


def test_far_from_the_origin_small_distances_survive():
    points = np.random.default_rng(6).standard_normal((300, 8)) + 1e7
    assert_always_the_farthest(points, k_center_greedy(points, 150), tolerance=1e-7)
    points = points.astype(np.float32) / 1e4  # steps of 2^-14, a mean of 1000
    assert_always_the_farthest(points, k_center_greedy(points, 150), tolerance=1e-4)


@pytest.mark.parametrize(
    ("embeddings", "options", "message"),
    [
        ([[1.0, 2.0], [float("nan"), 0.0]], {}, "row 1 of"),
        (np.zeros((0, 4)), {}, "got shape"),
        *(([[0], [1], [2]], {"k": k}, r"k must be in \[1, 3\]") for k in (4, 0)),
        ([[0], [1], [2]], {"first": 3}, r"first must be in \[0, 2\]"),
    ],
)
def test_what_cannot_be_covered_is_refused(embeddings, options, message):
    with pytest.raises(KlearError, match=message):
        k_center_greedy(embeddings, **{"k": 1} | options)
