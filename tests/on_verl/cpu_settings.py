"""What verl needs to train on CPUs: variables, hydra overrides, a cluster; without verl itself."""

from __future__ import annotations

from small_cluster import small_cluster

from klearlib.scale.cluster import Cluster

# Of every process, the one that starts Ray included, before it imports verl.
ENVIRONMENT = {
    "VERL_PLATFORM": "klear_cpu",
    # verl registers its FSDP engine for "cuda" and "npu"; nothing in it needs either.
    "VERL_ENGINE_DEVICE": "cuda",
    # No look for plug-ins among the installed packages.
    "VERL_USE_EXTERNAL_PLUGINS": "none",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    # Ray hands these out as "GPU"s, torch sees no device under them.
    "CUDA_VISIBLE_DEVICES": "90,91,92,93",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray listens on the machine's own address
    # Ray would start as many idle processes as there are logical CPUs.
    "RAY_prestart_worker_first_driver": "0",
}

# After all others.
OVERRIDES = [
    "trainer.device=cpu",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.model.external_lib=cpu_gloo",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "transfer_queue.backend.SimpleStorage.total_storage_size=10000",
]


def ray_init(num_workers: int) -> dict:
    """Keywords of `ray.init` for verl on this many training processes.

    verl places its actors by logical CPUs, three for each training process, and counts "GPU"s.
    """
    return {
        "num_cpus": 6 + 3 * num_workers,
        "num_gpus": num_workers,
        "include_dashboard": False,
        "object_store_memory": 200_000_000,
    }


def cpu_cluster(num_processes: int = 1, **changes) -> Cluster:
    """A `Cluster` of so many training processes on this machine's cores."""
    started = [f"++ray_kwargs.ray_init.{k}={v}" for k, v in ray_init(num_processes).items()]
    fields = {
        "gpus_per_node": num_processes,
        "rollout": "klear_cpu",
        "modules": ["cpu_glue"],
        "overrides": [*OVERRIDES, *started],
        "environment": ENVIRONMENT,
    }
    return small_cluster(**fields | changes)
