r"""How fast K-center greedy is, beside the plain algorithm in the same run.

    .venv/bin/python benchmarks/coverage_speed.py
    .venv/bin/python benchmarks/coverage_speed.py --sizes 220000 --plain-picks 100 \
        --name coverage_speed_full

The plain way is one product of all points with the point just chosen, a minimum and an argmax, in
float32. It stops after --plain-picks picks, and its time is scaled to k: a pick costs the same from
first to last. On whole numbers the order of these picks is compared with ours. k is 31,600 for
220,000 points and in proportion for fewer.

Three kinds of points of 384 dimensions: whole numbers from -9 to 9, clusters (200 of them, 0.3
wide), and the hashed TF-IDF of made-up prompts of 80 words. Seconds are of the clock; CPU seconds
show what they are worth on a busy machine. Writes benchmarks/results/coverage_speed.csv.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
from common import arguments_of, keep

from klearlib.curation.coverage import k_center_greedy
from klearlib.curation.embeddings import hashed_tfidf

DIM = 384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 50_000])
    parser.add_argument("--points", nargs="+", choices=POINTS, default=list(POINTS))
    parser.add_argument("--plain-picks", type=int, default=3000)
    parser.add_argument("--device", help="a device of torch for ours; default: numpy")
    parser.add_argument("--name", default="coverage_speed", help="of the table")
    arguments = arguments_of(parser, sizes=[300], plain_picks=20)
    rows = [
        measures(name, size, arguments.plain_picks, arguments.device)
        for size in sorted(arguments.sizes)
        for name in arguments.points
    ]
    keep(rows, arguments.name, arguments)


def measures(name: str, size: int, plain_picks: int, device: str | None) -> dict:
    points = POINTS[name](size)
    k = size * 31_600 // 220_000
    chosen, ours_s, ours_cpu_s = timed(lambda: k_center_greedy(points, k, device=device))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    picks = min(plain_picks, k)
    plain, plain_s, plain_cpu_s = timed(lambda: plain_greedy(points, picks))
    whole = name == "whole numbers"
    if whole:
        assert chosen[:picks].tolist() == plain, "not the order of the plain algorithm"
    return {
        "points": name,
        "N": size,
        "k": k,
        "ours s": ours_s,
        "ours CPU s": ours_cpu_s,
        "plain picks": picks,
        "plain s for k": plain_s * k / picks,
        "plain CPU s for k": plain_cpu_s * k / picks,
        "times faster": plain_s * k / picks / ours_s,
        "times less CPU": plain_cpu_s * k / picks / ours_cpu_s,
        "order": "the same" if whole else "not compared",
        "peak MB of the run so far": peak_mb,
    }


def timed(run: Callable) -> tuple:
    start, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - start, time.process_time() - cpu


def plain_greedy(points: np.ndarray, k: int) -> list[int]:
    """One matrix-vector product a pick."""
    squares = np.einsum("nd,nd->n", points, points)
    nearest = np.full(len(points), np.inf, np.float32)
    chosen = [0]
    while len(chosen) < k:
        new = chosen[-1]
        distances = points @ points[new]
        distances *= -2
        distances += squares
        distances += squares[new]
        np.minimum(nearest, distances, out=nearest)
        nearest[new] = -1
        chosen.append(int(nearest.argmax()))
    return chosen


def whole_numbers(size: int) -> np.ndarray:
    drawn = np.random.default_rng(0).integers(-9, 10, (size, DIM), dtype=np.int8)
    return drawn.astype(np.float32)


def clusters(size: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((size, DIM), dtype=np.float32)
    points *= 0.3
    points += rng.standard_normal((200, DIM), dtype=np.float32)[rng.integers(0, 200, size)]
    return points


def prompts(size: int) -> np.ndarray:
    """80 words of 50,000 by Zipf's law."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(50_000)], dtype=object)
    texts = [" ".join(words[rng.zipf(1.2, 80) % len(words)]) for _ in range(size)]
    return hashed_tfidf(texts, dim=DIM, seed=0)


POINTS = {"whole numbers": whole_numbers, "clusters": clusters, "TF-IDF of prompts": prompts}


if __name__ == "__main__":
    main()
