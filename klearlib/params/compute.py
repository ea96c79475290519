"""How the stages of a profile compute: ``params/<profile>/compute.yaml``, all values required."""

from __future__ import annotations

from dataclasses import dataclass

from klearlib.errors import ParameterError
from klearlib.params.checking import parameter


@dataclass(frozen=True)
class ComputeParams:
    """Who samples and how large the parts are in which a profile's stages compute.

    The fields are those of `klearlib.policy.compute.Compute`, which the stages get. All of them
    belong to what a stage's result is named by.
    """

    engine: str = parameter(choices=("transformers", "vllm"), help="who samples")
    precision: str = parameter(
        choices=("fp32", "bf16"), help="of the forward pass; weights and AdamW stay fp32"
    )
    attention: str = parameter(
        choices=("sdpa", "eager", "flash_attention_2"), help="attention of transformers"
    )
    batch_rows: int = parameter(minimum=1, help="responses decoded together")
    micro_batch_tokens: int = parameter(
        minimum=0, help="padded tokens of one backward pass, 0 for what the memory holds"
    )
    pack_tokens: int | None = parameter(
        minimum=1, help="length of a row of several sequences, null for one a row"
    )
    gradient_checkpointing: bool = parameter(help="recompute activations in the backward pass")
    tensor_parallel: int = parameter(minimum=1, help="GPUs of one vLLM engine")
    gpu_memory_share: float = parameter(
        above=0.0, maximum=0.95, help="of a GPU's memory for vLLM while it samples"
    )

    def __post_init__(self) -> None:
        if self.pack_tokens is not None and 0 < self.micro_batch_tokens < self.pack_tokens:
            raise ParameterError(
                f"pack_tokens {self.pack_tokens} exceeds micro_batch_tokens "
                f"{self.micro_batch_tokens}: a packed row must fit into a micro-batch"
            )
        if self.engine != "vllm" and self.tensor_parallel > 1:
            raise ParameterError(
                f"tensor_parallel {self.tensor_parallel} is for engine vllm: give 1"
            )
