"""Ray and verl's trainer as the driver of a run starts, hears and ends them."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from klearlib.errors import KlearError, Stopped
from klearlib.run.files import one_line_failures
from klearlib.scale.cluster import Cluster

MAILBOX, TURN = "klear-mailbox", ".verl"
PLUGINS = "klearlib.scale.plugins"
MODULES, COPIES = "VERL_USE_EXTERNAL_MODULES", "HF_DATASETS_CACHE"
ADDRESS = "RAY_ADDRESS"
POLL_S = 0.5
_HANDLED = (signal.SIGINT, signal.SIGTERM)


def prepare(cluster: Cluster, work: Path) -> None:
    """Import verl with our plug-ins, in this process and, by the variables that are set, in all
    that it starts.

    work: where verl's copies of the problems go.

    Raises:
        KlearError: a plug-in does not load.
    """
    os.environ[COPIES] = str(work / "datasets")
    os.environ.update(_variables(cluster))
    # verl first, which imports them itself, in their order, unless it was imported before.
    for module in ("verl", *os.environ[MODULES].split(",")):
        try:
            importlib.import_module(module)
        except Exception as error:  # a module of the user's may raise anything
            traceback.print_exc()
            raise KlearError(
                f"{module} does not load ({type(error).__name__}: {_line(error)}): mend it, or "
                "modules in verl.yaml"
            ) from None


def _variables(cluster: Cluster) -> dict[str, str]:
    paths = [path for path in sys.path if path]
    return {
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)),
        COPIES: os.environ[COPIES],
        MODULES: ",".join([*cluster.modules, PLUGINS]),  # a platform comes first
        **cluster.environment,
    }


@contextlib.contextmanager
def connected(config, cluster: Cluster) -> Iterator[None]:
    """Within it this process is connected to the Ray that RAY_ADDRESS names, or to one of its own,
    which ends with it.

    Raises:
        KlearError: Ray does not answer.
    """
    import ray
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
    if address := os.environ.get(ADDRESS):
        arguments = {"address": address}  # whose resources are its own
    else:
        arguments = {"address": "local", "include_dashboard": False} | asked
    handlers = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        ray.init(**arguments, runtime_env=runtime)
    except Exception as error:  # for a start that takes too long it raises just that
        where = f"at {address} " if address else ""
        line = " ".join(str(error).split())[:300]
        raise KlearError(f"Ray {where}does not answer ({line}): start it, or mend {ADDRESS}") from (
            error
        )
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def alone(runs_dir: Path, *, stop_requested: Callable[[], bool]) -> Iterator[None]:
    """Within it no other run of verl goes on for the same results: each takes a whole cluster.

    Raises:
        Stopped: a stop was asked for while this run waited.
    """
    with one_line_failures(runs_dir), open(runs_dir / TURN, "ab") as file:
        os.register_at_fork(after_in_child=file.close)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop_requested():
                    raise Stopped("stopped while another run of verl went on") from None
                time.sleep(POLL_S)
        yield


def require_gpus(cluster: Cluster) -> None:
    """Raises KlearError where the connected Ray has fewer GPUs than verl.yaml names."""
    import ray

    there = int(ray.cluster_resources().get("GPU", 0))
    if there < cluster.num_gpus:
        raise KlearError(
            f"the Ray cluster has {there} GPUs and verl.yaml asks for {cluster.nodes} nodes of "
            f"{cluster.gpus_per_node}: add nodes, or lower nodes or gpus_per_node"
        )


def run_trainer(
    config,
    *,
    take: Callable[[str, object], None],
    stop_requested: Callable[[], bool],
) -> None:
    """Run verl's trainer to its end.

    Args:
        take: gets every message of the trainer (`klearlib.scale.stream`), in order, in this
            process; what it raises ends the run.

    Raises:
        KlearError: the trainer ended with an error, or a process of it died.
    """
    import ray
    from verl.trainer.main_ppo import TaskRunnerV1

    from klearlib.scale.stream import Mailbox

    mailbox = ray.remote(num_cpus=0)(Mailbox).options(name=MAILBOX).remote()
    runner = TaskRunnerV1.remote()
    ending = runner.run.remote(config)
    told = False
    try:
        while True:
            ended, _ = ray.wait([ending], timeout=POLL_S)
            for kind, content in ray.get(mailbox.take.remote()):
                take(kind, content)
            if ended:
                ray.get(ending)
                return
            if stop_requested() and not told:
                mailbox.stop.remote()
                told = True
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, KlearError):
            raise KlearError(str(cause)) from None
        traceback.print_exc()
        name = type(cause).__name__
        if isinstance(cause, ray.exceptions.RayError):
            raise KlearError(
                f"a process of verl was lost ({name}: {_line(cause)}): running again goes on from "
                "the last checkpoint"
            ) from None
        raise KlearError(f"verl ended with {name}: {_line(cause)}") from None


def _line(error: BaseException) -> str:
    """The last line of an error's text, which in Ray's holds the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:400] if lines else "no reason given"
