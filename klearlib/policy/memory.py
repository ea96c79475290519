"""How much memory training and sampling need, from a model's shape: upper bounds, checked by tests
against what tensors really take.

All sizes are in bytes. Master weights, gradients and AdamW's two moments are float32, 16 bytes a
parameter; under bf16 autocast there is a copy of the weights as well.
"""

from __future__ import annotations

import os
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.policy.compute import Compute
from klearlib.policy.shape import ModelShape, shape_of
from klearlib.run.provenance import num_cores

FREE_SHARE = 0.8
"""Of the free memory that one backward pass may take: the rest is for what fragments, libraries
and kernels hold."""
LEAST_TOKENS, MOST_TOKENS = 256, 2**18
# Logits that the head holds at once, in float32: 256 MiB on a CPU, where larger chunks are no
# faster, 1 GiB on a GPU.
_CPU_LOGITS, _GPU_LOGITS = 2**26, 2**28
_WEIGHT, _STATE, _BF16 = 4, 12, 2  # bytes a parameter: weights; gradients and AdamW; bf16 copy
# Bytes a word of what a draw makes: logits, log-probabilities, weights, their sums in float64; and
# what bf16, the penalty and the sort of top-p add.
_DRAW = 4 * 10
_HEAD_COPIES = 3  # of a chunk's logits in float32: with the entropy, and their gradient


def head_chunk_tokens(num_words: int, *, device: str) -> int:
    """How many tokens go through an LM head of `num_words` at once, on a ``cpu`` or another type of
    device: as many as their logits allow.

    >>> head_chunk_tokens(151_936, device="cpu"), head_chunk_tokens(151_936, device="cuda")
    (441, 1766)
    """
    return max(1, (_CPU_LOGITS if device == "cpu" else _GPU_LOGITS) // num_words)


def state_bytes(num_parameters: int, *, precision: str) -> int:
    """Weights, gradients and AdamW of a training, and autocast's copy of the weights."""
    each = _WEIGHT + _STATE + (_BF16 if precision == "bf16" else 0)
    return each * num_parameters


def layer_bytes_per_token(shape: ModelShape, *, compute: Compute, row_tokens: int) -> int:
    """What the backward pass of one layer keeps of each token.

    Two norms and the inputs of the projections (6 times the width), queries, keys and values before
    and after norm and rotation, repeated for all heads, and the attention's output (7 q + 2 k), the
    four vectors of the feed-forward (4 f). In bf16 the norms stay float32, the rest is half. Eager
    attention keeps a probability for each head and token of the row too.
    """
    d, f = shape.hidden_size, shape.intermediate_size
    heads = 7 * shape.query_size + 2 * shape.key_size
    if compute.precision == "bf16":
        each = 20 * d + 3 * heads + 10 * f
    else:
        each = 4 * (6 * d + heads + 4 * f)
    if compute.attention == "eager":
        each += (4 if compute.precision == "fp32" else 6) * shape.num_heads * row_tokens
    return each


def activation_bytes(
    shape: ModelShape, *, compute: Compute, tokens: int, row_tokens: int | None = None
) -> int:
    """Most that one forward and backward pass over `tokens` padded tokens holds beside
    `state_bytes`; row_tokens: of the longest row, default: all in one.

    With gradient checkpointing a layer keeps its input alone, and one layer at a time is computed
    again. The backward pass of a layer holds half as much again as its activations; that of the
    head, which comes before, three times a chunk's logits and the gradient of its weights, in bf16
    once more.
    """
    row_tokens = min(row_tokens or tokens, tokens)
    layer = layer_bytes_per_token(shape, compute=compute, row_tokens=row_tokens)
    scores = 4 * shape.num_heads * row_tokens if compute.attention == "eager" else 0
    transient = layer // 2 + scores
    kept = shape.num_layers * layer
    if compute.gradient_checkpointing:
        kept, transient = 4 * shape.hidden_size * shape.num_layers, layer + transient
    # Of a GPU, whose chunks are the larger ones.
    chunk = min(tokens, head_chunk_tokens(shape.vocab_size, device="cuda"))
    gradient = _WEIGHT + (_BF16 if compute.precision == "bf16" else 0)
    head = (_HEAD_COPIES * 4 * chunk + gradient * shape.hidden_size) * shape.vocab_size
    ends = 4 * 4 * shape.hidden_size
    return tokens * (kept + ends) + max(tokens * transient, head)


def sampling_bytes(
    shape: ModelShape, *, compute: Compute, rows: int, row_tokens: int, trained: bool = False
) -> int:
    """Most that sampling holds, of `rows` sequences of `row_tokens` tokens at once.

    transformers: weights (float32 where they are `trained`, else in the precision) and the
    decoder's copy (of the matrices that it joins, in bf16 of trained weights of all), the cache of
    keys and values, one layer of it twice while it grows, and what a draw makes of the logits of
    one position. vLLM: weights and cache of one sequence, the least that it starts with. Both keep
    the cache in the precision, transformers where the decoder does.
    """
    cached = 2 * shape.key_size * row_tokens
    low = compute.precision == "bf16"
    each = _BF16 if low else _WEIGHT
    if compute.engine == "vllm":
        return each * (shape.num_parameters + shape.num_layers * cached)
    held = _WEIGHT if trained else each
    copied = each * (shape.num_multiplied if low and trained else shape.num_joined)
    weights = held * shape.num_parameters + copied
    each = _BF16 if low and compute.attention == "sdpa" else 4
    return weights + rows * (each * cached * (shape.num_layers + 1) + _DRAW * shape.vocab_size)


def choose_micro_batch_tokens(model, *, compute: Compute, free_bytes: int | None = None) -> int:
    """The padded tokens of one forward and backward pass that the memory holds: a power of two from
    `LEAST_TOKENS` to `MOST_TOKENS`, or one packed row where that is more.

    `FREE_SHARE` of what is free now may be used, less the gradients and AdamW's state where `model`
    has no gradients yet. free_bytes: of its device; default: asked for. Raises KlearError where the
    config does not say the shape of the model.
    """
    try:
        shape = shape_of(model.config)
    except (AttributeError, TypeError, ValueError) as error:
        raise KlearError(
            f"the memory of {type(model).__name__} cannot be estimated from its config ({error}): "
            "give micro_batch_tokens a number above 0"
        ) from error
    if free_bytes is None:
        free_bytes = free_memory(model.device)
    room = FREE_SHARE * free_bytes
    weights = list(model.parameters())
    if all(weight.grad is None for weight in weights):
        count = sum(weight.numel() for weight in weights)
        room -= state_bytes(count, precision=compute.precision) - _WEIGHT * count
    tokens = LEAST_TOKENS
    while 2 * tokens <= MOST_TOKENS and room >= activation_bytes(
        shape, compute=compute, tokens=2 * tokens, row_tokens=compute.pack_tokens
    ):
        tokens *= 2
    return max(tokens, compute.pack_tokens or 0)


def free_memory(device) -> int:
    """Free bytes of a torch device: of the GPU, with what torch keeps for itself but does not use;
    of the machine, the share of one of the stages that run at once, one a core."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + unused
    return available_memory() // num_cores()


def available_memory() -> int:
    """Bytes that this process may still take: what Linux calls available, or what is left of the
    limit of its control group where that is less; elsewhere all that the machine has."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lines = meminfo.read_text(encoding="utf-8").splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    found = values["MemAvailable"]
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text(encoding="utf-8").strip()
        used = int((group / "memory.current").read_text(encoding="utf-8"))
        stat = (group / "memory.stat").read_text(encoding="utf-8").split()
        # Files that were read count as used, and give way.
        reclaimable = int(stat[stat.index("inactive_file") + 1])
    except (OSError, ValueError):
        return found
    return found if limit == "max" else min(found, int(limit) - used + reclaimable)
