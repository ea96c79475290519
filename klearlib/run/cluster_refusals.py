"""What keeps the runs of verl in a plan from finishing, one line each that says what to do.

Where RAY_ADDRESS names a cluster, the GPUs and the memory of its machines are not looked at: the
run counts their GPUs when it has connected, before its first step. Their packages are those of this
machine, whose environment they share. Without RAY_ADDRESS the Ray of the run is this machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from klearlib.run.cost import TRAINING, Cost
from klearlib.run.machine import Machine
from klearlib.run.planned import short
from klearlib.scale.address import ADDRESS
from klearlib.scale.cluster import PACKED, ROLLOUT_ENGINES, Cluster
from klearlib.scale.require import INSTALL_VERL


def refusals_of_clusters(
    profile: str, clusters: Sequence[Cluster], costs: Sequence[Cost], machine: Machine
) -> list[str]:
    """Why the runs of verl cannot finish here; empty where they can, or where there are none.

    A cluster whose training is on CPU cores (`Cluster.is_on_cpu`) needs no GPU of this machine, and
    its own overrides say what stands for one.

    Args:
        costs: one of each run.
    """
    if not clusters:
        return []
    lines = []
    if machine.verl_lacks:
        lines.append(
            f"{machine.verl_lacks}: {INSTALL_VERL}; or set engine: local in the notebooks' files "
            f"of params/{profile}"
        )
    where = f"params/{profile}/compute.yaml, verl"
    for cluster in clusters:
        lines += _of_packages(where, cluster, machine)
        if not machine.ray_address:
            lines += _of_gpus(where, cluster, machine)
            lines += _of_memory(where, cluster, costs, machine)
    return lines


def _of_gpus(where: str, cluster: Cluster, machine: Machine) -> list[str]:
    if cluster.nodes > 1:
        return [
            f"{where} has {cluster.nodes} nodes and {ADDRESS} names no Ray cluster: start Ray on "
            "the nodes, as docs/cluster.md says, and set it"
        ]
    if cluster.gpus_per_node > len(machine.gpus) and not cluster.is_on_cpu:
        there = len(machine.gpus) or "none"
        return [
            f"{where} has {cluster.gpus_per_node} GPUs on a node and {there} can be used here: use "
            f"a machine that has them, or set {ADDRESS} to that of a Ray cluster"
        ]
    return []


def _of_packages(where: str, cluster: Cluster, machine: Machine) -> list[str]:
    lines = []
    if cluster.rollout in ROLLOUT_ENGINES and cluster.rollout not in machine.packages:
        lines.append(
            f"{cluster.rollout} is not installed, which samples for verl: docs/cluster.md says "
            f"which version verl takes; or set another rollout in {where}"
        )
    if cluster.attention == PACKED and "flash-attn" not in machine.packages:
        lines.append(
            "flash attention is not installed: pip install flash-attn, or set attention: sdpa and "
            f"sequence_parallel: 1 in {where}"
        )
    return lines


def _of_memory(where: str, cluster: Cluster, costs: Sequence[Cost], machine: Machine) -> list[str]:
    """Whether the largest run fits into the smallest GPU of this machine."""
    largest = max(costs, key=lambda cost: cost.memory, default=Cost())
    room = min(machine.gpus, default=largest.memory)
    if cluster.nodes > 1 or cluster.is_on_cpu:
        return []
    away = largest.parts.state * cluster.gpus_per_node if cluster.offload else 0
    if away > machine.memory:
        return [
            f"offload keeps {short(away / 1e9)} GB in the memory of a node and "
            f"{short(machine.memory / 1e9)} GB are free here: set offload: false in {where}, or "
            "use a larger machine"
        ]
    if largest.memory <= room:
        return []
    why, settings = _what_helps(largest, cluster, room)
    lower = f"set {' or '.join(settings)} in {where}, or " if settings else ""
    return [
        f"a run of verl needs about {short(largest.memory / 1e9)} GB of each GPU and a GPU here "
        f"has {short(room / 1e9)} GB; {why}: {lower}use more or larger GPUs"
    ]


def _what_helps(cost: Cost, cluster: Cluster, room: int) -> tuple[str, list[str]]:
    """(what most of the memory is for, settings that may bring it under `room`)."""
    parts, settings = cost.parts, []
    state = f"{short(parts.state / 1e9)} GB are its share of weights, gradients and AdamW"
    if parts.state > room:
        return f"{state}, which no setting lowers", []
    if parts.peak == TRAINING:
        if not cluster.gradient_checkpointing:
            settings.append("gradient_checkpointing: true")
        settings.append("a smaller max_tokens_per_gpu with a larger sequence_parallel")
        rest = short((cost.memory - parts.state) / 1e9)
        return f"{state}, {rest} GB what one pass holds", settings
    least = math.ceil(100 * parts.vllm / room) / 100
    most = math.floor(100 * (1 - parts.beside / room)) / 100
    if least <= min(most, 0.95):
        settings.append(f"gpu_memory_share from {least:.2f} to {min(most, 0.95):.2f}")
    if not cluster.offload:
        settings.append("offload: true")
    settings.append("a larger tensor_parallel")
    engine = f"the rollout engine needs {short(parts.vllm / 1e9)} GB"
    return f"{engine} within gpu_memory_share, and {state}", settings
