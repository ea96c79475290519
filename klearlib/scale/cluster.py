"""How verl computes on a cluster: nodes, GPUs, the rollout engine, memory. Never what."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from klearlib.errors import ParameterError
from klearlib.policy.compute import ATTENTIONS, PRECISIONS
from klearlib.rl.settings import parts_count

ROLLOUT_ENGINES = ("vllm", "sglang")
"""verl's own engines; any other name has to be registered by `modules`."""
PACKED = "flash_attention_2"
"""The only attention with which verl trains on rows without padding."""
OURS = ("VERL_USE_EXTERNAL_MODULES", "PYTHONPATH", "RAY_ADDRESS")
"""Variables that klear sets for every process, or reads itself."""


@dataclass(frozen=True)
class Cluster:
    """The section ``verl`` of ``params/<profile>/compute.yaml`` as an RL stage of verl gets it.

    nodes, gpus_per_node: of the Ray cluster that RAY_ADDRESS names, or of the Ray that the run
    starts here. rollout: who samples, "vllm", "sglang" or a name that one of `modules` registers.
    tensor_parallel: GPUs of one rollout engine. sequence_parallel: GPUs that share each sequence in
    training (Ulysses). precision: of the forward pass; weights, gradients and AdamW are float32.
    attention: of the training. max_tokens_per_gpu: tokens of one forward and backward pass on a
    GPU. prompt_tokens: the longest prompt. gpu_memory_share: of a GPU for the rollout engine while
    it samples. gradient_checkpointing: compute each layer's activations again in the backward pass.
    offload: keep weights, gradients and AdamW in the machine's memory while they rest.
    modules: Python modules that every process imports before ours. overrides: hydra overrides of
    verl's configuration after ours, "key=value". environment: variables of every process.

    Raises ParameterError, in one line that names the fix.
    """

    nodes: int
    gpus_per_node: int
    rollout: str
    tensor_parallel: int
    sequence_parallel: int
    precision: str
    attention: str
    max_tokens_per_gpu: int
    prompt_tokens: int
    gpu_memory_share: float
    gradient_checkpointing: bool
    offload: bool
    modules: list[str]
    overrides: list[str]
    environment: dict[str, str]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is int and value < 1:  # all of them count something
                raise ParameterError(f"{name} must be at least 1, got {value}")
        for name, words in (("precision", PRECISIONS), ("attention", ATTENTIONS)):
            if getattr(self, name) not in words:
                raise ParameterError(f"{name} must be one of {words}, got {getattr(self, name)!r}")
        if self.rollout not in ROLLOUT_ENGINES and not self.modules:
            raise ParameterError(
                f"rollout is {self.rollout!r} and no module registers it: give vllm or sglang, or "
                "name the module in modules"
            )
        for name in ("tensor_parallel", "sequence_parallel"):
            if self.num_gpus % getattr(self, name):
                raise ParameterError(
                    f"{name} {getattr(self, name)} does not divide the {self.num_gpus} GPUs of "
                    f"{self.nodes} x {self.gpus_per_node}: give a divisor"
                )
        if not 0 < self.gpu_memory_share <= 0.95:
            raise ParameterError(
                f"gpu_memory_share must be above 0 and at most 0.95, got {self.gpu_memory_share}"
            )
        for name, value in self.environment.items():
            if name in OURS:
                raise ParameterError(f"environment: klear sets {name} itself: remove it")
            if not isinstance(name, str) or not isinstance(value, str):
                raise ParameterError(f"environment: {name}: {value!r} must be text: quote it")

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def is_on_cpu(self) -> bool:
        """Whether the overrides put the training on CPU cores, as tests do (`trainer.device=cpu`);
        `gpus_per_node` then counts processes."""
        named = [line.lstrip("+").partition("=") for line in self.overrides]
        devices = [value for key, _, value in named if key == "trainer.device"]
        return devices[-1:] == ["cpu"]

    def positions(self, *, max_new_tokens: int) -> int:
        """Positions that a model needs for the longest rollout."""
        # verl's sglang server never fills the last one.
        return self.prompt_tokens + max_new_tokens + (self.rollout == "sglang")

    def require_fits(self, *, max_new_tokens: int) -> None:
        """Raises ParameterError if a rollout does not fit into a pass on `sequence_parallel` GPUs,
        or if verl cannot split sequences."""
        if self.sequence_parallel > 1 and self.attention != PACKED:
            raise ParameterError(
                f"sequence_parallel {self.sequence_parallel} needs rows without padding: give "
                f"attention {PACKED}, or sequence_parallel 1"
            )
        longest = self.prompt_tokens + max_new_tokens
        if self.max_tokens_per_gpu * self.sequence_parallel < longest:
            needed = -(-longest // self.sequence_parallel)
            raise ParameterError(
                f"a rollout has up to {longest} tokens (prompt_tokens {self.prompt_tokens} and "
                f"max_new_tokens {max_new_tokens}) and a pass at most max_tokens_per_gpu "
                f"{self.max_tokens_per_gpu} x sequence_parallel {self.sequence_parallel}: give "
                f"max_tokens_per_gpu {needed} or more"
            )


WHAT = ("rollout", "precision", "attention", "modules", "overrides")
"""The fields in the key of a run: they change what is computed; the others change only its
rounding."""


def parted(cluster: Cluster) -> tuple[dict, dict]:
    """The fields of `WHAT`, and all others."""
    fields = asdict(cluster)
    what = {name: fields.pop(name) for name in WHAT}
    return what, fields


def cluster_of_stage(stage) -> Cluster:
    """The cluster that a `klearlib.run.stage.Stage` of verl asks for."""
    given = stage.arguments
    return Cluster(**given["cluster"] | given["resources"])


def require_own_parts(options) -> None:
    """Raises ParameterError for an objective of these `RLSettings` or `RLOptions` that verl cannot
    compute: another mean, weights of earlier steps, a rate by updates, more measurements, or an
    objective that depends on how a mini-batch is cut into passes."""
    given = {
        "normalizer to token or sequence": options.normalizer not in ("token", "sequence"),
        "group_std to population, unbiased or none": options.group_std
        in ("batch", "leave_one_out"),
        "policy_lag, warmup_updates and validation_every to 0": any(
            (options.policy_lag, options.warmup_updates, options.validation_every)
        ),
        "corner_gradients to false": options.corner_gradients,
        "loss_denominator and lm_normalizer to mini_batch": parts_count(options),
    }
    if wrong := [setting for setting, is_wrong in given.items() if is_wrong]:
        raise ParameterError(
            f"verl cannot compute this objective: set {' and '.join(wrong)}, or engine to local"
        )
