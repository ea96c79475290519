"""K-center on a GPU or its stand-in takes the points that it takes on a CPU."""

import numpy as np
import pytest

from klearlib.curation.coverage import k_center_greedy

pytestmark = pytest.mark.gpu


def test_whole_numbers_give_the_same_order_to_the_last_tie(device):
    points = np.random.default_rng(0).integers(-9, 10, (20_000, 64)).astype(np.float32)
    expected = k_center_greedy(points, 3000)
    assert k_center_greedy(points, 3000, device=device).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_real_points_are_covered_as_well(dtype, device):
    """Rounding may change places between points whose distances agree; the radius may not move."""
    draws = np.random.default_rng(1)
    points = (draws.standard_normal((5000, 32)) + 4 * draws.integers(0, 3, (5000, 1))).astype(dtype)
    radii = []
    for each in (None, device):
        centers = points[k_center_greedy(points, 400, device=each)].astype(np.float64)
        squares = (centers**2).sum(1)
        rows = points.astype(np.float64)
        nearest = ((rows**2).sum(1)[:, None] - 2 * rows @ centers.T + squares).min(axis=1)
        radii.append(float(nearest.max()))
    assert radii[1] == pytest.approx(radii[0], rel=1e-2)
