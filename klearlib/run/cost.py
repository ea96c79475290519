"""What a stage costs, as numbers, and all that is assumed to work them out."""

from __future__ import annotations

from dataclasses import dataclass, fields

GPU_FLOPS = 989e12
"""Peak of one H100 SXM in bf16 without sparsity, FLOP/s (NVIDIA's data sheet)."""
GPU_BANDWIDTH = 3.35e12
"""Bytes per second of its memory (NVIDIA's data sheet)."""
TRAINING_SHARE = 0.35
"""Assumed: share of the peak that training reaches."""
SAMPLING_SHARE = 0.5
"""Assumed: share of the memory's bandwidth, and of the peak, that a step of sampling reaches."""
LAYER_STEP_S = {"transformers": 6e-4, "vllm": 5e-5}
"""Assumed: least seconds of one layer in a step of sampling: kernels started one by one from
Python, or replayed as a CUDA graph."""
LAYER_PASS_S = 3e-3
"""Assumed: least seconds of one layer in a forward and backward pass."""
STAGE_S = 15.0
"""Assumed: seconds to start the process of a stage, imports and model included."""
RESPONSE_SHARE, EXAMPLE_SHARE = 0.5, 0.3
"""Assumed mean lengths: of a response, of its budget; of a training example, of the most."""
ALL_EXAMPLES = 750_000
"""Assumed: examples of a domain where all there are are learnt, half of the paper's 1.5 million."""
PROMPT_TOKENS = 100
"""Assumed: tokens of a prompt."""
WINDOW_SIZE = 175
"""Assumed: problems of a benchmark whose number the dates decide, LiveCodeBench V6: the most that
sources name."""
CLUSTER_S = 180.0
"""Assumed: seconds until the processes, weights and rollout engines of a run of verl are ready."""
ROWS_AT_ONCE = 256
"""Responses that a rollout engine of verl samples at once, at most: verl's own number."""
PADDED = 3
"""Assumed: places of a pass for each of its tokens where verl pads its rows to the longest of them,
as it does but for flash attention."""
LOGITS_COPIES = 3
"""Of all logits of a pass, which verl keeps whole: logits, their log-softmax, its gradient."""

TRAINING, BESIDE_VLLM, VLLM, SAMPLING = (
    "training",
    "sampling with vLLM beside the training",
    "sampling with vLLM",
    "sampling",
)
"""What a stage does when it needs the most memory."""


@dataclass(frozen=True)
class Parts:
    """What the memory of a stage is made of, in bytes.

    peak: one of `TRAINING`, `BESIDE_VLLM`, `VLLM`, `SAMPLING`. state: weights, gradients and AdamW
    in a backward pass, with autocast's copy; beside: those that stay while vLLM samples. vllm: the
    least that vLLM starts with on each GPU, 0 where transformers samples.
    """

    peak: str = SAMPLING
    state: int = 0
    beside: int = 0
    vllm: int = 0


@dataclass(frozen=True)
class Cost:
    """What one stage, or several, cost.

    sampled, trained: tokens as assumed; sampled_most, trained_most: at most. flops: as assumed.
    gpu_s: seconds of one GPU. wall_s: seconds that runs of verl take one after the other; nodes,
    gpus: of the Ray cluster of the largest of these, 0 where there is none. memory: bytes that the
    largest stage needs at once on its device, of the machine or of one GPU; parts: of that one.
    disk: bytes of the results that are kept; scratch: of the checkpoints of the largest while it
    runs. unknown: names of models whose shape nothing says, so that only their tokens are counted.
    unsized: benchmarks that are assumed to have `WINDOW_SIZE` problems.
    """

    sampled: float = 0.0
    sampled_most: float = 0.0
    trained: float = 0.0
    trained_most: float = 0.0
    flops: float = 0.0
    gpu_s: float = 0.0
    wall_s: float = 0.0
    nodes: int = 0
    gpus: int = 0
    memory: int = 0
    parts: Parts = Parts()
    disk: int = 0
    scratch: int = 0
    unknown: tuple[str, ...] = ()
    unsized: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        largest = {name: max(getattr(self, name), getattr(other, name)) for name in _LARGEST}
        names = {
            name: tuple(dict.fromkeys(getattr(self, name) + getattr(other, name)))
            for name in _NAMES
        }
        parts = {"parts": (self if self.memory >= other.memory else other).parts}
        added = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name not in largest | names | parts
        }
        return Cost(**added, **largest, **names, **parts)


_LARGEST, _NAMES = ("memory", "scratch", "nodes", "gpus"), ("unknown", "unsized")
