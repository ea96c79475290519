"""Texts as vectors for `k_center_greedy`: by their words, or by a model's hidden states.

The paper does not say what its K-center measures distances between. Words need no model and see
that two problems are worded alike; hidden states cost a forward pass of every text.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from zlib import crc32

import numpy as np
from scipy.sparse import csr_array

from klearlib.curation.normalise import seen_text, spread
from klearlib.errors import KlearError

_TEXTS_AT_ONCE = 4096


def hashed_tfidf(
    texts: Iterable[str], *, dim: int, seed: int, num_buckets: int = 2**16
) -> np.ndarray:
    """TF-IDF over hashed words, brought to `dim` dimensions by random signs, rows of length 1 or 0.

    The words are those of `normalise.spread`: NFKC, lower case, signs cut. A word's bucket b is its
    CRC-32 modulo `num_buckets`. With n_tb of them in text t, and b in N_b of the N texts::

        w_tb = (1 + ln n_tb) (1 + ln((1 + N) / (1 + N_b)))        v_t = sum_b w_tb R_b / |...|

    where R_b is a row of `dim` signs drawn from `seed`. The product of two rows is the cosine of
    their TF-IDF vectors up to an error of about 1 / sqrt(dim) (Johnson and Lindenstrauss), so the
    squared distance is 2 - 2 cos. Order and repetition of words beyond the count are not seen.

    Args:
        texts: N >= 1 texts, read twice and never held: a list, or an object that can be iterated
            again and again. Memory is the result and the signs, 4 dim (N + num_buckets) bytes.
        dim: >= 1.
        seed: >= 0, of the signs.
        num_buckets: words that share one count as one word.

    Returns:
        float32 [N, dim]. A text without a word is a row of zeros, and so is one whose signs cancel:
        with a `dim` of one or two that happens, with more hardly ever. The same texts give the same
        rows, whatever their order and the number of threads.

    Raises:
        KlearError: no text, texts that can be read only once or change in between, or a number that
            is not whole or out of range.

    >>> rows = hashed_tfidf(["Add 3 to 4.", "add 3, to 4", "A prime?"], dim=512, seed=0)
    >>> (rows @ rows.T).round(1).tolist()[0][:2], bool(abs(rows[0] @ rows[2]) < 0.2)
    ([1.0, 1.0], True)
    """
    dim = _whole("dim", dim, least=1)
    seed = _whole("seed", seed, least=0)
    if isinstance(texts, str | Iterator):
        raise KlearError(
            f"texts are read twice: give a list of strings, got {type(texts).__name__}"
        )
    num_texts, texts_with = 0, np.zeros(num_buckets, np.int64)
    for counts in _bucket_counts(texts, num_buckets):
        num_texts += counts.shape[0]
        texts_with += np.bincount(counts.indices, minlength=num_buckets)
    if num_texts == 0:
        raise KlearError("texts must hold at least one text, got none")
    rarity = (1 + np.log((1 + num_texts) / (1 + texts_with))).astype(np.float32)
    drawn = np.random.default_rng(seed).integers(0, 2, (num_buckets, dim), dtype=np.int8)
    signs = (2 * drawn - 1).astype(np.float32)
    rows = np.empty((num_texts, dim), np.float32)
    end = 0
    for counts in _bucket_counts(texts, num_buckets):
        start, end = end, end + counts.shape[0]
        if end <= num_texts:
            weights = (1 + np.log(counts.data)) * rarity[counts.indices]
            counts.data = weights.astype(np.float32)
            rows[start:end] = counts @ signs
    if end != num_texts:
        raise KlearError(f"texts gave {num_texts} texts, then {end}: they must stay the same")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=rows, where=lengths > 0)


def _bucket_counts(texts: Iterable[str], num_buckets: int) -> Iterator[csr_array]:
    """How often each bucket occurs in each text, some thousand texts at a time: [n, buckets]."""

    @lru_cache(maxsize=2**17)  # of all words, few make up most of a text
    def bucket(word: str) -> int:
        return crc32(word.encode(errors="surrogatepass")) % num_buckets

    remaining = iter(texts)
    while some := list(islice(remaining, _TEXTS_AT_ONCE)):
        ends, columns, values = [0], [], []
        for text in some:
            counts = Counter(map(bucket, spread(seen_text(text)).split()))
            columns += counts.keys()
            values += counts.values()
            ends.append(len(columns))
        parts = (np.array(values, float), np.array(columns, np.int32), ends)
        found = csr_array(parts, shape=(len(some), num_buckets))
        found.sort_indices()  # the same words in another order give the same sum, bit for bit
        yield found


def hidden_states(
    model, tokenizer, texts: Sequence[str], *, max_tokens: int, batch_tokens: int = 16384
) -> np.ndarray:
    """The mean over a text's tokens of the model's last hidden states, those that its head sees.

    Padding never enters the mean, and a text gives the same row, up to rounding, in any company.
    Rows are not brought to length 1, and no special tokens or chat template are added.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        texts: N >= 1.
        max_tokens: of a text, only so many of its first tokens are read; >= 1.
        batch_tokens: how many tokens, padding included, go through the model at once; a text that
            is longer goes alone.

    Returns:
        float32 [N, hidden size], in the order of `texts`.

    Raises:
        KlearError: no text, one without tokens, a number that is not whole or out of range, more
            tokens than the model has positions, or a model that is training, whose dropout would
            add noise.
    """
    import torch

    max_tokens = _whole("max_tokens", max_tokens, least=1)
    if isinstance(texts, str) or not len(texts):
        raise KlearError(f"texts must be at least one text in a list, got {texts!r:.50}")
    if model.training:
        raise KlearError("the model is training, its dropout adds noise: call model.eval() first")
    tokens = [tokenizer(t, add_special_tokens=False)["input_ids"][:max_tokens] for t in texts]
    lengths = [len(ids) for ids in tokens]
    if min(lengths) == 0:
        raise KlearError(f"text {lengths.index(0)} has no tokens, so no mean: drop it")
    if max(lengths) > model.config.max_position_embeddings:
        raise KlearError(
            f"a text has {max(lengths)} tokens, the model "
            f"{model.config.max_position_embeddings} positions: lower max_tokens"
        )
    rows = np.empty((len(texts), model.config.hidden_size), np.float32)
    for chosen in _batches(lengths, batch_tokens):
        width = lengths[chosen[-1]]
        mask = torch.tensor([[1] * lengths[i] + [0] * (width - lengths[i]) for i in chosen])
        ids = torch.tensor([tokens[i] + [0] * (width - lengths[i]) for i in chosen])
        mask, ids = mask.to(model.device), ids.to(model.device)
        with torch.no_grad():
            hidden = model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
        read = hidden.last_hidden_state.float().masked_fill(mask[:, :, None] == 0, 0)
        rows[chosen] = (read.sum(1) / mask.sum(1, keepdim=True)).cpu().numpy()
    return rows


def _batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Texts of similar length together, so that little of a batch is padding; longest last."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    yield batch


def _whole(name: str, value: int, *, least: int) -> int:
    try:
        found = operator.index(value)
    except TypeError as error:
        raise KlearError(f"{name} must be a whole number, got {value!r}") from error
    if found < least:
        raise KlearError(f"{name} must be >= {least}, got {value}")
    return found
