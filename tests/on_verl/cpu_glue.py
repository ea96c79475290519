"""What lets verl train on CPUs: a platform, and rollouts from a transformers model.

Every process of verl imports this module by ``VERL_USE_EXTERNAL_MODULES``, so its folder must be on
their ``PYTHONPATH``. On GPUs verl brings all of it: this is for tests alone.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import ModuleType

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class _Device(ModuleType):
    """`torch.cpu` with the questions that only accelerators answer."""

    def __init__(self):
        super().__init__("torch_cpu_device")
        self.__dict__.update(
            {name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")}
        )
        self.get_rng_state, self.set_rng_state = torch.get_rng_state, torch.set_rng_state
        self.manual_seed = self.manual_seed_all = torch.manual_seed

    def memory_allocated(self, device=None) -> int:
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, device=None) -> tuple[int, int]:
        return 0, 0

    def empty_cache(self) -> None: ...

    ipc_collect = reset_peak_memory_stats = empty_cache

    def get_device_name(self, device=None) -> str:
        return "cpu"


@PlatformRegistry.register("klear_cpu")
class CpuPlatform(PlatformBase):
    """CPUs that Ray knows as "GPU"s: verl counts no other resource."""

    device_name = vendor_name = "cpu"
    device_module = _Device()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index) -> None: ...

    def synchronize(self, device_index=None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str):
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def _register_rollout() -> None:
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    def load():
        from cpu_rollout import CpuReplica

        return CpuReplica

    RolloutReplicaRegistry.register("klear_cpu", load)
    # verl has no public way to name the trainer's side of a new rollout.
    base._ROLLOUT_REGISTRY["klear_cpu", "async"] = "cpu_rollout.WeightSender"


if os.environ.get("VERL_PLATFORM") == "klear_cpu":
    _register_rollout()
