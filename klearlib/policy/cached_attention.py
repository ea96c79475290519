"""Attention of one new token to a cache, without a copy of the cache for each query head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "klear_decoding"
# Arguments of transformers' sdpa under which one query is more than softmax(q k) v.
_OTHERS = ("position_bias", "cache")


def decoding_attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, **others
):
    """transformers' ``sdpa``, with grouped queries where there is one new token a row.

    The query heads that share a key head become the queries of that head: none of them comes after
    another, so one mask holds for all. transformers repeats keys and values for each query head as
    soon as a row is padded, which for a long cache costs more than the attention.

    Args:
        query: [N, heads, 1, size]; another number of positions goes to transformers' ``sdpa``.
        key, value: [N, key heads, T, size].
        attention_mask: [N, 1, 1, T] or None.

    Returns:
        (output [N, 1, heads, size], None).
    """
    rows, heads, length, size = query.shape
    if (
        length != 1
        or heads == key.shape[1]
        or any(others.get(name) is not None for name in _OTHERS)
    ):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    # In bf16 on a CPU torch's kernel is faster at grouped heads than at several queries; on a GPU
    # a mask with grouped heads has no fast kernel.
    grouped = key.dtype == torch.float32 or query.device.type != "cpu"
    if grouped:
        query = query.reshape(rows, key.shape[1], -1, size)
    output = torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=not grouped,
    )
    return output.reshape(rows, 1, heads, value.shape[3]), None


AttentionInterface.register(_NAME, decoding_attention_forward)
AttentionMaskInterface.register(_NAME, sdpa_mask)


@contextmanager
def decoding_attention(model) -> Iterator[None]:
    """`model` computes with `decoding_attention_forward` in this context, if its attention is
    transformers' ``sdpa`` and can be chosen by name; else it stays as it is."""
    config = model.config
    own = config._attn_implementation
    if own != "sdpa" or config.sub_configs or not model._supports_attention_backend:
        yield
        return
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = own
