"""How the stages of a profile compute: ``params/<profile>/compute.yaml``, all values required."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from klearlib.params.checking import parameter
from klearlib.policy.compute import ATTENTIONS, ENGINES, PRECISIONS, Compute


@dataclass(frozen=True)
class ComputeParams:
    """Who samples and how large the parts are in which a profile's stages compute.

    The fields are those of `klearlib.policy.compute.Compute`, which the stages get. All of them
    belong to what a stage's result is named by. This `engine` is not the notebooks' `engine`, which
    says who trains: an RL run of verl computes as ``verl.yaml`` says, and all other stages as this
    file does.
    """

    engine: str = parameter(
        choices=ENGINES, help="who samples where a stage of ours trains or measures"
    )
    precision: str = parameter(
        choices=PRECISIONS, help="of the forward pass; weights and AdamW stay fp32"
    )
    attention: str = parameter(choices=ATTENTIONS, help="attention of transformers")
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
        Compute(**asdict(self))  # what it refuses is refused here, before any stage starts
