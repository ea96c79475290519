"""The costs of sampling and of training with a model of a known shape."""

from __future__ import annotations

from klearlib.policy.compute import Compute
from klearlib.policy.memory import LEAST_TOKENS, sampling_bytes, state_bytes, training_bytes
from klearlib.policy.shape import ModelShape
from klearlib.run.cost import (
    BESIDE_VLLM,
    GPU_BANDWIDTH,
    GPU_FLOPS,
    LAYER_PASS_S,
    LAYER_STEP_S,
    PROMPT_TOKENS,
    RESPONSE_SHARE,
    SAMPLING,
    SAMPLING_SHARE,
    TRAINING,
    TRAINING_SHARE,
    VLLM,
    Cost,
    Parts,
)


def sampling(
    shape: ModelShape | None, compute: Compute, *, name: str, calls: int, rows: int, budget: int
) -> Cost:
    """`calls` times `rows` responses of up to `budget` tokens.

    A step takes the longest of: starting its kernels, reading weights and cache, computing, of
    which all GPUs of an engine (`tensor_parallel`) read and compute their parts at once. There are
    as many steps as the longest response of each batch has tokens; vLLM takes up the next responses
    where others end. name: of the model, for one whose shape nothing says.
    """
    total = calls * rows
    tokens = total * budget * RESPONSE_SHARE
    cost = Cost(sampled=tokens, sampled_most=total * budget)
    if shape is None:
        return cost + Cost(unknown=(name,))
    if not total:
        return cost
    at_once = min(rows, compute.batch_rows)
    context = PROMPT_TOKENS + budget * RESPONSE_SHARE / 2
    flops = tokens * shape.forward_flops(context=context)
    flops += total * PROMPT_TOKENS * shape.forward_flops(context=PROMPT_TOKENS / 2)
    batches = -(-rows // at_once)
    steps = (
        calls
        * budget
        * (batches if compute.engine == "transformers" else max(1, batches * RESPONSE_SHARE))
    )
    # transformers keeps cache and weights as float32, vLLM in the precision.
    word = 2 if compute.precision == "bf16" and compute.engine == "vllm" else 4
    read = steps * word * shape.num_parameters
    read += tokens * context * word * 2 * shape.key_size * shape.num_layers
    seconds = max(
        steps * shape.num_layers * LAYER_STEP_S[compute.engine],
        (read / GPU_BANDWIDTH + flops / GPU_FLOPS) / SAMPLING_SHARE / compute.tensor_parallel,
    )
    return cost + Cost(
        flops=flops,
        gpu_s=seconds * compute.tensor_parallel,
        memory=_sampling_memory(shape, compute, at_once, budget),
        parts=Parts(VLLM, vllm=_vllm_bytes(shape, compute, budget))
        if compute.engine == "vllm"
        else Parts(SAMPLING),
    )


def _sampling_memory(shape: ModelShape, compute: Compute, rows: int, budget: int) -> int:
    if compute.engine == "vllm":  # which takes its share of each GPU that it is spread over
        return int(_vllm_bytes(shape, compute, budget) / compute.gpu_memory_share)
    rows = min(rows, compute.batch_rows)
    return sampling_bytes(shape, compute=compute, rows=rows, row_tokens=PROMPT_TOKENS + budget)


def _vllm_bytes(shape: ModelShape, compute: Compute, budget: int) -> int:
    """The least that vLLM starts with, on each of its GPUs."""
    row_tokens = PROMPT_TOKENS + budget
    needed = sampling_bytes(shape, compute=compute, rows=1, row_tokens=row_tokens)
    return int(needed / compute.tensor_parallel)


def sampling_beside_training(shape: ModelShape, compute: Compute, rows: int, budget: int) -> Cost:
    """Memory while rollouts are sampled beside the state of the training."""
    states = state_bytes(shape.num_parameters, precision="fp32")
    if compute.engine == "vllm":  # which has its share, and leaves the rest
        memory = int(states / (1 - compute.gpu_memory_share))
        peak, vllm = BESIDE_VLLM, _vllm_bytes(shape, compute, budget)
    else:  # the weights are those that are trained
        memory = _sampling_memory(shape, compute, rows, budget)
        memory += states - 4 * shape.num_parameters
        peak, vllm = SAMPLING, 0
    state = state_bytes(shape.num_parameters, precision=compute.precision)
    return Cost(memory=memory, parts=Parts(peak, state=state, beside=states, vllm=vllm))


def training(
    shape: ModelShape,
    compute: Compute,
    tokens: float,
    longest: int,
    updates: float,
    *,
    forward_again: bool = False,
) -> Cost:
    """`updates` over `tokens` tokens in all, in sequences of up to `longest`; `forward_again`: a
    forward pass more, for logp_old."""
    flops = training_flops(
        shape,
        tokens=tokens,
        longest=longest,
        checkpointing=compute.gradient_checkpointing,
        forward_again=forward_again,
    )
    row = compute.pack_tokens or longest
    micro = max(compute.micro_batch_tokens, row, LEAST_TOKENS)
    num_passes = updates * max(1.0, tokens / max(updates, 1) / micro)
    seconds = flops / (GPU_FLOPS * TRAINING_SHARE) + num_passes * shape.num_layers * LAYER_PASS_S
    # Chosen by the memory there is: what it cannot do without.
    most = max(row, compute.micro_batch_tokens or LEAST_TOKENS)
    memory = training_bytes(shape, compute=compute, tokens=most, row_tokens=row)
    return Cost(
        flops=flops,
        gpu_s=seconds,
        memory=memory,
        parts=Parts(TRAINING, state=state_bytes(shape.num_parameters, precision=compute.precision)),
        scratch=2 * 12 * shape.num_parameters,
    )


def training_flops(
    shape: ModelShape, *, tokens: float, longest: int, checkpointing: bool, forward_again: bool
) -> float:
    """6 operations a parameter and token (8 with gradient checkpointing, which computes the forward
    pass twice; 2 for a forward pass more), and those of attention."""
    passes = 3 + checkpointing + forward_again
    return passes * tokens * shape.forward_flops(context=longest * RESPONSE_SHARE / 2)
