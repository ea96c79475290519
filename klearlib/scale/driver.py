"""Ray and verl's trainer as the driver of a run starts, hears and ends them.

The trainer tells the driver what it has done by a mailbox, and the driver alone writes the run
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from klearlib.errors import KlearError, Stopped
from klearlib.run.files import one_line_failures
from klearlib.scale import ray_cluster
from klearlib.scale.cluster import Cluster
from klearlib.scale.ray_cluster import RAY, runs_here

MAILBOX, TURN = "klear-mailbox", ".verl"
PLUGIN = "klearlib.scale.trainer"
MODULES, COPIES = "VERL_USE_EXTERNAL_MODULES", "HF_DATASETS_CACHE"
POLL_S, DYING_S, CLOSING_S = 0.5, 20.0, 30.0
CPUS_PER_GPU = 3
"""Logical CPUs that verl books with each GPU."""


EVALUATION, STEP, SAVED, STOPPED = "evaluation", "step", "saved", "stopped"
"""Kinds of messages. ``evaluation``: step, name, EvalRecord. ``step``: the lines of metrics.jsonl
and timings.jsonl. ``saved``: number of steps whose checkpoint is complete. ``stopped``: number of
steps after which the trainer ended, as it was asked to."""


class Mailbox:
    """The Ray actor between the two, in the order in which things were told."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []
        self._stop = False

    def put(self, kind: str, content: Any) -> None:
        self._messages.append((kind, content))

    def take(self) -> Sequence[tuple[str, Any]]:
        """All that was told since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def stop(self) -> None:
        """Have the trainer save its state after the step that it is at, and end."""
        self._stop = True

    def stop_requested(self) -> bool:
        return self._stop


def prepare(cluster: Cluster, work: Path) -> None:
    """Import verl with our plug-ins, in this process and, by the variables that are set, in all
    that it starts; KlearError where one does not load. work: where verl's copies of the problems
    go."""
    os.environ[COPIES] = str(work / "datasets")
    os.environ.update(_variables(cluster))
    ray_cluster.set_variables(RAY)  # verl imports Ray
    # verl first, which imports them itself, in their order, unless it was imported before.
    for module in ("verl", *os.environ[MODULES].split(",")):
        try:
            importlib.import_module(module)
        except Exception as error:  # a module of the user's may raise anything
            traceback.print_exc()
            raise KlearError(
                f"{module} does not load ({type(error).__name__}: {_line(error)}): mend it, or "
                "modules in compute.yaml's verl"
            ) from None


def _variables(cluster: Cluster) -> dict[str, str]:
    paths = [path for path in sys.path if path]
    return {
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)),
        COPIES: os.environ[COPIES],
        MODULES: ",".join([*cluster.modules, PLUGIN]),  # a platform comes first
        **cluster.environment,
    }


@contextlib.contextmanager
def connected(config, cluster: Cluster) -> Iterator[None]:
    """Within it this process is connected to the Ray that RAY_ADDRESS names, or to one of its own,
    which ends with it. KlearError where Ray does not answer."""
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    asked = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    runtime = get_ppo_ray_runtime_env(config)
    runtime |= {name: value for name, value in asked.pop("runtime_env").items() if value}
    runtime["env_vars"] = {
        **{name: str(value) for name, value in runtime.get("env_vars", {}).items()},
        "TRANSFER_QUEUE_ENABLE": "1",
        **_variables(cluster),
    }
    given = {"runtime_env": runtime, "log_to_driver": True, "logging_level": logging.INFO}
    if runs_here(RAY):  # one to join has resources of its own, and Ray finds GPUs of all makers
        given |= {"num_gpus": None, "include_dashboard": False} | asked
    with ray_cluster.connected(RAY, **given):
        yield


@contextlib.contextmanager
def alone(runs_dir: Path, *, stop_requested: Callable[[], bool]) -> Iterator[None]:
    """Within it no other run of verl goes on for the same results: each takes a whole cluster.
    Stopped where a stop was asked for while this run waited."""
    with contextlib.ExitStack() as opened:
        with one_line_failures(runs_dir):
            file = opened.enter_context(open(runs_dir / TURN, "ab"))
            os.register_at_fork(after_in_child=file.close)
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if stop_requested():
                    raise Stopped("stopped while another run of verl went on")
                time.sleep(POLL_S)
        yield


def require_gpus(cluster: Cluster) -> None:
    """KlearError where the connected Ray lacks the nodes that compute.yaml names, for which verl
    would wait for ever, or where another run of verl uses it: the two would share one store of
    rollouts."""
    import ray

    per_node = {"GPU": cluster.gpus_per_node, "CPU": CPUS_PER_GPU * cluster.gpus_per_node}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    able = sum(
        min(int(node.get(kind, 0)) // count for kind, count in per_node.items()) for node in nodes
    )
    if able < cluster.nodes:
        has = ", ".join(f"{node.get('GPU', 0):g} and {node.get('CPU', 0):g}" for node in nodes)
        raise KlearError(
            f"compute.yaml's verl asks for {cluster.nodes} nodes with {per_node['GPU']} GPUs and "
            f"{per_node['CPU']} logical CPUs each, and those of the Ray cluster have {has}: add "
            "nodes, or change nodes or gpus_per_node"
        )
    end = time.monotonic() + DYING_S  # that of a run that was killed just now is still there
    while _store() is not None:
        if time.monotonic() > end:
            raise KlearError(
                "another run of verl uses this Ray cluster: wait for it, or use another one"
            )
        time.sleep(POLL_S)


def _store():
    """The Ray actor that keeps the rollouts of a run of verl; None where there is none."""
    import ray

    with contextlib.suppress(ValueError):
        return ray.get_actor("TransferQueueController", namespace="transfer_queue")
    return None


def run_trainer(
    config,
    *,
    take: Callable[[str, object], None],
    stop_requested: Callable[[], bool],
) -> None:
    """Run verl's trainer to its end; KlearError where it ends with an error, or a process of it
    dies.

    take: gets every message of the trainer, in order, in this process; what it raises ends the run.
    """
    import ray
    from verl.trainer.main_ppo import TaskRunnerV1

    mailbox = ray.remote(num_cpus=0)(Mailbox).options(name=MAILBOX).remote()
    runner = TaskRunnerV1.remote()
    ending = runner.run.remote(config)
    told, begun, alive = False, False, None
    try:
        while True:
            ended, _ = ray.wait([ending], timeout=POLL_S)
            for kind, content in ray.get(mailbox.take.remote()):
                take(kind, content)
                begun = begun or kind == STEP
            if ended:
                ray.get(ending)
                return
            if stop_requested() and not told:
                if not begun:  # it would hear of it after its first step
                    raise Stopped("stopped before the first step of this start; run again to go on")
                mailbox.stop.remote()
                told = True
            # Without its store the trainer waits for ever.
            if alive is None and (store := _store()) is not None:
                alive = store.__ray_ready__.remote()
            elif alive is not None and ray.wait([alive], timeout=0)[0]:
                try:
                    ray.get(alive)
                except ray.exceptions.RayError:  # or the trainer has closed it, and ends
                    if not ray.wait([ending], timeout=CLOSING_S)[0]:
                        raise
                alive = None
    except (ray.exceptions.RayError, ConnectionError) as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, KlearError):
            raise KlearError(str(cause)) from None
        traceback.print_exc()
        name = type(cause).__name__
        if isinstance(cause, ray.exceptions.RayError | ConnectionError):
            raise KlearError(
                f"a process of verl was lost ({name}: {_line(cause)}): running again goes on from "
                "the last checkpoint"
            ) from None
        raise KlearError(f"verl ended with {name}: {_line(cause)}") from None


def _line(error: BaseException) -> str:
    """The last line of an error's text, which in Ray's holds the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:400] if lines else "no reason given"
