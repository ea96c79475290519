"""How the driver of a run starts, hears and ends Ray and verl's trainer.

The trainer tells the driver through a mailbox what it has done, and only the driver writes the run
folder, so that a checkpoint and the lines that belong to it are committed together, as on one
machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from klearlib.errors import KlearError, Stopped
from klearlib.scale import ray_cluster
from klearlib.scale.cluster import Cluster
from klearlib.scale.ray_cluster import cause_of, cluster_address

MAILBOX, TURN = "klear-mailbox", ".verl"
PLUGIN = "klearlib.scale.trainer"
POLL_S = 0.5
CPUS_PER_GPU = 3
"""Logical CPUs that verl reserves with each GPU."""

EVALUATION, STEP, SAVED, STOPPED = "evaluation", "step", "saved", "stopped"
"""Kinds of messages. ``evaluation``: step, name, EvalRecord. ``step``: the lines of metrics.jsonl
and timings.jsonl, and samples. ``saved``: number of steps whose checkpoint is complete.
``stopped``: number of steps after which the trainer ended because it was asked to."""


class Mailbox:
    """The Ray actor between the two, which keeps the order of the messages."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []
        self._stop = False

    def put(self, kind: str, content: Any) -> None:
        self._messages.append((kind, content))

    def take(self) -> list[tuple[str, Any]]:
        """All messages since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def stop(self) -> None:
        """Ask the trainer to save its state after the current step, and end."""
        self._stop = True

    def stop_requested(self) -> bool:
        return self._stop


def prepare(cluster: Cluster) -> None:
    """Import verl with our plug-ins, in this process and, through environment variables, in all
    that it starts; KlearError if one does not load."""
    os.environ |= _variables(cluster)
    ray_cluster.set_variables()  # verl imports Ray
    # verl first, which imports the others itself, in their order, unless it was imported before.
    for module in ("verl", *cluster.modules, PLUGIN):
        try:
            importlib.import_module(module)
        except Exception as error:  # a module of the user's may raise anything
            traceback.print_exc()
            raise KlearError(
                f"{module} does not load ({type(error).__name__}: {cause_of(error)}): fix it, or "
                "modules in compute.yaml's verl"
            ) from None


def _variables(cluster: Cluster) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "VERL_USE_EXTERNAL_MODULES": ",".join([*cluster.modules, PLUGIN]),  # a platform comes first
        **cluster.environment,
    }


@contextlib.contextmanager
def connected(config, cluster: Cluster) -> Iterator[None]:
    """Connects this process to the Ray that RAY_ADDRESS names, or to its own Ray, which ends with
    the block. KlearError if Ray does not answer, or lacks the nodes that compute.yaml names, for
    which verl would wait forever."""
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    asked = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    runtime = get_ppo_ray_runtime_env(config)
    runtime |= {name: value for name, value in asked.pop("runtime_env").items() if value}
    variables = {name: str(value) for name, value in runtime.get("env_vars", {}).items()}
    variables |= {"TRANSFER_QUEUE_ENABLE": "1", **_variables(cluster)}
    runtime["env_vars"] = variables
    given = {"runtime_env": runtime, "log_to_driver": True, "logging_level": logging.INFO}
    if (
        not cluster_address()
    ):  # one to join has resources of its own, and Ray finds GPUs of all makers
        given |= {"num_gpus": None, "include_dashboard": False} | asked
    with ray_cluster.connected(**given):
        per_node = {"GPU": cluster.gpus_per_node, "CPU": CPUS_PER_GPU * cluster.gpus_per_node}
        able = sum(
            min(int(node["Resources"].get(kind, 0)) // count for kind, count in per_node.items())
            for node in ray.nodes()
            if node["Alive"]
        )
        if able < cluster.nodes:
            raise KlearError(
                f"compute.yaml's verl asks for {cluster.nodes} nodes with {per_node['GPU']} GPUs "
                f"and {per_node['CPU']} logical CPUs each, and the Ray cluster has {able} of that "
                "size: add nodes, or change nodes or gpus_per_node"
            )
        yield


@contextlib.contextmanager
def alone(runs_dir: Path, *, stop_requested: Callable[[], bool]) -> Iterator[None]:
    """Keeps other runs of verl for the same results from running: each takes a whole cluster.
    Raises Stopped if a stop was asked for while this run waited."""
    with open(runs_dir / TURN, "ab") as file:
        os.register_at_fork(after_in_child=file.close)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop_requested():
                    raise Stopped("stopped while waiting for another run of verl") from None
                time.sleep(POLL_S)
        yield


def run_trainer(
    config, *, take: Callable[[str, object], None], stop_requested: Callable[[], bool]
) -> None:
    """Run verl's trainer to its end; KlearError if it ends with an error, or one of its processes
    dies. take: gets every message of the trainer, in order; what it raises ends the run."""
    import ray
    from verl.trainer.main_ppo import TaskRunnerV1

    mailbox = ray.remote(num_cpus=0)(Mailbox).options(name=MAILBOX).remote()
    runner = TaskRunnerV1.remote()
    ending = runner.run.remote(config)
    asked_to_stop, begun, ended = False, False, []
    try:
        while not ended:
            ended, _ = ray.wait([ending], timeout=POLL_S)
            for kind, content in ray.get(mailbox.take.remote()):
                take(kind, content)
                begun = begun or kind == STEP
            if stop_requested() and not ended and not asked_to_stop:
                if not begun:  # it would hear of it after its first step
                    raise Stopped("stopped before the first step of this start; run again to go on")
                mailbox.stop.remote()
                asked_to_stop = True
        ray.get(ending)
    except (ray.exceptions.RayError, ConnectionError) as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, KlearError):
            raise KlearError(str(cause)) from None
        traceback.print_exc()
        what = f"{type(cause).__name__}: {cause_of(error)}"
        if isinstance(cause, ray.exceptions.RayError | ConnectionError):
            raise KlearError(
                f"a process of verl was lost ({what}): running again goes on from the last "
                "checkpoint"
            ) from None
        raise KlearError(f"verl ended with {what}") from None
