"""Rollouts on CPUs behind verl's interfaces: the replica, and who sends it weights."""

from __future__ import annotations

import ray
import torch
from cpu_server import CpuServer
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica


def _server_name(replica_rank: int) -> str:
    return f"klear_cpu_server_{replica_rank}"


class CpuReplica(RolloutReplica):
    """One server for each training process."""

    async def launch_servers(self) -> None:
        config = self.config
        server = (
            ray.remote(num_cpus=0)(CpuServer)
            .options(name=_server_name(self.replica_rank), max_concurrency=self.max_concurrency)
            .remote(
                self.model_config.path,
                config.response_length,
                config.max_model_len or config.prompt_length + config.response_length,
            )
        )
        await server.ready.remote()
        self.servers.append(server)
        self._server_handle = server
        self._server_address = _server_name(self.replica_rank)


class WeightSender(BaseRollout):
    """In a training process: what brings its replica's server the new weights."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights, wire_format: str = "named_tensors", *, global_steps=None, **kwargs
    ) -> None:
        # Each tensor is gathered from all processes, so all must walk through them.
        held = {name: tensor.detach() for name, tensor in weights}
        server = ray.get_actor(_server_name(torch.distributed.get_rank()))
        await server.update_weights.remote(held, global_steps)
