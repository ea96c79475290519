"""Whether the nodes of a Ray cluster give what this machine would: files, locks, code, versions."""

from __future__ import annotations

import fcntl
import secrets
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.run.files import one_line_failures
from klearlib.scale import ray_node
from klearlib.scale.ray_cluster import MAX_WHY

PROBES = ".ray"
"""Folder of the results for the files that are written to find out."""


def check_nodes(
    runs_dir: Path, kinds: Collection[str], environment: dict[str, str], modules: Sequence[str]
) -> None:
    """Make sure that every node on which a stage may run, as it has one of `kinds` ("GPU", "CPU"),
    sees `runs_dir`, keeps its locks and runs the same code of `modules` on the same libraries.

    Raises KlearError with one line that names the node and what to mend.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(ray_node)
    probe = ray.remote(num_cpus=0, max_retries=0)(ray_node.probe)
    token = secrets.token_hex(8)
    folder = runs_dir / PROBES / token
    alive = [node for node in ray.nodes() if node["Alive"]]
    nodes = [n for n in alive if any(n["Resources"].get(kind, 0) >= 1 for kind in kinds)]
    expected = ray_node.runs_on(list(modules))
    with one_line_failures(folder):
        folder.mkdir(parents=True)
        try:
            with open(folder / "caller", "w", encoding="utf-8") as file:
                _lock(file, runs_dir)
                file.write(token)
                file.flush()
                asked = {}
                for node in nodes:
                    here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                    arguments = (str(folder), token, node["NodeID"], environment, list(modules))
                    asked[node["NodeID"]] = probe.options(scheduling_strategy=here).remote(
                        *arguments
                    )
                for name, answer in asked.items():
                    told = _answer(ray, answer)
                    if wrong := _wrong(told, expected, runs_dir, folder / name, token):
                        raise KlearError(f"{told['node']}, a node of the Ray cluster, {wrong}")
        finally:
            for file in folder.iterdir():
                file.unlink(missing_ok=True)
            folder.rmdir()


def _answer(ray, answer) -> dict:
    try:
        return ray.get(answer)
    except (ray.exceptions.RayError, RuntimeError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise KlearError(f"a node of the Ray cluster cannot run a task ({why[:MAX_WHY]})") from None


def _lock(file, runs_dir: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise KlearError(
            f"cannot lock files in {runs_dir} ({error.strerror}): keep the results on a file "
            "system that has locks"
        ) from None


def _wrong(told: dict, expected: dict, runs_dir: Path, answer: Path, token: str) -> str:
    """What is wrong with a node that told so, and what mends it; "" where nothing is."""
    if "unseen" in told:
        return (
            f"does not see {runs_dir}: keep the results on a file system that all nodes mount at "
            "the same place"
        )
    if "unlocked" in told:
        return (
            f"takes locks in {runs_dir} that are held here: mount that file system with locks "
            "between machines (NFS 4, or Lustre with -o flock)"
        )
    end = time.monotonic() + ray_node.SEEN_S
    while not ray_node.holds(answer, token):
        if time.monotonic() > end:
            return f"writes to {runs_dir} what is not seen here: mount the same file system there"
        time.sleep(ray_node.POLL_S)
    same = "keep the clone and its environment on the file system that all nodes mount"
    if "lacks" in told:
        return f"cannot import the library ({told['lacks']}): {same}"
    for name, here in expected.items():
        if (there := told["runs_on"].get(name)) != here:
            return f"has {name} {there}, not {here} as here: {same}"
    return ""
