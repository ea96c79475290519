"""What this machine has and lacks, each lack with one line that mends it."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.params import profiles, root
from klearlib.policy.compute import INSTALL_VLLM
from klearlib.policy.memory import available_memory
from klearlib.run.provenance import version
from klearlib.scale.require import INSTALL_RAY, INSTALL_VERL, lacks
from klearlib.suite.plan import plan, weighed
from klearlib.verify.sandbox import active_tier

SMOKE = "smoke"
OLDEST_PYTHON = (3, 11)
# Distribution -> module, for all that the smoke profile imports.
_SAME = """torch transformers tokenizers sympy numpy scipy pandas datasets huggingface_hub pyarrow
matplotlib papermill nbclient nbformat ipykernel jupyter_client traitlets jinja2 rich
safetensors"""
NEEDED = {name: name for name in _SAME.split()} | {
    "math-verify": "math_verify",
    "pillow": "PIL",
    "ipython": "IPython",
    "PyYAML": "yaml",
}
NEEDED_MEMORY_GB, NEEDED_DISK_GB = 3.0, 1.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `found` says what there is, `fix` how to mend a lack ("" where none).

    required: without it the smoke profile cannot run.
    """

    name: str
    found: str
    fix: str = ""
    required: bool = False

    def __str__(self) -> str:
        mark = "ok" if not self.fix else "MISSING" if self.required else "lacks"
        return f"{mark:<8} {self.name:<18} {self.found}" + (f"; {self.fix}" if self.fix else "")


def diagnose() -> list[Finding]:
    """All findings, those about this machine first and then those about the profiles."""
    found = [_python(), *_packages(), *_accelerator(), *_cluster(), *_room(), _sandbox()]
    return [*found, *_profiles()]


def can_run_smoke(findings: list[Finding]) -> bool:
    """Whether nothing that the smoke profile needs is missing."""
    return not any(finding.fix and finding.required for finding in findings)


def _python() -> Finding:
    found, wanted = (".".join(map(str, each)) for each in (sys.version_info[:3], OLDEST_PYTHON))
    fix = "" if sys.version_info >= OLDEST_PYTHON else f"install Python {wanted} or newer"
    return Finding("Python", found, fix, required=True)


def _packages() -> list[Finding]:
    return [
        _installed(package, module, f"pip install {package}, or pip install -e . for all", True)
        for package, module in NEEDED.items()
    ]


def _installed(name: str, module: str, fix: str, required: bool = False) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(name, "not installed", fix, required)
    return Finding(name, version(name.lower()) or "version unknown", "", required)


def _accelerator() -> list[Finding]:
    """CUDA, GPU memory and vLLM: the gpu and paper profiles need them, smoke and mini do not."""
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    if torch.cuda.is_available():
        findings = [Finding("CUDA", str(torch.version.cuda))]
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            name = torch.cuda.get_device_name(index)
            memory = f"{name}, {free / 1e9:.0f} of {total / 1e9:.0f} GB free"
            findings.append(Finding(f"GPU {index}", memory))
    else:
        reason = "this torch is built without CUDA" if not torch.version.cuda else "no GPU answers"
        fix = "only needed beyond mini: use a machine with an NVIDIA GPU and a CUDA build of torch"
        findings = [Finding("CUDA", reason, fix)]
    return [*findings, _installed("vLLM", "vllm", f"only needed for engine: vllm: {INSTALL_VLLM}")]


def _cluster() -> list[Finding]:
    """verl and Ray, which no profile needs on one machine."""
    ray = _installed("Ray", "ray", f"only needed for --workers ray: {INSTALL_RAY}")
    lack = lacks()
    if lack:
        return [ray, Finding("verl", lack, f"only needed for engine: verl: {INSTALL_VERL}")]
    return [ray, Finding("verl", version("verl"))]


def _room() -> list[Finding]:
    """Memory and disk, and whether the results folder takes files."""
    memory = available_memory() / 1e9
    few = "" if memory >= NEEDED_MEMORY_GB else f"smoke needs {NEEDED_MEMORY_GB:g} GB of memory"
    findings = [Finding("memory", f"{memory:.1f} GB free", few, required=True)]
    try:
        project = root()
    except KlearError as error:
        return [*findings, Finding("project", "not found", str(error), required=True)]
    free = shutil.disk_usage(project).free / 1e9
    full = "" if free >= NEEDED_DISK_GB else f"free at least {NEEDED_DISK_GB:g} GB"
    findings.append(Finding("disk", f"{free:.1f} GB free", full, required=True))
    results = project / "results"
    with contextlib.suppress(OSError):
        results.mkdir(exist_ok=True)
    denied = "" if _takes_files(results) else "make results/ writable for you"
    findings.append(Finding("results/", "writable" if not denied else "denied", denied, True))
    return findings


def _takes_files(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _sandbox() -> Finding:
    """The isolation in which programs run, and why it is not a stronger one."""
    try:
        tier = active_tier()
    except KlearError as error:
        return Finding("sandbox", "none works", str(error), required=True)
    found = f"{tier.name} ({tier.detail})" if tier.detail else tier.name
    open_ = "programs run without isolation: use Linux 5.13 or newer with landlock"
    return Finding("sandbox", found, open_ if tier.name == "none" else "")


def _profiles() -> list[Finding]:
    """One line a profile: whether its parameters are valid, and what keeps it from finishing on
    this machine, in the words of ``klear plan``, or how many things do."""
    try:
        names = profiles()
    except KlearError:  # already said by _room
        return []
    findings = []
    for profile in names:
        try:
            missing = weighed(profile, plan(profile)).missing
        except KlearError as error:
            missing = [str(error)]
        fix = "".join(missing)
        if len(missing) > 1:
            fix = f"{len(missing)} things are missing: klear plan --profile {profile} names them"
        ready = "not ready" if missing else "ready"
        findings.append(Finding(f"profile {profile}", ready, fix, required=profile == SMOKE))
    return findings
