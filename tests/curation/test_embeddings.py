"""Texts as vectors: TF-IDF against its formula."""

import math
import re
from collections import Counter
from zlib import crc32

import numpy as np

from klearlib.curation.embeddings import hashed_tfidf

TEXTS = [
    "Start with 3 and apply +4 in turn. Apply it twice, then apply it once more.",
    "start WITH 5, and apply +4 in turn!",
    "Find the number of primes below 100.",
    "",
    "Is 97 a prime below 100? Find out.",
]


def weights(texts: list[str], num_buckets: int) -> np.ndarray:
    """(1 + ln n_tb) (1 + ln((1 + N) / (1 + N_b))): [N, num_buckets]."""
    counts = [
        Counter(crc32(word.encode()) % num_buckets for word in re.findall(r"\w+", text.lower()))
        for text in texts
    ]
    found = np.zeros((len(texts), num_buckets))
    for row, count in zip(found, counts, strict=True):
        for bucket, number in count.items():
            with_it = sum(bucket in other for other in counts)
            row[bucket] = (1 + math.log(number)) * (1 + math.log((1 + len(texts)) / (1 + with_it)))
    return found


def test_rows_are_the_formula_times_signs(monkeypatch):
    monkeypatch.setattr("klearlib.curation.embeddings._NUM_BUCKETS", 50)
    signs = 2.0 * np.random.default_rng(4).integers(0, 2, (50, 24), dtype=np.int8) - 1
    expected = weights(TEXTS, 50) @ signs
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    rows = hashed_tfidf(TEXTS, dim=24, seed=4)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, expected / np.where(lengths > 0, lengths, 1), atol=1e-6)


def test_case_punctuation_width_and_order_of_words_do_not_count():
    same = ["Add 3 to x², then stop", "add 3, to X2 THEN stop.", "then stop: ａｄｄ ３ to x2"]
    rows = hashed_tfidf([*same, "Add 4 to x2, then stop"], dim=128, seed=0)
    assert rows[0].tobytes() == rows[1].tobytes() == rows[2].tobytes()
    assert not np.allclose(rows[0], rows[3], atol=0.05)
    words = [f"w{i}" for i in range(100) for _ in range(1 + i % 7)]
    shuffled = np.random.default_rng(0).permutation(words)
    rows = hashed_tfidf([" ".join(words), " ".join(shuffled), "w1"], dim=128, seed=0)
    assert rows[0].tobytes() == rows[1].tobytes()


def test_the_order_of_texts_changes_no_row():
    rows = hashed_tfidf(TEXTS, dim=32, seed=1)
    assert hashed_tfidf(TEXTS[::-1], dim=32, seed=1)[::-1].tobytes() == rows.tobytes()
    assert not np.allclose(hashed_tfidf(TEXTS, dim=32, seed=2), rows)


def test_signs_that_cancel_leave_a_row_of_zeros():
    texts = [f"w{i} w{i + 1}" for i in range(20)]
    lengths = np.linalg.norm(hashed_tfidf(texts, dim=1, seed=0), axis=1)
    assert set(lengths.tolist()) == {0.0, 1.0}
