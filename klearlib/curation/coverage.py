"""K-center greedy: a subset of given size that leaves no point far from a chosen one (section 5.1,
which brings the pools of its data ablations to one size by it; Sener and Savarese, arXiv
1708.00489)."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from klearlib.errors import KlearError

_FEWEST_CANDIDATES, _MOST_CANDIDATES = 256, 4096
_CANDIDATES_PER_PICK = 4  # of the round before
_BLOCK_VALUES = 2**22  # 16 MB of products, read back from the cache
_DEVICE_BLOCK_VALUES = 2**27


def k_center_greedy(embeddings, k: int, *, first: int = 0, device: str | None = None) -> np.ndarray:
    """The k points of the greedy K-center algorithm, in the order in which it takes them.

    It starts from S = {first}; then, k - 1 times, the point farthest from S joins it::

        S <- S + {argmax_i min_{j in S} |x_i - x_j|}        (ties: the lowest index)

    No point then is farther from S than twice the distance that the best k centers would leave. A
    chosen point is never taken again: where only copies of chosen points are left, they follow in
    order of index (google's active-learning takes them again, and its first point at random).

    The metric is Euclidean, squared inside; between rows of length 1 the order is that of cosine
    similarity. The paper names neither embedding, nor metric, nor first point.

    This is the plain algorithm, not an approximation of it. The B farthest points are candidates;
    the best of them is a safe pick while it is ahead of every point outside, because distances only
    fall; then one matrix product brings all N distances up to date. On whole numbers the result is
    the plain one to the last tie while squared distances stay below 2^50. On others rounding may
    swap points whose distances from S agree to it: float16 and float32 are computed in float32
    while distances can be told apart to 0.1 %, at the worst rounding, and then, as beside an
    outlier or among almost equal texts, all anew in float64.

    Args:
        embeddings: [N, D], real and finite, of any numeric type that float64 holds.
        k: in [1, N].
        first: the point to start from, in [0, N).
        device: None for numpy, or a device of torch, as ``"cuda"``, for the products; leave TF32
            off, which rounds them to 10 bits.

    Returns:
        k different indices, int64 [k], `first` at the front. The same arguments give the same
        result on the same machine with the same number of threads.

    Raises:
        KlearError: `embeddings` is no matrix of finite numbers, or `k` or `first` is out of range.

    >>> k_center_greedy([[0, 0], [0, 1], [4, 0], [0, 3], [4, 0]], k=4).tolist()
    [0, 2, 3, 1]
    """
    values = np.asarray(embeddings)
    if values.dtype.kind not in "biuf" or values.ndim != 2 or 0 in values.shape:
        raise KlearError(
            "embeddings must be real numbers [N, D] with N, D >= 1, "
            f"got shape {values.shape} of the type {values.dtype}"
        )
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise KlearError(f"row {finite.argmin()} of embeddings has NaN or inf: drop or correct it")
    if not 1 <= k <= len(values):
        raise KlearError(f"k must be in [1, {len(values)}] for these points, got {k!r}")
    if not 0 <= first < len(values):
        raise KlearError(f"first must be in [0, {len(values) - 1}] for these points, got {first!r}")
    values = values.astype(np.float64) if values.dtype.itemsize >= 8 else values
    kept = _one_of_each(values, first)
    copies = np.setdiff1d(np.arange(len(values)), kept)
    values = values[kept] if len(copies) else values
    size = min(k, len(kept))
    start = int(np.flatnonzero(kept == first)[0])
    is_whole = np.array_equal(values, np.rint(values))
    middle = values.mean(axis=0, dtype=np.float64)
    middle = np.rint(middle) if is_whole else middle
    reach = np.maximum(values.max(axis=0) - middle, middle - values.min(axis=0))
    if is_whole:  # each product, sum and half square is exact: 24 bits hold 4 times the largest
        kinds = [np.float32 if (reach**2).sum() <= 2.0**22 else np.float64]
    else:
        kinds = [np.float32, np.float64] if values.dtype.itemsize <= 4 else [np.float64]
    chosen: list[int] = []
    for kind in kinds:
        if len(chosen) < size:  # from the start: no pick is owed to the shorter type
            products = _Products(_widened(values, middle, float(reach.max()), kind), device)
            least = 0 if kind is kinds[-1] else _least_told_apart(products)
            chosen = _greedy(products, size, start, least)
    return np.concatenate([kept[chosen], copies[: k - size]])


def _one_of_each(values: np.ndarray, first: int) -> np.ndarray:
    """Where each different row stands first, int64; `first` stands for its own copies."""
    places: dict[bytes, int] = {}
    for index, row in [(first, values[first]), *enumerate(values)]:
        # No negative zeros: equal rows, equal bytes.
        row = np.ascontiguousarray(row) + 0.0
        places.setdefault(blake2b(row, digest_size=16).digest(), index)
    return np.sort(np.fromiter(places.values(), np.int64, len(places)))


def _widened(values: np.ndarray, middle: np.ndarray, reach: float, kind: type) -> np.ndarray:
    """[N, D + 1] of type `kind`: the points less their middle and a column of ones.

    A common offset would cost bits. The scale is a power of two, which rounds nothing, so that no
    point reaches 1 and squares of float32 neither overflow nor vanish.
    """
    found = np.ones((len(values), values.shape[1] + 1), kind)
    scale = np.float64(2.0 ** min(-int(np.frexp(reach)[1]), 1000))
    points = found[:, :-1]
    np.subtract(values, middle, out=points, casting="same_kind")
    np.multiply(points, scale, out=points, casting="same_kind")
    return found


def _least_told_apart(products: _Products) -> float:
    """The squared distance that the worst rounding changes by less than one in 2^10.

    With unit roundoff u and M = max |x|^2, a squared distance from D + 1 products, two squares and
    rounded coordinates is off by at most (3 D + 20) u M, whatever the order of the sum.
    """
    unit = np.finfo(products.squares.dtype).eps / 2
    num_products = products.points.shape[1]
    return float(2**10 * (3 * num_products + 17) * unit * products.squares.max())


def _greedy(products: _Products, k: int, first: int, least: float) -> list[int]:
    """K-center among points of which no two are equal, while squared distances reach `least`."""
    squares = products.squares
    # |x - c|^2 = |x|^2 - 2 s with s = x.c - |c|^2 / 2: only the largest s over S is kept.
    largest = np.full_like(squares, -np.inf)
    chosen, new = [], [first]
    while True:
        chosen += new
        if len(chosen) == k:
            return chosen
        np.maximum(largest, products.largest(np.array(new)), out=largest)
        # Rounding must neither make a distance negative nor bring a chosen point back.
        distances = np.maximum(squares - 2 * largest, 0)
        distances[chosen] = -1
        if distances.max() < least:
            return chosen
        missing = k - len(chosen)
        size = _CANDIDATES_PER_PICK * min(len(new), missing)
        size = min(max(size, _FEWEST_CANDIDATES), _MOST_CANDIDATES)
        new = _safe_picks(products, distances, size, missing, least)


def _safe_picks(
    products: _Products, distances: np.ndarray, size: int, most: int, least: float
) -> list[int]:
    """Up to `most` next points, at least one; `distances` are squared, -1 for chosen points.

    The farthest is at least `least` away, and so is each pick.
    """
    candidates = _farthest(distances, size)
    outside = distances.copy()
    outside[candidates] = -1
    rival = int(outside.argmax())
    near = distances[candidates]
    between = products.between(candidates)
    picks = []
    while len(picks) < min(most, len(candidates)):
        best = int(near.argmax())
        index = int(candidates[best])
        if near[best] < least or (near[best], -index) < (outside[rival], -rival):
            break
        picks.append(index)
        np.minimum(near, between[best], out=near)
        near[best] = -1
    return picks


def _farthest(distances: np.ndarray, size: int) -> np.ndarray:
    """The `size` farthest points that are not chosen, ties to the lowest index, by index."""
    if size < len(distances):
        cut = max(np.partition(distances, -size)[-size], 0)
        above = np.flatnonzero(distances > cut)
        equal = np.flatnonzero(distances == cut)[: size - len(above)]
        return np.sort(np.concatenate([above, equal]))
    return np.flatnonzero(distances >= 0)


class _Products:
    """What the algorithm asks of points [N, D + 1] whose last column is 1. Products over all points
    are by torch on `device`, where there is one; the picks stay on the CPU."""

    def __init__(self, points: np.ndarray, device: str | None = None):
        self.points = points
        coordinates = points[:, :-1]
        squares = np.einsum("nd,nd->n", coordinates, coordinates, dtype=np.float64)
        self.squares = squares.astype(points.dtype)
        self.placed = None
        if device is not None:
            import torch

            self.placed = torch.from_numpy(points).to(device)

    def largest(self, chosen: np.ndarray) -> np.ndarray:
        """max over c in `chosen` of x.c - |c|^2 / 2, for every point: [N]."""
        centers = self.points[chosen]
        centers[:, -1] = -self.squares[chosen] / 2
        if self.placed is None:
            step = max(_BLOCK_VALUES // len(chosen), 1)
            blocks = range(0, len(self.points), step)
            rows = (self.points[block : block + step] for block in blocks)
            return np.concatenate([(centers @ block.T).max(axis=0) for block in rows])
        import torch

        placed = torch.from_numpy(centers).to(self.placed.device)
        blocks = self.placed.split(max(_DEVICE_BLOCK_VALUES // len(chosen), 1))
        return torch.cat([(placed @ block.T).amax(dim=0) for block in blocks]).cpu().numpy()

    def between(self, candidates: np.ndarray) -> np.ndarray:
        """The squared distances among `candidates`: [B, B]."""
        points, squares = self.points[candidates, :-1], self.squares[candidates]
        found = points @ points.T
        found *= -2
        found += squares
        found += squares[:, None]
        return np.maximum(found, 0, out=found)
