"""K-center against the plain algorithm as it is defined, with ties, copies and rounding."""

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest

from klearlib.curation import coverage
from klearlib.curation.coverage import k_center_greedy
from klearlib.curation.embeddings import hashed_tfidf
from klearlib.errors import KlearError, MissingAsset

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


def radius(points, chosen) -> float:
    points = np.asarray(points, float)
    return max(min(np.linalg.norm(p - points[c]) for c in chosen) for p in points)


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
def test_it_is_the_plain_algorithm_at_the_sizes_that_it_runs_with(device):
    points = np.random.default_rng(1).integers(-3, 4, (3000, 12))
    points[1500:1700] = points[:200]
    chosen = k_center_greedy(points, 500, first=7, device=device)
    assert chosen.tolist() == plain_greedy(points, 500, 7)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_outlier_does_not_drown_the_distances_that_are_left(kind, device):
    points = np.array([[0, 0], [0, 0.1], [0.5, 0], [2e4, 0], [2e4, 0.1], [2e4, 0.25]], kind)
    chosen = k_center_greedy(points, 6, device=device)
    assert chosen.tolist() == [0, 5, 2, 3, 1, 4]
    assert k_center_greedy(points[:, ::-1], 6, device=device).tolist() == chosen.tolist()
    for power in (-100, 100):  # of the scale it does not depend
        assert k_center_greedy(np.ldexp(points, power), 6).tolist() == chosen.tolist()


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


@pytest.mark.parametrize("dim", [1, 30, 400])
def test_the_bound_on_rounding_holds_and_is_not_wide(dim):
    rng = np.random.default_rng(15)
    points = np.float32(rng.standard_normal((300, dim)) + 50 * rng.integers(0, 2, (300, 1)))
    middle = points.mean(axis=0, dtype=np.float64)
    reach = float(np.abs(points - middle).max())
    products = coverage._NumpyProducts(coverage._widened(points, middle, reach, np.float32))
    exact = coverage._widened(points, middle, reach, np.float64)[:, :-1]
    exact = ((exact[:, None] - exact) ** 2).sum(axis=2)
    by_row = [products.squares - 2 * products.largest(np.array([row])) for row in range(300)]
    allowed = coverage._least_told_apart(products) / 2**10
    for found in (np.array(by_row), products.between(np.arange(300))):
        assert np.abs(found - exact).max() < allowed
    assert allowed < 1e-4 * products.squares.max()


def test_tfidf_rows_and_small_whole_numbers_stay_in_float32(monkeypatch):
    used = []

    class Recorded(coverage._NumpyProducts):
        def __init__(self, points):
            used.append(points.dtype)
            super().__init__(points)

    monkeypatch.setattr(coverage, "_NumpyProducts", Recorded)
    rng = np.random.default_rng(16)
    words = np.array([f"w{i}" for i in range(3000)])
    rows = hashed_tfidf([" ".join(rng.choice(words, 60)) for _ in range(300)], dim=384, seed=0)
    k_center_greedy(rows, 300)
    k_center_greedy(rng.integers(-9, 10, (300, 384)) + 2**40, 300)
    assert used == [np.float32, np.float32]
    near = rows[:2].repeat(9, axis=0)
    near += np.float32(1e-3) * rng.standard_normal(near.shape, dtype=np.float32)
    k_center_greedy(near, 2)
    k_center_greedy(near, 9)
    assert used[2:] == [np.float32, np.float32, np.float64]


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.float16, np.float32, np.float64])
def test_whole_numbers_are_exact_in_every_type(kind):
    points = np.random.default_rng(2).integers(-100, 100, (300, 20)).astype(kind)
    assert k_center_greedy(points, 120).tolist() == plain_greedy(points, 120)
    assert k_center_greedy(points.tolist(), 120).tolist() == plain_greedy(points, 120)


def test_squares_beyond_24_bits_are_not_rounded():
    # In float32, 5000^2 + 1 is 5000^2, and the second point would win the tie.
    points = np.array([[0, 0], [5000, 0], [-5000, 1]], np.float32)
    assert k_center_greedy(points, 2).tolist() == [0, 2]
    assert k_center_greedy(points, 2, device="cpu").tolist() == [0, 2]


def test_equal_distances_go_to_the_lowest_index_wherever_the_candidates_end(few_candidates):
    few_candidates(4, 10)
    corners = np.eye(50, dtype=int)
    assert k_center_greedy(corners, 50, first=20).tolist() == [
        20,
        *(i for i in range(50) if i != 20),
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_copies_follow_when_all_others_are_taken_and_none_comes_twice(kind, device):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((40, 16)).astype(kind)
    points = rows[rng.integers(0, 40, 300)]
    num_rows = len(np.unique(points, axis=0))
    chosen = k_center_greedy(points, 300, first=150, device=device)
    assert sorted(chosen.tolist()) == list(range(300))
    assert chosen[0] == 150
    assert len(np.unique(points[chosen[:num_rows]], axis=0)) == num_rows
    assert chosen[num_rows:].tolist() == sorted(chosen[num_rows:].tolist())


def test_a_copy_of_the_first_point_waits_although_its_index_is_lower():
    assert k_center_greedy([[1.5], [1.5], [0.0], [1.5]], 4, first=1).tolist() == [1, 2, 0, 3]
    assert k_center_greedy([[1.0], [1.0], [-1.0], [0.0], [-0.0]], 5).tolist() == [0, 2, 3, 1, 4]


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


@pytest.mark.parametrize(("kind", "powers"), [(np.float32, (-100, 100)), (np.float64, (-400, 400))])
def test_a_scale_beyond_the_range_of_squares_changes_nothing(kind, powers):
    points = np.random.default_rng(7).standard_normal((200, 8)).astype(kind)
    expected = k_center_greedy(points, 100).tolist()
    for power in powers:
        assert k_center_greedy(np.ldexp(points, power), 100).tolist() == expected


def test_fewer_points_are_the_beginning_of_more():
    points = np.random.default_rng(8).integers(0, 4, (200, 3))
    every = k_center_greedy(points, 200).tolist()
    for k in (1, 2, 50, 199):
        assert k_center_greedy(points, k).tolist() == every[:k]


def test_the_radius_is_at_most_twice_the_best():
    rng = np.random.default_rng(9)
    for _ in range(20):
        points = rng.standard_normal((9, 2))
        best = min(radius(points, centers) for centers in combinations(range(9), 3))
        assert radius(points, k_center_greedy(points, 3)) <= 2 * best


def test_the_same_call_gives_the_same_points_and_leaves_its_argument_alone():
    points = np.random.default_rng(10).standard_normal((2000, 32)).astype(np.float32)
    before = points.copy()
    runs = [k_center_greedy(points, 700) for _ in range(3)]
    assert runs[0].tolist() == runs[1].tolist() == runs[2].tolist()
    assert runs[0].dtype == np.int64
    assert np.array_equal(points, before)


def test_the_layout_in_memory_does_not_matter():
    points = np.asfortranarray(np.random.default_rng(12).integers(0, 9, (200, 5)))[::-1]
    points.flags.writeable = False
    assert k_center_greedy(points, 150).tolist() == plain_greedy(points, 150)


def test_torchs_settings_neither_round_products_nor_change():
    import torch

    points = np.random.default_rng(11).integers(-100, 100, (400, 64))
    expected = plain_greedy(points, 200)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert k_center_greedy(points, 200, device="cpu").tolist() == expected
        assert torch.get_float32_matmul_precision() == "medium"
        assert k_center_greedy(torch.tensor(points), 200).tolist() == expected
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        ([[1.0, 2.0], [float("nan"), 0.0]], "1 rows of embeddings hold NaN or inf.* row 1"),
        ([[1.0, float("inf")], [0.0, -float("inf")]], "2 rows .* the first is row 0"),
        ([[1e200], [0]], "must not exceed 1e.150: scale them down"),
        (np.zeros((0, 4)), r"N, D >= 1, got shape \(0, 4\)"),
        (np.zeros((4, 0)), r"N, D >= 1, got shape \(4, 0\)"),
        ([], r"got shape \(0,\)"),
        (np.zeros(4), r"must be \[N, D\]"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        ([[1, 2], [3]], "must be a matrix"),
        ([["a"], ["b"]], "real numbers, got the type <U1"),
        ([[1j], [2j]], "real numbers, got the type complex128"),
        ([[None], [1]], "real numbers, got the type object"),
    ],
)
def test_embeddings_that_are_no_finite_matrix_are_refused(embeddings, message):
    with pytest.raises(KlearError, match=message):
        k_center_greedy(embeddings, 1)


@pytest.mark.parametrize(
    ("k", "first", "message"),
    [
        (4, 0, r"k must be in \[1, 3\] for these points, got 4"),
        (0, 0, r"k must be in \[1, 3\]"),
        (-1, 0, r"k must be in \[1, 3\]"),
        (1.5, 0, "k must be a whole number, got 1.5"),
        (2, 3, r"first must be in \[0, 2\]"),
        (2, -1, r"first must be in \[0, 2\]"),
        (2, None, "first must be a whole number, got None"),
    ],
)
def test_numbers_out_of_range_are_refused(k, first, message):
    with pytest.raises(KlearError, match=message):
        k_center_greedy([[0], [1], [2]], k, first=first)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_here_is_named(device):
    with pytest.raises(MissingAsset, match=f"device '{device}' is not here"):
        k_center_greedy([[0], [1]], 1, device=device)


def test_without_a_device_torch_is_not_imported():
    code = (
        "import sys, klearlib.curation.embeddings\n"
        "from klearlib.curation.coverage import k_center_greedy\n"
        "assert k_center_greedy([[0], [1]], 2).tolist() == [0, 1]\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
