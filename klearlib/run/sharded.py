"""The costs of an RL run of verl: a model spread over the GPUs of a Ray cluster, and rollout
engines on the same GPUs. Nothing is loaded, and neither verl nor Ray is imported."""

from __future__ import annotations

from klearlib.policy.compute import Compute
from klearlib.policy.memory import activation_bytes, sampling_bytes, state_bytes
from klearlib.policy.shape import ModelShape
from klearlib.run.cost import (
    BESIDE_VLLM,
    CLUSTER_S,
    GPU_FLOPS,
    LAYER_PASS_S,
    LOGITS_COPIES,
    PADDED,
    ROWS_AT_ONCE,
    TRAINING,
    TRAINING_SHARE,
    Cost,
    Parts,
)
from klearlib.run.workloads import sampling, training_flops
from klearlib.scale.cluster import PACKED, Cluster

_GATHERED = 2  # layers whose weights are whole on each GPU at once: one, and the next one
_CHECKPOINTS = 2  # the last one, and the next while it is written
_CHECKPOINT_BYTES = 16  # a parameter: float32 weights, AdamW's two moments, the weights as a model


def started(cluster: Cluster) -> Cost:
    """What a run takes before its first step, and the cluster that it takes."""
    return Cost(
        gpu_s=CLUSTER_S * cluster.num_gpus,
        wall_s=CLUSTER_S,
        nodes=cluster.nodes,
        gpus=cluster.num_gpus,
    )


def sampling_on_cluster(
    shape: ModelShape, cluster: Cluster, *, calls: int, rows: int, budget: int
) -> Cost:
    """`calls` times `rows` responses of up to `budget` tokens, dealt out to all rollout engines;
    each call lasts as long as the engine with the most of them."""
    engines = cluster.num_gpus // cluster.tensor_parallel
    most = -(-rows // engines)
    one = sampling(shape, _compute(cluster), name="", calls=calls, rows=most, budget=budget)
    if not one.gpu_s:
        return Cost()
    share = rows / most
    seconds = one.gpu_s / cluster.tensor_parallel
    return Cost(
        sampled=one.sampled * share,
        sampled_most=one.sampled_most * share,
        flops=one.flops * share,
        gpu_s=seconds * cluster.num_gpus,
        wall_s=seconds,
    )


def training_on_cluster(
    shape: ModelShape,
    cluster: Cluster,
    *,
    tokens: float,
    longest: int,
    updates: float,
    forward_again: bool,
) -> Cost:
    """As `klearlib.run.workloads.training`, on all GPUs at once."""
    flops = training_flops(
        shape,
        tokens=tokens,
        longest=longest,
        checkpointing=cluster.gradient_checkpointing,
        forward_again=forward_again,
    )
    each = tokens / max(updates, 1) / cluster.num_gpus / cluster.max_tokens_per_gpu
    passes = updates * max(1.0, each)
    seconds = flops / (cluster.num_gpus * GPU_FLOPS * TRAINING_SHARE)
    seconds += passes * shape.num_layers * LAYER_PASS_S
    memory, parts = training_memory(shape, cluster)
    return Cost(
        flops=flops,
        gpu_s=seconds * cluster.num_gpus,
        wall_s=seconds,
        memory=memory,
        parts=parts,
        scratch=_CHECKPOINTS * _CHECKPOINT_BYTES * shape.num_parameters,
    )


def training_memory(shape: ModelShape, cluster: Cluster) -> tuple[int, Parts]:
    """(most bytes of one GPU in a forward and backward pass, what they are made of).

    A GPU's share of weights, gradients and AdamW in float32; the weights of two layers, embedding
    and head as they are gathered for the pass; the activations of `max_tokens_per_gpu` tokens; and
    their logits, which verl keeps whole, `LOGITS_COPIES` times. Without flash attention verl counts
    a pass by its tokens and then pads its rows: `PADDED` places for each token.
    """
    word = 2 if cluster.precision == "bf16" else 4
    padded = 1 if cluster.attention == PACKED else PADDED
    tokens = padded * cluster.max_tokens_per_gpu
    ends = shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)
    layer = (shape.num_parameters - ends) // shape.num_layers
    gathered = word * (_GATHERED * layer + ends)
    logits = LOGITS_COPIES * word * tokens * shape.vocab_size
    activations = activation_bytes(shape, compute=_compute(cluster), tokens=tokens)
    state = _state(shape, cluster)
    return state + gathered + activations + logits, Parts(TRAINING, state=state)


def memory_beside_rollouts(shape: ModelShape, cluster: Cluster, *, budget: int) -> Cost:
    """Memory of one GPU while its rollout engine samples beside the state of the training, which
    has left it where `offload` is set."""
    row = cluster.prompt_tokens + budget
    needed = sampling_bytes(shape, compute=_compute(cluster), rows=1, row_tokens=row)
    engine = needed // cluster.tensor_parallel
    beside = 0 if cluster.offload else _state(shape, cluster)
    share = cluster.gpu_memory_share
    memory = int(max(engine / share, beside / (1 - share)))
    parts = Parts(BESIDE_VLLM, state=_state(shape, cluster), beside=beside, vllm=engine)
    return Cost(memory=memory, parts=parts)


def _state(shape: ModelShape, cluster: Cluster) -> int:
    return -(-state_bytes(shape.num_parameters, precision="fp32") // cluster.num_gpus)


def _compute(cluster: Cluster) -> Compute:
    """How one rollout engine, or one GPU of the training, computes."""
    return Compute(
        engine="vllm",
        precision=cluster.precision,
        attention=cluster.attention,
        batch_rows=ROWS_AT_ONCE,
        micro_batch_tokens=cluster.max_tokens_per_gpu,
        pack_tokens=None,
        gradient_checkpointing=cluster.gradient_checkpointing,
        tensor_parallel=cluster.tensor_parallel,
        gpu_memory_share=cluster.gpu_memory_share,
    )
