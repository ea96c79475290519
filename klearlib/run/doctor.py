"""What this machine has and lacks, each lack with one line that mends it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from klearlib.errors import KlearError
from klearlib.params import profiles, root
from klearlib.policy.memory import available_memory
from klearlib.run.machine import INSTALL_VLLM
from klearlib.run.notebooks import plan
from klearlib.run.weighing import weighed
from klearlib.scale.require import INSTALL_RAY, INSTALL_VERL, lacks
from klearlib.verify.sandbox import active_tier

SMOKE = "smoke"
OLDEST_PYTHON = (3, 11)
# Distribution -> module, for all that the smoke profile imports.
NEEDED = {
    "torch": "torch",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "math-verify": "math_verify",
    "sympy": "sympy",
    "numpy": "numpy",
    "scipy": "scipy",
    "pandas": "pandas",
    "datasets": "datasets",
    "huggingface_hub": "huggingface_hub",
    "pyarrow": "pyarrow",
    "matplotlib": "matplotlib",
    "papermill": "papermill",
    "pillow": "PIL",
    "nbclient": "nbclient",
    "nbconvert": "nbconvert",
    "nbformat": "nbformat",
    "ipykernel": "ipykernel",
    "ipython": "IPython",
    "jupyter_client": "jupyter_client",
    "traitlets": "traitlets",
    "jinja2": "jinja2",
    "pygments": "pygments",
    "latex2mathml": "latex2mathml",
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
    return [
        _python(),
        *_packages(),
        *_accelerator(),
        *_cluster(),
        *_room(),
        _sandbox(),
        *_profiles(),
    ]


def can_run_smoke(findings: list[Finding]) -> bool:
    """Whether nothing that the smoke profile needs is missing."""
    return not any(finding.fix and finding.required for finding in findings)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, OLDEST_PYTHON))
    fix = "" if sys.version_info >= OLDEST_PYTHON else f"install Python {wanted} or newer"
    return Finding("Python", version, fix, required=True)


def _packages() -> list[Finding]:
    findings = []
    for package, module in NEEDED.items():
        found = importlib.util.find_spec(module) is not None
        findings.append(
            Finding(
                package,
                _version(package) if found else "not installed",
                "" if found else f"pip install {package}, or pip install -e . for all",
                required=True,
            )
        )
    return findings


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"


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
    if importlib.util.find_spec("vllm") is None:
        fix = f"only needed for engine: vllm: {INSTALL_VLLM}"
        findings.append(Finding("vLLM", "not installed", fix))
    else:
        findings.append(Finding("vLLM", _version("vllm")))
    return findings


def _cluster() -> list[Finding]:
    """verl and Ray, which no profile needs on one machine."""
    if importlib.util.find_spec("ray") is None:
        ray = Finding("Ray", "not installed", f"only needed for --workers ray: {INSTALL_RAY}")
    else:
        ray = Finding("Ray", _version("ray"))
    lack = lacks()
    if lack:
        verl = Finding("verl", lack, f"only needed for engine: verl: {INSTALL_VERL}")
    else:
        verl = Finding("verl", _version("verl"))
    return [ray, verl]


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


def _sandbox() -> Finding:
    """The isolation in which programs run, and why it is not a stronger one."""
    try:
        tier = active_tier()
    except KlearError as error:
        return Finding("sandbox", "none works", str(error), required=True)
    found = f"{tier.name} ({tier.detail})" if tier.detail else tier.name
    fix = (
        ""
        if tier.name != "none"
        else "programs run without isolation: use Linux 5.13 or newer with landlock"
    )
    return Finding("sandbox", found, fix)


def _takes_files(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


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
            planned = weighed(profile, plan(profile))
            lacks = [lack for each in planned for lack in each.missing]
        except KlearError as error:
            lacks = [str(error)]
        label, required = f"profile {profile}", profile == SMOKE
        fix = "".join(lacks)
        if len(lacks) > 1:
            fix = f"{len(lacks)} things are missing: klear plan --profile {profile} names them"
        findings.append(Finding(label, "not ready" if lacks else "ready", fix, required))
    return findings
