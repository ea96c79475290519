"""Texts as vectors for `k_center_greedy`, by their words: the paper does not say what its K-center
measures distances between, and words see that two problems are worded alike."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from zlib import crc32

import numpy as np
from scipy.sparse import csr_array

from klearlib.curation.normalise import printed, words

_NUM_BUCKETS = 2**16  # words that share one count as one word


def hashed_tfidf(texts: Iterable[str], *, dim: int, seed: int) -> np.ndarray:
    """TF-IDF over hashed words, brought to `dim` dimensions by random signs, rows of length 1 or 0.

    The words are those of `normalise.words`. A word's bucket b is its CRC-32 modulo 2^16. With n_tb
    of them in text t, and b in N_b of the N texts::

        w_tb = (1 + ln n_tb) (1 + ln((1 + N) / (1 + N_b)))        v_t = sum_b w_tb R_b / |...|

    where R_b is a row of `dim` signs drawn from `seed`. The product of two rows is the cosine of
    their TF-IDF vectors up to an error of about 1 / sqrt(dim) (Johnson and Lindenstrauss), so the
    squared distance is 2 - 2 cos.

    Args:
        texts: N >= 1 texts, of which none is held. Memory is the result, the signs, and 16 bytes
            for each different word of each text.
        dim: >= 1.
        seed: >= 0, of the signs.

    Returns:
        float32 [N, dim]. A text without a word is a row of zeros, and so is one whose signs cancel.
        The same texts give the same rows, whatever their order and the number of threads.

    >>> rows = hashed_tfidf(["Add 3 to 4.", "add 3, to 4", "A prime?"], dim=512, seed=0)
    >>> (rows @ rows.T).round(1).tolist()[0][:2], bool(abs(rows[0] @ rows[2]) < 0.2)
    ([1.0, 1.0], True)
    """
    counts = _bucket_counts(texts)
    num_texts = counts.shape[0]
    texts_with = np.bincount(counts.indices, minlength=_NUM_BUCKETS)
    rarity = (1 + np.log((1 + num_texts) / (1 + texts_with))).astype(np.float32)
    drawn = np.random.default_rng(seed).integers(0, 2, (_NUM_BUCKETS, dim), dtype=np.int8)
    weights = (1 + np.log(counts.data)) * rarity[counts.indices]
    counts.data = weights.astype(np.float32)
    rows = counts @ (2 * drawn - 1).astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=rows, where=lengths > 0)


def _bucket_counts(texts: Iterable[str]) -> csr_array:
    """How often each bucket occurs in each text: [N, `_NUM_BUCKETS`]."""

    @lru_cache(maxsize=2**17)  # of all words, few make up most of a text
    def bucket(word: str) -> int:
        return crc32(word.encode(errors="surrogatepass")) % _NUM_BUCKETS

    ends, columns, values = array("q", [0]), array("i"), array("i")
    for text in texts:
        counts = Counter(map(bucket, words(printed(text))))
        columns.extend(counts.keys())
        values.extend(counts.values())
        ends.append(len(columns))
    shape = len(ends) - 1, _NUM_BUCKETS
    found = csr_array(tuple(map(np.asarray, (values, columns, ends))), shape)
    found.sort_indices()  # the same words in another order give the same sum, bit for bit
    return found
