"""How verl computes in tests: one GPU, or process, for a small model."""

from klearlib.scale.cluster import Cluster


def small_cluster(**changes) -> Cluster:
    values = {
        "nodes": 1,
        "gpus_per_node": 1,
        "rollout": "vllm",
        "tensor_parallel": 1,
        "sequence_parallel": 1,
        "precision": "fp32",
        "attention": "sdpa",
        "max_tokens_per_gpu": 16384,
        "prompt_tokens": 128,
        "gpu_memory_share": 0.5,
        "gradient_checkpointing": False,
        "offload": False,
        "modules": [],
        "overrides": [],
        "environment": {},
    }
    return Cluster(**values | changes)
