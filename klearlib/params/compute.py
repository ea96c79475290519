"""How the stages of a profile compute: the sections of ``params/<profile>/compute.yaml``, all values
required."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from klearlib.params.fields import parameter
from klearlib.policy.compute import ATTENTIONS, ENGINES, PRECISIONS, Compute
from klearlib.scale.cluster import Cluster


@dataclass(frozen=True)
class ComputeParams:
    """Section ``local``: who samples and how large the parts are in which the stages compute.

    The fields are those of `klearlib.policy.compute.Compute`, which the stages get. All of them
    belong to what a stage's result is named by. This `engine` is not the notebooks' `engine`, which
    says who trains: an RL run of verl computes as the section ``verl`` says.
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


@dataclass(frozen=True)
class ClusterParams:
    """Section ``verl``: the Ray cluster that a notebook's ``engine: verl`` trains on, and how.

    The fields are those of `klearlib.scale.cluster.Cluster`, which the RL stages get. All of them
    belong to what a stage's result is named by. Where the cluster is says RAY_ADDRESS.
    """

    nodes: int = parameter(minimum=1, help="machines of the Ray cluster")
    gpus_per_node: int = parameter(minimum=1, help="GPUs of each, processes of the training")
    rollout: str = parameter(help="who samples: vllm, sglang or a name that modules register")
    tensor_parallel: int = parameter(minimum=1, help="GPUs of one rollout engine; divides all GPUs")
    sequence_parallel: int = parameter(
        minimum=1, help="GPUs that share a sequence in training (Ulysses); divides all GPUs"
    )
    precision: str = parameter(
        choices=PRECISIONS, help="of the forward pass; weights and AdamW stay fp32"
    )
    attention: str = parameter(choices=ATTENTIONS, help="attention of the training")
    max_tokens_per_gpu: int = parameter(
        minimum=1, help="tokens of one forward and backward pass on a GPU"
    )
    prompt_tokens: int = parameter(minimum=1, help="longest prompt")
    gpu_memory_share: float = parameter(
        above=0.0, maximum=0.95, help="of a GPU's memory for the rollout engine while it samples"
    )
    gradient_checkpointing: bool = parameter(help="recompute activations in the backward pass")
    offload: bool = parameter(help="weights and AdamW in the machine's memory while they rest")
    agent_workers: int = parameter(minimum=1, help="processes that prepare rollouts")
    reward_workers: int = parameter(minimum=1, help="processes that judge them")
    modules: list[str] = parameter(
        may_be_empty=True, unique=True, help="Python modules that every process imports"
    )
    overrides: list[str] = parameter(
        may_be_empty=True, help="lines key=value over verl's configuration, after ours"
    )
    environment: dict = parameter(help="environment variables of every process")

    def __post_init__(self) -> None:
        Cluster(**asdict(self))  # what it refuses is refused here, before any stage starts
